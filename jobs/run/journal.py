"""The journal: an append-only record of a worker's progress as JSON lines, one file per attempt.

    {"event": "attempt", "format": 3, …}          the first line: the attempt that writes this file
    {"event": "start", "trace": {…}}              a sample begins; steps of an earlier attempt are carried over
    {"event": "step", "sample_id", "step", "num_steps", "calls"}
                                                an accepted step with the calls since the previous step
    {"event": "end", "sample_id", "num_steps", "calls", "stop_reason", "error", "latency_seconds", "num_attempts"}

A line is written to the operating system before the next step begins, so a killed process loses at most the step in
flight. The disk is synced once a second, so a machine that dies loses at most one second more. An incomplete last line
is normal and skipped. After a lost line the step count no longer matches, and later lines of that sample are ignored.
Because steps of earlier attempts are carried over, the journal with the end of a sample contains the whole sample.
A log-probability of -inf, which JSON does not support, is written as null and read back as -inf.

Every line ends with its checksum (`crc32`, jobs.run.files). Lines with a wrong checksum or without an event are skipped
with a warning. Journals of another format are rejected.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

import orjson
from pydantic import TypeAdapter

from harness.trace import Call, Step, StopReason, Trace
from jobs.run.files import (
    CHECKSUM_KEY,
    FORMAT,
    FORMAT_KEY,
    WrongFormat,
    check_format,
    has_right_checksum,
    is_torn,
    opened,
    reading,
    say_once,
    with_checksum,
)
from jobs.run.spec import Attempt, AttemptRow

_NOT_OF_ATTEMPT = frozenset({"event", FORMAT_KEY, CHECKSUM_KEY.decode()})
"""Fields of the first line that do not belong to the attempt."""
_OF_THE_END = ("stop_reason", "error", "latency_seconds", "num_attempts")
"""Fields of a sample that are recorded at its end."""
NO_EVENT = (ValueError, LookupError, TypeError, AttributeError)
"""Errors raised by a line that is not a valid event."""


@dataclass(frozen=True, slots=True)
class _End:
    """The `end` event of a sample."""

    sample_id: str
    num_steps: int
    calls: list[Call]
    stop_reason: StopReason
    error: str | None
    latency_seconds: float
    num_attempts: int


TRACE = TypeAdapter(Trace)
"""Builds a trace from its JSON object; raises ValueError for missing, unknown or mistyped fields."""
_STEP = TypeAdapter(Step)
_CALLS = TypeAdapter(list[Call])
_END = TypeAdapter(_End)


@dataclass
class Journal:
    """The content of one journal."""

    attempt: AttemptRow | None = None
    finished: dict[str, Trace] = field(default_factory=dict)
    """Finished samples by id, in the order in which they ended."""
    unfinished: dict[str, Trace] = field(default_factory=dict)
    """Interrupted samples by id, up to their last accepted step."""
    lost_lines: list[int] = field(default_factory=list)
    """Numbers of unusable lines. A line is also unusable if an earlier line of its sample was lost. An incomplete last
    line is not listed."""


def read_journal(path: Path) -> Journal:
    """Read a journal; unusable lines are reported. Raises WrongFormat."""
    with reading(path) as lines:
        return parse_journal(path, lines)


def parse_journal(path: Path, lines: Iterable[bytes]) -> Journal:
    """Parse the lines of a journal. Raises WrongFormat."""
    journal, number = Journal(), 0
    for number, line in enumerate(lines, 1):
        try:
            add_line(path, journal, line, number)
        except WrongFormat:
            raise
        except NO_EVENT:
            journal.lost_lines += [] if is_torn(line) else [number]
    if lost := journal.lost_lines:
        lines_lost = f"{len(lost)} of its {number} lines are unusable, starting at line {lost[0]}"
        say_once(f"{path} is damaged: {lines_lost}; the lost steps will be run again")
    return journal


def owner_of(path: Path, attempt: AttemptRow | None) -> str:
    """Return the id that the checksums in a journal cover: its attempt's id, which is also the journal's name."""
    return str((attempt or {}).get("attempt_id", path.stem))


def attempt_in(path: Path, first_line: bytes) -> AttemptRow | None:
    """Return the attempt in the first line of a journal; None if unreadable. Raises WrongFormat."""
    journal = Journal()
    try:
        add_line(path, journal, first_line)
    except WrongFormat:
        raise
    except NO_EVENT:
        return None
    return journal.attempt


def is_own_journal(path: Path, attempt: AttemptRow | None, ids: frozenset[str]) -> bool:
    """Return whether a journal belongs to the run; warns if it belongs to another run or is a copy."""
    of_run, original = ((attempt or {}).get(key) for key in ("run_id", "attempt_id"))
    if ids and of_run and of_run not in ids:
        say_once(f"{path} is a journal of another run, {of_run}, and is ignored; move it to that run")
        return False
    if isinstance(original, str) and original != path.stem:
        trace_file = path.parents[1] / "traces" / f"{original}.parquet"
        if path.with_name(f"{original}.jsonl").exists() or trace_file.exists():
            say_once(f"{path} is a copy of the journal {original} and is ignored; remove it")
            return False
    return True


def add_line(path: Path, journal: Journal, line: bytes, number: int = 1) -> None:
    """Add the event in a line to a journal's content; `number` is the line number.

    Raises WrongFormat, or a NO_EVENT exception if the line is unusable; then nothing is added.
    """
    owner = owner_of(path, journal.attempt)
    if journal.attempt is None and line.startswith(b'{"event":"attempt"'):
        owner = owner_of(path, orjson.loads(line))
    if not has_right_checksum(line, owner):
        raise ValueError("it does not match its checksum")
    event = orjson.loads(line)
    kind = event["event"]
    if kind == "attempt":
        check_format(path, event.get(FORMAT_KEY))
        journal.attempt = cast(AttemptRow, {k: v for k, v in event.items() if k not in _NOT_OF_ATTEMPT})
    elif kind == "start":
        trace = TRACE.validate_python(event["trace"])
        journal.unfinished[trace.sample_id] = trace
    elif kind in ("step", "end"):
        _go_on(journal, event, number)
    else:
        raise ValueError("not an event")


def _go_on(journal: Journal, event: dict[str, Any], number: int) -> None:
    """Add a step or the end of a sample unless an earlier line of that sample is missing."""
    end = _END.validate_python(event) if event["event"] == "end" else None
    step = None if end else _STEP.validate_python(event["step"])
    calls = end.calls if end else _CALLS.validate_python(event["calls"])
    trace = journal.unfinished.get(event["sample_id"])
    if trace is None or event["num_steps"] != len(trace.steps) + (step is not None):
        journal.lost_lines.append(number)
        return
    trace.calls += calls
    if step:
        trace.steps.append(step)
    if end:
        for name in _OF_THE_END:
            setattr(trace, name, getattr(end, name))
        journal.finished[trace.sample_id] = journal.unfinished.pop(trace.sample_id)


_SYNC_SECONDS = 1.0


class JournalWriter:
    """Writer for the events of one attempt. Raises FileExistsError if another attempt has the same name."""

    def __init__(self, path: Path, attempt: Attempt) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._handle = opened(path, os.O_APPEND | os.O_EXCL)
        self._owner = attempt.attempt_id
        self._written_calls: dict[str, int] = {}
        self._failure: OSError | None = None
        self._dirty = threading.Event()
        self._closed = threading.Event()
        self._syncer = threading.Thread(target=self._sync, name="journal-sync", daemon=True)
        self._syncer.start()
        self._append({"event": "attempt", FORMAT_KEY: FORMAT, **asdict(attempt)})

    def start(self, trace: Trace) -> None:
        """Record that a sample begins, with its existing steps."""
        self._written_calls[trace.sample_id] = len(trace.calls)
        self._append({"event": "start", "trace": trace})

    def step(self, trace: Trace, step: Step) -> None:
        """Record an accepted step with the calls since the previous one."""
        self._go_on("step", trace, step=step)

    def end(self, trace: Trace) -> None:
        """Record that a sample ended."""
        self._go_on("end", trace, **{name: getattr(trace, name) for name in _OF_THE_END})
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

    def _go_on(self, event: str, trace: Trace, **fields: Any) -> None:
        new_calls = trace.calls[self._written_calls[trace.sample_id] :]
        self._written_calls[trace.sample_id] = len(trace.calls)
        progress = {"sample_id": trace.sample_id, "num_steps": len(trace.steps), "calls": new_calls}
        self._append({"event": event, **progress, **fields})

    def _append(self, event: dict[str, Any]) -> None:
        if self._failure is not None:  # nothing may be written after a torn line
            raise OSError(f"an earlier write failed: {self._failure}")
        line = with_checksum(orjson.dumps(event), self._owner)
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
                except OSError as failure:
                    # The system reports the error only once; the next write raises it in the worker.
                    self._failure = failure
                    return
                self._closed.wait(_SYNC_SECONDS)
