"""The machine time that a run has used, by its recorded attempts: the devices of each, for as long as it worked.

An attempt counts from the start of the engines that it waited for to the end of its last call, as the report counts
device-hours. A worker whose run has a budget adds a record of each attempt at its end (jobs.run.budget), because an
attempt that finished no sample leaves no trace file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from jobs.run import own_files, trace_files
from jobs.run.digest import FileTooNew
from jobs.run.folder import RunFolder
from jobs.run.journal import attempt_in
from jobs.timing import folder as timings

_CALL = ("calls.list.element.submitted_at", "calls.list.element.end_seconds")
_TIMES = re.compile(rb'"submitted_at":([\d.e+-]+),[^{}]*?"end_seconds":([\d.e+-]+)')
_TAIL_BYTES = 64 << 10
"""How much of a journal's end is read. Its last calls stand there, unless a single line is longer."""
_NO_GPU = frozenset({"cpu", "unknown server", "cpu and unknown server"})


@dataclass(frozen=True, slots=True)
class AttemptTime:
    """What one worker's attempt has used."""

    started_at: float
    """UTC, seconds since the epoch; its engines were up by then."""
    ended_at: float
    """The end of its last call, and `started_at` before there is one."""
    startup_seconds: float
    num_devices: int
    """Never below 1."""
    has_gpu: bool

    @property
    def device_hours(self) -> float:
        """Devices times hours, with the start of the engines."""
        return self.num_devices * (self.startup_seconds + max(0.0, self.ended_at - self.started_at)) / 3600


def of_record(attempt: Mapping[str, Any], ended_at: float) -> AttemptTime:
    """Return the time of an attempt by its record, as a journal and a trace file hold it. Raises ValueError."""
    try:
        started_at, engines = float(attempt["started_at"]), attempt.get("engines") or {}
        startup = float(engines.get("startup_seconds") or 0.0)
        devices = max(1, int(attempt.get("num_devices") or 1))
    except (TypeError, LookupError, AttributeError) as error:
        raise ValueError(f"no attempt: {error}") from error
    has_gpu = attempt.get("device") not in _NO_GPU
    return AttemptTime(started_at, max(started_at, ended_at), startup, devices, has_gpu)


class DeviceTimes:
    """The attempts of a run, read again and again: a file is read again only when it has changed."""

    def __init__(self, run: RunFolder) -> None:
        """Nothing is read yet."""
        self.run = run
        self._ids = frozenset[str]()
        self._known: dict[Path, tuple[int, AttemptTime | None]] = {}

    def read(self) -> dict[str, AttemptTime]:
        """Return the attempts by id. Files that are damaged or of another run count for nothing."""
        if not self.run.exists():
            return {}
        self._ids = self._ids or own_files.run_ids(self.run)
        found: dict[str, AttemptTime] = {}
        folders = self.run, timings.of(self.run)
        for path in [file for folder in folders for file in (*folder.trace_files(), *folder.journals())]:
            time = self._of_file(path)
            if time is not None:
                before = found.get(path.stem)
                found[path.stem] = time if before is None or time.ended_at > before.ended_at else before
        return found

    def _of_file(self, path: Path) -> AttemptTime | None:
        try:
            size = path.stat().st_size
            if path not in self._known or self._known[path][0] != size:
                read = _of_journal if path.suffix == ".jsonl" else _of_trace_file
                self._known[path] = size, read(path, self._ids)
        except FileNotFoundError:  # compacted since the listing
            return None
        return self._known[path][1]


def _of_journal(path: Path, ids: frozenset[str]) -> AttemptTime | None:
    with path.open("rb") as file:
        first = file.readline()
        file.seek(max(len(first), path.stat().st_size - _TAIL_BYTES))
        tail = file.read()
    try:
        attempt = attempt_in(path, first)
        if attempt is None or not own_files.is_own_journal(path, attempt, ids):
            return None
        ends = (float(submitted) + float(seconds) for submitted, seconds in _TIMES.findall(tail))
        return of_record(attempt, max(ends, default=0.0))
    except (FileTooNew, ValueError):
        return None


def _of_trace_file(path: Path, ids: frozenset[str]) -> AttemptTime | None:
    try:
        with trace_files.opened(path, whole=False) as file:
            metadata = trace_files.metadata_of(file)
            own_files.check_owner(path, metadata, ids)
            calls = trace_files.columns_of(file, _CALL)["calls"].combine_chunks()
            return of_record(own_files.attempt_of(path, metadata), _last_end(calls))
    except FileNotFoundError:
        raise
    except (*trace_files.DAMAGED, FileTooNew, ValueError):
        return None


def _last_end(calls: pa.ListArray) -> float:
    of_calls = calls.flatten()
    ends = pc.add(of_calls.field("submitted_at"), of_calls.field("end_seconds"))
    return float(pc.max(ends).as_py() or 0.0)
