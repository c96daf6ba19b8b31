"""The journal: what a worker has done so far, append-only, as JSON lines, one file per worker attempt.

    {"event": "attempt", …}                       the first line: the attempt that writes this file
    {"event": "start", "trace": {…}}              a sample begins; steps of an earlier attempt are carried over
    {"event": "step", "sample_id", "step", "num_steps", "calls"}
                                                an accepted step with the calls since the step before
    {"event": "end", "sample_id", "num_steps", "calls", "stop_reason", "error", "latency_seconds", "num_attempts"}

A line is written to the operating system before the next step begins, so a killed process loses at most the step in
flight; the disk is synced once a second, so a machine that dies loses at most one second more. A torn last line is
normal and skipped. After a lost line the count of steps no longer matches, and the sample's later lines are ignored.
Because earlier steps are carried over, every finished sample is complete in the journal that holds its end.
A log-probability of -inf, which JSON cannot hold, is written as null and read back as -inf.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson
from pydantic import TypeAdapter

from harness.trace import Call, Step, Trace
from jobs.run.files import opened
from jobs.run.spec import Attempt

_SYNC_SECONDS = 1.0
_TRACE = TypeAdapter(Trace)
_STEP = TypeAdapter(Step)
_CALLS = TypeAdapter(list[Call])


class JournalWriter:
    """Appends the events of one attempt. Raises FileExistsError where another attempt has the same name."""

    def __init__(self, path: Path, attempt: Attempt) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._handle = opened(path, os.O_APPEND | os.O_EXCL)
        self._written_calls: dict[str, int] = {}
        self._failure: OSError | None = None
        self._dirty = threading.Event()
        self._closed = threading.Event()
        self._syncer = threading.Thread(target=self._sync, name="journal-sync", daemon=True)
        self._syncer.start()
        self._append({"event": "attempt", **asdict(attempt)})

    def start(self, trace: Trace) -> None:
        """Record that a sample begins, with the steps that it already has."""
        self._written_calls[trace.sample_id] = len(trace.calls)
        self._append({"event": "start", "trace": trace})

    def step(self, trace: Trace, step: Step) -> None:
        """Record an accepted step, with the calls since the step before."""
        self._append(
            {
                "event": "step",
                "sample_id": trace.sample_id,
                "step": step,
                "num_steps": len(trace.steps),
                "calls": self._new_calls(trace),
            }
        )

    def end(self, trace: Trace) -> None:
        """Record that a sample ended."""
        self._append(
            {
                "event": "end",
                "sample_id": trace.sample_id,
                "num_steps": len(trace.steps),
                "calls": self._new_calls(trace),
                "stop_reason": trace.stop_reason,
                "error": trace.error,
                "latency_seconds": trace.latency_seconds,
                "num_attempts": trace.num_attempts,
            }
        )
        del self._written_calls[trace.sample_id]

    def close(self) -> None:
        """Sync and close the file; may be called twice."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._dirty.set()
        self._syncer.join()
        try:
            os.fsync(self._handle)
        finally:
            os.close(self._handle)

    def _new_calls(self, trace: Trace) -> list[Call]:
        num_written = self._written_calls[trace.sample_id]
        self._written_calls[trace.sample_id] = len(trace.calls)
        return trace.calls[num_written:]

    def _append(self, event: dict[str, Any]) -> None:
        if self._failure is not None:  # nothing may be written after a torn line
            raise OSError(f"{self.path}: an earlier write failed: {self._failure}")
        line = orjson.dumps(event, option=orjson.OPT_APPEND_NEWLINE)
        try:
            written = os.write(self._handle, line)
            if written != len(line):  # a full disk writes part of a line
                raise OSError(f"{self.path}: wrote {written} of {len(line)} bytes; is the disk full?")
        except OSError as failure:
            self._failure = failure
            raise
        self._dirty.set()

    def _sync(self) -> None:
        while not self._closed.is_set():
            self._dirty.wait()
            self._dirty.clear()
            if not self._closed.is_set():
                try:
                    os.fsync(self._handle)
                except OSError as failure:  # the system reports it once; the next write reports it to the worker
                    self._failure = failure
                    return
                self._closed.wait(_SYNC_SECONDS)


@dataclass
class Journal:
    """The content of one journal."""

    attempt: dict[str, Any] | None = None
    finished: dict[str, Trace] = field(default_factory=dict)
    """Finished samples by sample id, in the order in which they ended."""
    unfinished: dict[str, Trace] = field(default_factory=dict)
    """Interrupted samples by sample id, up to their last accepted step."""
    bad_lines: int = 0
    """Number of lines that could not be read, without a torn last line."""


def read_journal(path: Path) -> Journal:
    """Read a journal, whatever its writer left of it."""
    journal = Journal()
    for event in events(path, journal):
        apply(journal, event)
    return journal


def apply(journal: Journal, event: dict[str, Any]) -> None:
    """Add one event to a journal's content."""
    kind = event["event"]
    if kind == "attempt":
        journal.attempt = {k: v for k, v in event.items() if k != "event"}
    elif kind == "start":
        trace = trace_from_dict(event["trace"])
        journal.unfinished[trace.sample_id] = trace
    elif event["sample_id"] in journal.unfinished:
        trace = journal.unfinished[event["sample_id"]]
        if event["num_steps"] != len(trace.steps) + (kind == "step"):
            return  # a line before this one was lost
        trace.calls += _CALLS.validate_python(event["calls"])
        if kind == "step":
            trace.steps.append(_STEP.validate_python(event["step"]))
        else:
            trace.num_attempts = event["num_attempts"]
            trace.stop_reason, trace.error = event["stop_reason"], event["error"]
            trace.latency_seconds = event["latency_seconds"]
            journal.finished[trace.sample_id] = journal.unfinished.pop(trace.sample_id)


def events(path: Path, journal: Journal) -> Iterator[dict[str, Any]]:
    """Yield the readable lines of a journal as events, and count the others in `journal.bad_lines`."""
    with path.open("rb") as lines:
        for line in lines:
            try:
                event = orjson.loads(line)
            except orjson.JSONDecodeError:
                journal.bad_lines += line.endswith(b"\n")
                continue
            yield event


def trace_from_dict(record: dict[str, Any]) -> Trace:
    """Build a trace from its JSON object; raises ValueError where a field is missing, unknown or of another type."""
    return _TRACE.validate_python(record)
