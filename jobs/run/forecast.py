"""What the rest of a run is likely to take, and what tells it where the run has begun: the time of its own attempts.

An attempt counts from the start of the engines that it waited for to the end of its last call, as the report counts
device-hours.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from harness.cli.messages import counted
from jobs.run import own_files, trace_files
from jobs.run.folder import RunFolder
from jobs.run.journal import attempt_in
from jobs.run.spec import AttemptRow
from jobs.timing import folder as timings

_CALL = ("calls.list.element.submitted_at", "calls.list.element.end_seconds")
_TIMES = re.compile(rb'"submitted_at":([\d.e+-]+),[^{}]*?"end_seconds":([\d.e+-]+)')
_TAIL_BYTES = 64 << 10
"""How much of a journal's end is read. Its last calls stand there, unless a single line is longer."""
_NO_GPU = frozenset({"cpu", "unknown server", "cpu and unknown server"})


@dataclass(frozen=True, slots=True)
class Forecast:
    """What the rest of a run is likely to take."""

    worker_hours: float
    low: float
    """The ends of the range, in hours of the same unit as `hours`."""
    high: float
    num_gpus: int
    """GPUs that a worker holds; 0 where it has none."""
    source: str
    """What it is estimated from."""
    not_timed: int = 0
    """Samples to be timed again, one at a time, that it is without because nothing tells of them."""

    @property
    def has_gpu(self) -> bool:
        """Whether GPU-hours are meant, and not hours of workers."""
        return self.num_gpus > 0

    @property
    def hours(self) -> float:
        """GPU-hours, or hours of workers where these have no GPU."""
        return self.worker_hours * max(1, self.num_gpus)

    @property
    def gpu_hours(self) -> float:
        """GPU-hours; 0 where workers have no GPU."""
        return self.worker_hours * self.num_gpus


@dataclass(frozen=True, slots=True)
class _Attempt:
    """The time of one worker's attempt."""

    ended_at: float
    device_hours: float
    """Devices times hours, with the start of the engines."""
    has_gpu: bool


def so_far(run: RunFolder, num_finished: int, num_left: int) -> Forecast | None:
    """Return what the rest of a run takes if it goes on as it began; None where its attempts have recorded no time."""
    attempts = _attempts(run)
    device_hours = sum(attempt.device_hours for attempt in attempts)
    if not device_hours:
        return None
    left = device_hours / num_finished * num_left
    has_gpu = any(attempt.has_gpu for attempt in attempts)
    return Forecast(
        left, left, left, int(has_gpu), f"history: the {counted(num_finished, 'finished sample')} of this run"
    )


def _attempts(run: RunFolder) -> list[_Attempt]:
    """Return the attempts of a run. Files that are damaged or of another run count for nothing."""
    ids = own_files.run_ids(run)
    found: dict[str, _Attempt] = {}
    folders = run, timings.of(run)
    for path in [file for folder in folders for file in (*folder.trace_files(), *folder.journals())]:
        try:
            attempt = (_of_journal if path.suffix == ".jsonl" else _of_trace_file)(path, ids)
        except FileNotFoundError:  # compacted since the listing
            continue
        if attempt is not None:
            before = found.get(path.stem)
            found[path.stem] = attempt if before is None or attempt.ended_at > before.ended_at else before
    return list(found.values())


def _of_record(attempt: AttemptRow, ended_at: float) -> _Attempt:
    """Return the time of an attempt by its record, as a journal and a trace file hold it. Raises ValueError."""
    try:
        started_at, engines = float(attempt["started_at"]), attempt.get("engines") or {}
        startup = float(engines.get("startup_seconds") or 0.0)
        devices = max(1, int(attempt.get("num_devices") or 1))
    except (TypeError, LookupError, AttributeError) as error:
        raise ValueError(f"no attempt: {error}") from error
    ended_at = max(started_at, ended_at)
    hours = devices * (startup + max(0.0, ended_at - started_at)) / 3600
    return _Attempt(ended_at, hours, attempt.get("device") not in _NO_GPU)


def _of_journal(path: Path, ids: frozenset[str]) -> _Attempt | None:
    with path.open("rb") as file:
        first = file.readline()
        file.seek(max(len(first), path.stat().st_size - _TAIL_BYTES))
        tail = file.read()
    try:
        attempt = attempt_in(path, first)
        if attempt is None or not own_files.is_own_journal(path, attempt, ids):
            return None
        ends = (float(submitted) + float(seconds) for submitted, seconds in _TIMES.findall(tail))
        return _of_record(attempt, max(ends, default=0.0))
    except ValueError:
        return None


def _of_trace_file(path: Path, ids: frozenset[str]) -> _Attempt | None:
    try:
        with trace_files.opened(path, whole=False) as file:
            metadata = trace_files.metadata_of(file)
            own_files.check_owner(path, metadata, ids)
            calls = trace_files.columns_of(file, _CALL)["calls"].combine_chunks()
            return _of_record(own_files.attempt_of(path, metadata), _last_end(calls))
    except FileNotFoundError:
        raise
    except (*trace_files.DAMAGED, ValueError):
        return None


def _last_end(calls: pa.ListArray) -> float:
    of_calls = calls.flatten()
    ends = pc.add(of_calls.field("submitted_at"), of_calls.field("end_seconds"))
    return float(pc.max(ends).as_py() or 0.0)
