"""The journal: what a worker has done so far, append-only, as JSON lines, one file per worker attempt.

    {"event": "attempt", "format": 1, …}          the first line: the attempt that writes this file
    {"event": "start", "trace": {…}}              a sample begins; steps of an earlier attempt are carried over
    {"event": "step", "sample_id", "step", "num_steps", "calls"}
                                                an accepted step with the calls since the step before
    {"event": "end", "sample_id", "num_steps", "calls", "stop_reason", "error", "latency_seconds", "num_attempts"}

A line is written to the operating system before the next step begins, so a killed process loses at most the step in
flight; the disk is synced once a second, so a machine that dies loses at most one second more. A torn last line is
normal and skipped. After a lost line the count of steps no longer matches, and the sample's later lines are ignored.
Because earlier steps are carried over, every finished sample is complete in the journal that holds its end.
A log-probability of -inf, which JSON cannot hold, is written as null and read back as -inf.

Every line ends with its checksum (`crc32`, jobs.run.digest). A line that does not match it, or that is no event, is
skipped and named. A journal of another format is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import orjson
from pydantic import TypeAdapter, ValidationError

from harness.trace import Call, Step, StopReason, Trace
from jobs.run.digest import (
    CHECKSUM_KEY,
    FORMAT_KEY,
    WrongFormat,
    check_format,
    has_right_checksum,
    is_longer_than_its_checksum,
    say_once,
)
from jobs.run.spec import AttemptRow

_NOT_OF_ATTEMPT = frozenset({"event", FORMAT_KEY, CHECKSUM_KEY.decode()})
"""Fields of the first line that are not the attempt's."""
NO_EVENT = (ValueError, LookupError, TypeError, AttributeError)
"""What a line raises that is no event."""


@dataclass(frozen=True, slots=True)
class _End:
    """The end of a sample, as a line has it."""

    sample_id: str
    num_steps: int
    calls: list[Call]
    stop_reason: StopReason
    error: str | None
    latency_seconds: float
    num_attempts: int


_TRACE = TypeAdapter(Trace)
_STEP = TypeAdapter(Step)
_CALLS = TypeAdapter(list[Call])
_END = TypeAdapter(_End)


@dataclass
class Journal:
    """The content of one journal."""

    attempt: AttemptRow | None = None
    finished: dict[str, Trace] = field(default_factory=dict)
    """Finished samples by sample id, in the order in which they ended."""
    unfinished: dict[str, Trace] = field(default_factory=dict)
    """Interrupted samples by sample id, up to their last accepted step."""
    bad_lines: int = 0
    """Number of lines that could not be read, without a torn last line."""
    ignored_lines: int = 0
    """Number of lines that followed a lost one of the same sample."""
    problem: str = ""
    """What is wrong with the first of these lines."""


def read_journal(path: Path) -> Journal:
    """Read a journal, whatever its writer left of it; what cannot be used is named. Raises WrongFormat."""
    with path.open("rb") as lines:
        return parse_journal(path, lines)


def parse_journal(path: Path, lines: Iterable[bytes]) -> Journal:
    """Read the lines of a journal. Raises WrongFormat."""
    journal, number = Journal(), 0
    for number, line in enumerate(lines, 1):
        try:
            apply(journal, _event(path, journal, line), number)
        except WrongFormat:
            raise
        except NO_EVENT as error:
            if _is_torn(line):
                continue
            journal.bad_lines += 1
            journal.problem = journal.problem or f"line {number}: {_reason(error)}"
    if lost := journal.bad_lines + journal.ignored_lines:
        lines_lost = f"{lost} of its {number} lines cannot be used ({journal.problem})"
        say_once(f"{path} is damaged: {lines_lost}; what they held is run again")
    return journal


def owner_of(path: Path, attempt: AttemptRow | None) -> str:
    """Return what the checksums of a journal's lines begin with: its attempt, which is also its name."""
    return str((attempt or {}).get("attempt_id", path.stem))


def attempt_in(path: Path, first_line: bytes) -> AttemptRow | None:
    """Return the attempt in the first line of a journal; None where it cannot be read. Raises WrongFormat."""
    journal = Journal()
    try:
        apply(journal, _event(path, journal, first_line))
    except WrongFormat:
        raise
    except NO_EVENT:
        return None
    return journal.attempt


def apply(journal: Journal, event: dict[str, Any], number: int = 0) -> None:
    """Add one event to a journal's content; `number` is that of its line.

    Raises ValueError, LookupError or TypeError where it is not an event, and adds nothing then.
    """
    kind = event["event"]
    if kind == "attempt":
        journal.attempt = cast(AttemptRow, {k: v for k, v in event.items() if k not in _NOT_OF_ATTEMPT})
    elif kind == "start":
        trace = trace_from_dict(event["trace"])
        journal.unfinished[trace.sample_id] = trace
    elif kind == "step":
        _apply_step(journal, event, number)
    elif kind == "end":
        _apply_end(journal, _END.validate_python(event), number)
    else:
        raise ValueError("not an event")


def _apply_step(journal: Journal, event: dict[str, Any], number: int) -> None:
    step, calls = _STEP.validate_python(event["step"]), _CALLS.validate_python(event["calls"])
    trace = journal.unfinished.get(event["sample_id"])
    if trace is None or event["num_steps"] != len(trace.steps) + 1:
        _ignore(journal, number)
        return
    trace.calls += calls
    trace.steps.append(step)


def _apply_end(journal: Journal, end: _End, number: int) -> None:
    trace = journal.unfinished.get(end.sample_id)
    if trace is None or end.num_steps != len(trace.steps):
        _ignore(journal, number)
        return
    trace.calls += end.calls
    trace.stop_reason, trace.error = end.stop_reason, end.error
    trace.latency_seconds, trace.num_attempts = end.latency_seconds, end.num_attempts
    journal.finished[trace.sample_id] = journal.unfinished.pop(trace.sample_id)


def _ignore(journal: Journal, number: int) -> None:
    journal.ignored_lines += 1
    journal.problem = journal.problem or f"line {number}: a line before it is missing"


def _event(path: Path, journal: Journal, line: bytes) -> dict[str, Any]:
    """Return the event in a line. Raises WrongFormat, and ValueError where the line cannot be used."""
    owner = owner_of(path, journal.attempt)
    if journal.attempt is None and line.startswith(b'{"event":"attempt"'):
        owner = owner_of(path, orjson.loads(line))
    if not has_right_checksum(line, owner):
        raise ValueError("it does not match its checksum")
    event = orjson.loads(line)
    if not isinstance(event, dict) or "event" not in event:
        raise ValueError("not an event")
    if event["event"] == "attempt":
        check_format(path, event.get(FORMAT_KEY))
    return event


def _is_torn(line: bytes) -> bool:
    """True for a line that its writer was writing when it ended: one that can still become a whole line."""
    return not line.endswith(b"\n") and not is_longer_than_its_checksum(line)


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    if isinstance(error, orjson.JSONDecodeError):
        return "not JSON"
    return f"no {error}" if isinstance(error, KeyError) else next(iter(str(error).splitlines()), type(error).__name__)


def trace_from_dict(record: dict[str, Any]) -> Trace:
    """Build a trace from its JSON object; raises ValueError where a field is missing, unknown or of another type."""
    return _TRACE.validate_python(record)
