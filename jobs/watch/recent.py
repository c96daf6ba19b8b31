"""What the workers of a run did in the last minutes, from their journals and the trace files compacted from them."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pyarrow.compute as pc

from jobs.run import trace_files

WINDOW_SECONDS = 300.0
_TAIL_BYTES = 4 << 20
_CALL = [f"calls.list.element.{name}" for name in ("model", "output_tokens", "submitted_at", "end_seconds")]


@dataclass
class Recent:
    """Counts over the last five minutes, or over the part of them in which there was work."""

    now: float = field(default_factory=time.time)
    """Seconds since the epoch, like all times here."""
    tokens: Counter[str] = field(default_factory=Counter)
    """Output tokens by model."""
    samples: int = 0
    """Number of samples that ended."""
    first: float | None = None
    """When the first of the calls counted was submitted."""

    @property
    def since(self) -> float:
        """Start of the window."""
        return self.now - WINDOW_SECONDS

    @property
    def seconds(self) -> float:
        """Length of the window, or of the part of it since the first call."""
        return max(1.0, self.now - max(self.since, self.since if self.first is None else self.first))

    def tokens_per_second(self) -> dict[str, float]:
        """Output tokens per second, by model."""
        return {model: tokens / self.seconds for model, tokens in sorted(self.tokens.items())}

    def samples_per_second(self) -> float:
        """Samples that ended per second, of all workers together."""
        return self.samples / self.seconds

    def add_journal(self, content: bytes) -> None:
        """Count the recent events of a journal that is being written."""
        last_call: dict[str, float] = {}
        for line in content[-_TAIL_BYTES:].split(b"\n"):
            with contextlib.suppress(ValueError, LookupError, TypeError, AttributeError):  # torn, or no event
                self._add_event(orjson.loads(line), last_call)

    def _add_event(self, event: dict[str, Any], last_call: dict[str, float]) -> None:
        calls = event.get("calls", ())
        self._count([(c["model"], c["output_tokens"], c["submitted_at"], c["end_seconds"]) for c in calls])
        if calls:
            last_call[event["sample_id"]] = max(call["submitted_at"] + call["end_seconds"] for call in calls)
        if event["event"] == "end":
            self.samples += last_call.get(event["sample_id"], 0.0) >= self.since

    def add_trace_file(self, path: Path) -> None:
        """Count the calls of a trace file that was written in the window; a damaged file adds nothing."""
        try:
            calls = trace_files.read_columns(path, _CALL, whole=False)["calls"].combine_chunks()
        except trace_files.DAMAGED:
            return
        flat = calls.flatten()
        ends = pc.add(flat.field("submitted_at"), flat.field("end_seconds"))
        in_window = pc.greater_equal(ends, self.since)
        columns = [flat.field(name.rpartition(".")[2]).filter(in_window).to_pylist() for name in _CALL]
        self._count(list(zip(*columns, strict=True)))
        self.samples += len(pc.unique(pc.list_parent_indices(calls).filter(in_window)))

    def _count(self, calls: list[tuple[str, int, float, float]]) -> None:
        for model, tokens, submitted_at, seconds in calls:
            if submitted_at + seconds >= self.since:
                self.tokens[model] += tokens
                self.first = submitted_at if self.first is None else min(self.first, submitted_at)
