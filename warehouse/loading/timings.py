"""Timing samples of a run on their way into the warehouse: a few hundred at most, so they go through Python.

They are matched with the run's samples by their ids (jobs.timing). Those of no planned sample are left out, and of
several records of one the first counts that did not end in an error, as for samples (jobs.run.trace_files). The final
answer of a chain has its tokens and its time by the rule that insert_totals.sql has for `sample_answer`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from harness.weights.templates import CLOSE
from jobs.run import trace_files
from jobs.run.trace_files import FAILED
from jobs.timing.folder import timing_id
from warehouse.loading.convert import Row, utc

_WHITE = " \n\t\r"


def answer_of(record: Mapping[str, Any], attempt: Mapping[str, Any]) -> tuple[float, float]:
    """Return the tokens and the seconds of a chain's final answer, 0 where it has none.

    `record` is a row of a trace file, `attempt` the record of the attempt that wrote it.
    """
    steps: Sequence[Mapping[str, Any]] = record["steps"] or ()
    thought = [index for index, step in enumerate(steps) if CLOSE in step["text"]]
    tokens, seconds = 0.0, 0.0
    for index, step in enumerate(steps):
        if (thought and index >= thought[-1]) or (not thought and step["role"] == "answer"):
            share = _share(step, attempt) if thought and index == thought[-1] else None
            tokens += step["num_tokens"] * (1.0 if share is None else share)
            seconds += sum(_seconds(call, step, share) for call in record["calls"] or () if call["step"] == index)
    return tokens, seconds


def _share(step: Mapping[str, Any], attempt: Mapping[str, Any]) -> float:
    """Return how much of the step that ends the thought is behind its end."""
    behind = len(step["text"].rpartition(CLOSE)[2].strip(_WHITE))
    if not behind:
        return 0.0
    end = ((attempt.get("engines") or {}).get(step["author"]) or {}).get("think_end_id")
    ids = list(reversed(step["token_ids"] or ()))
    if end is not None and end in ids and step["num_tokens"]:
        return min(1.0, float(ids.index(end) / step["num_tokens"]))
    return min(1.0, behind / len(step["text"]))


def _seconds(call: Mapping[str, Any], step: Mapping[str, Any], share: float | None) -> float:
    """Return the time of a call that is the answer's; `share` of what was written, or all of the call for None."""
    if call["purpose"] == "lookahead":
        return 0.0
    waited = float(call["end_seconds"] - (call["overlapped_seconds"] or 0.0))
    if share is None:
        return waited
    if call["model"] != step["author"] or call["purpose"] == "verdict":
        return 0.0
    return share * min(float(call["end_seconds"] - call["first_token_seconds"]), waited)


_CALL_COLUMNS = (
    "purpose", "model", "n", "prompt_tokens", "cached_tokens", "output_tokens", "longest_output_tokens",
    "queued_seconds", "first_token_seconds", "end_seconds",
)  # fmt: skip


class StagedTimings:
    """The rows of a run's timing samples, file by file, in the order of their names."""

    def __init__(self, units: pa.Table) -> None:
        """`units`: the plan, with the columns of jobs.run.trace_files.SHARDS."""
        self._units = units
        self._draw: list[Row] = []
        self._samples: dict[str, Row] = {}
        self._calls: dict[str, list[Row]] = {}

    @cached_property
    def _planned(self) -> dict[str, Row]:
        """The planned samples, by the id of the timing sample that repeats each."""
        columns = self._units.select(["sample_id", "problem_id", "sample_index"]).to_pylist()
        return {timing_id(row["sample_id"]): row for row in columns}

    def add(self, path: Path) -> int:
        """Read a file; returns the number of its rows. Raises FileDamaged, OSError and ValueError."""
        if path.parent.name == "derived":
            rows = trace_files.read_rows(path, trace_files.TIMING_DRAW.names)
            self._draw = [row for row in rows if timing_id(row["sample_id"]) in self._planned]
            return len(rows)
        attempt = trace_files.attempt_of(path, trace_files.read_metadata(path))
        rows = trace_files.read_rows(path)
        for row in rows:
            self._add_record(path.stem, attempt, row)
        return len(rows)

    def rows(self, run_id: str) -> dict[str, list[Row]]:
        """Return the rows by table."""
        calls = [call for of_sample in self._calls.values() for call in of_sample]
        found = {"timing_draw": self._draw, "timing_sample": list(self._samples.values()), "timing_call": calls}
        return {name: [row | {"run_id": run_id} for row in of_table] for name, of_table in found.items()}

    def _add_record(self, attempt_id: str, attempt: Mapping[str, Any], record: Mapping[str, Any]) -> None:
        unit = self._planned.get(record["sample_id"])
        if unit is None or record["stop_reason"] is None:
            return
        sample_id = str(unit["sample_id"])
        before = self._samples.get(sample_id)
        if before is not None and (before["stop_reason"] != FAILED or record["stop_reason"] == FAILED):
            return
        self._samples[sample_id] = unit | {
            "attempt_id": attempt_id,
            "hostname": attempt.get("hostname"),
            "device": attempt.get("device"),
            "started_at": utc(record["started_at"]) if record["started_at"] else None,
            "emitted_tokens": sum(step["num_tokens"] for step in record["steps"] or ()),
            **dict(zip(("answer_tokens", "answer_seconds"), answer_of(record, attempt), strict=True)),
            **{name: record[name] for name in ("seed", "stop_reason", "error", "latency_seconds", "num_attempts")},
        }
        self._calls[sample_id] = [
            {name: call[name] for name in _CALL_COLUMNS}
            | {
                "sample_id": sample_id,
                "call_index": index,
                "step_index": call["step"],
                "overlapped_seconds": call["overlapped_seconds"] or 0.0,
                "unread_prompt_tokens": 0,
            }
            for index, call in enumerate(record["calls"] or ())
        ]
