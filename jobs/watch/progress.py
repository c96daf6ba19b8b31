"""How far a run is, read from its journals as they grow, for workers on this machine and on nodes alike."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from harness.cli.messages import counted
from harness.cli.number_format import duration
from jobs.run import timing as timings
from jobs.run import trace_files
from jobs.run.endings import read_endings
from jobs.run.folder import RunFolder
from jobs.run.trace_files import StepRow

_WINDOW_SECONDS = 60.0
_CLOCK_SECONDS = 5.0
"""How far the clock of the file server may be behind, and how long ago the workers may have been started."""


@dataclass
class Progress:
    """Counts over everything read so far."""

    total: int
    """Number of planned samples."""
    ended: set[str] = field(default_factory=set)
    in_flight: set[str] = field(default_factory=set)
    """Ids of the samples that began after this follower did and have not ended."""
    errors: int = 0
    steps: int = 0
    judged: int = 0
    """Number of steps that a verdict or the method decided about."""
    accepted: int = 0
    """Number of steps whose candidate was accepted."""
    tokens: dict[str, int] = field(default_factory=lambda: {"draft": 0, "target": 0})
    """Output tokens of all calls, by model."""
    tokens_per_second: dict[str, float] = field(default_factory=lambda: {"draft": 0.0, "target": 0.0})
    """Output tokens per second over the last minute, by model."""
    eta_seconds: float | None = None
    steps_before: int = 0
    """Number of steps that were there when this follower began."""
    to_time: int = 0
    """Samples that run again, one at a time, once all have ended."""
    timed: int = 0
    starting: dict[int, str] = field(default_factory=dict)
    """What the workers are at whose engines start, by the first shard of each."""

    @property
    def acceptance(self) -> float | None:
        """Share of judged steps that were accepted; None before the first decision."""
        return self.accepted / self.judged if self.judged else None


class Follower:
    """Reads what was added to the journals since it last read them."""

    def __init__(self, run: RunFolder) -> None:
        self._run, self._ids = run, run.ids()
        self._offsets: dict[Path, int] = {}
        self._history: deque[tuple[float, int, int]] = deque()
        self._started, self._since = time.monotonic(), time.time() - _CLOCK_SECONDS
        self.progress = Progress(total=run.units_by_shard().num_rows)
        for path in run.journals():
            self._read(path)
        self.progress.ended = set(read_endings(run, whole=False).finished.to_pylist())  # a failed sample may be retried
        self.progress.steps_before = self.progress.steps
        self._done_before = len(self.progress.ended)
        self.progress.in_flight.clear()  # their workers have ended

    def poll(self) -> Progress:
        """Read what is new and return the progress."""
        journals = self._run.journals()
        for path in journals:
            self._read(path)
        for path in set(self._offsets) - set(journals):  # its worker has ended and compacted it to a trace file
            self.progress.ended |= trace_files.finished_ids(self._run.trace_file_of(path))
            del self._offsets[path]
        if not journals:
            self.progress.ended |= set(read_endings(self._run, whole=False).finished.to_pylist())
        self.progress.in_flight -= self.progress.ended
        self.progress.starting = starting(self._run, self._since)
        self._update_rates(time.monotonic())
        if len(self.progress.ended) == self.progress.total:
            timing = timings.progress(self._run)
            self.progress.to_time, self.progress.timed = timing.asked, timing.done
        return self.progress

    def _read(self, path: Path) -> None:
        try:
            with path.open("rb") as lines:
                lines.seek(self._offsets.get(path, 0))
                for line in lines:
                    if not line.endswith(b"\n"):
                        break  # being written right now
                    self._offsets[path] = self._offsets.get(path, 0) + len(line)
                    self._count_event(line)
        except FileNotFoundError:
            return  # compacted since the listing; what it held was read before or is in its trace file

    def _count_event(self, line: bytes) -> None:
        with contextlib.suppress(ValueError, LookupError, TypeError, AttributeError):  # readers of the run name it
            self._count(orjson.loads(line))

    def _count(self, event: dict[str, Any]) -> None:
        for call in event.get("calls", ()):
            self.progress.tokens[call["model"]] += call["output_tokens"]
        if event["event"] == "start":
            self.progress.in_flight.add(event["trace"]["sample_id"])
        elif event["event"] == "step":
            self._count_step(event["step"])
        elif event["event"] == "end":
            self.progress.in_flight.discard(event["sample_id"])
            self.progress.ended.add(event["sample_id"])
            self.progress.errors += event["stop_reason"] == "error"

    def _count_step(self, step: StepRow) -> None:
        self.progress.steps += 1
        decided = step.get("decision") or step["verdict"]
        if decided is not None:
            self.progress.judged += 1
            self.progress.accepted += decided["accepted"]

    def _update_rates(self, now: float) -> None:
        progress = self.progress
        self._history.append((now, progress.tokens["draft"], progress.tokens["target"]))
        while len(self._history) > 2 and now - self._history[0][0] > _WINDOW_SECONDS:
            self._history.popleft()
        then, draft, target = self._history[0]
        elapsed = now - then
        if elapsed <= 0:
            return
        progress.tokens_per_second = {
            "draft": (progress.tokens["draft"] - draft) / elapsed,
            "target": (progress.tokens["target"] - target) / elapsed,
        }
        done = len(progress.ended) - self._done_before
        if done > 0:
            progress.eta_seconds = (progress.total - len(progress.ended)) * (now - self._started) / done


def logs_of(run: RunFolder, shard: int | str = "*") -> list[Path]:
    """Return the logs of the engines of the worker whose first shard this is, or of all workers."""
    return list(run.logs_dir.glob(f"shard-{shard}/*.log"))


def phase_of(engine_logs: Iterable[Path], since: float) -> str:
    """Return what a worker's starting engine is at; empty where none starts.

    Only logs count that were written after `since`, in seconds since the epoch.
    """
    from harness.engines.processes import start_phase

    written: list[tuple[float, str]] = []
    for log in engine_logs:
        try:
            modified_at = log.stat().st_mtime
        except FileNotFoundError:
            continue
        if modified_at >= since and (phase := start_phase(log)) is not None:
            written.append((modified_at, phase))
    return max(written)[1] if written else ""


def starting(run: RunFolder, since: float) -> dict[int, str]:
    """Return what the workers are at whose engines start, by the first shard of each; `since` as in `phase_of`."""
    by_shard: dict[int, list[Path]] = {}
    for log in sorted(logs_of(run)):
        by_shard.setdefault(int(log.parent.name.removeprefix("shard-")), []).append(log)
    phases = {shard: phase_of(of_worker, since) for shard, of_worker in sorted(by_shard.items())}
    return {shard: phase for shard, phase in phases.items() if phase}


def starting_in_words(phases: Mapping[int, str], *, are_all: bool = True) -> str:
    """Return phases as `target: loading weights (50 %)`, with the shards where workers differ.

    `are_all`: whether no other worker is at work already.
    """
    by_phase: dict[str, list[int]] = {}
    for shard, phase in phases.items():
        by_phase.setdefault(phase, []).append(shard)
    if len(by_phase) < 2 and are_all:
        return "".join(by_phase)
    return "; ".join(f"{phase} ({counted(len(shards), 'worker')})" for phase, shards in by_phase.items())


def progress_line(progress: Progress) -> str:
    """Format progress as `12/80 samples · draft 41 tok/s, target 9 tok/s · accepted 71% · ETA 3 min`.

    While engines start, it ends with what they are at.
    """
    rates = ", ".join(f"{model} {rate:,.0f} tok/s" for model, rate in progress.tokens_per_second.items() if rate)
    shown = [f"{len(progress.ended)}/{counted(progress.total, 'sample')}"]
    shown += [counted(progress.errors, "error")] if progress.errors else []
    if len(progress.ended) == progress.total:
        # The journal may have been removed before its last steps were read, so no count of steps would be right.
        shown += [f"timing {progress.timed} of {progress.to_time}, one at a time"] if progress.to_time else []
        return " · ".join(shown)
    shown += [counted(progress.steps, "step")]
    shown += [rates] if rates else []
    shown += [f"accepted {progress.acceptance:.0%}"] if progress.acceptance is not None else []
    shown += [f"ETA {duration(progress.eta_seconds)}"] if progress.eta_seconds is not None else []
    if progress.starting:
        are_all = not progress.in_flight and progress.steps == progress.steps_before
        shown.append(starting_in_words(progress.starting, are_all=are_all))
    elif progress.eta_seconds is None:
        shown.append(f"{len(progress.in_flight)} in flight" if progress.in_flight else "engines are starting")
    return " · ".join(shown)
