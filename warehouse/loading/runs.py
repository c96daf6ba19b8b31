"""The warehouse brought up to date with run folders, as `python -m warehouse.load` does.

Loading is idempotent. A run whose files still have the fingerprints of the last load is left alone; any other run is
replaced as a whole in one transaction, so a loader that is killed leaves the old state. A sample with several records
counts once (jobs.run.trace_files). Runs that are still running may be loaded any number of times.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from jobs.run.folder import RunFolder
from warehouse.database import (
    WAIT_SECONDS,
    Connection,
    WarehouseError,
    WarehouseMissing,
    reader,
    rebuilder,
    writer,
)
from warehouse.estimates import bring_up_to_date
from warehouse.loading.convert import LoadedFile
from warehouse.loading.replacement import LoadReport, RunUnreadable, check_folder, describe, load_into, report_on
from warehouse.loading.staging import UNREADABLE, Staged, fingerprints

__all__ = [
    "Outcome",
    "RunUnreadable",
    "describe",
    "files_of",
    "load_into",
    "load_run",
    "load_runs",
    "rebuild",
]
_PUBLISH_SECONDS = 60.0
"""Readers see a loaded run after at most this time and the time of one more run."""
Outcome = LoadReport | WarehouseError


def load_run(folder: RunFolder, database: Path, wait_seconds: float = WAIT_SECONDS) -> LoadReport:
    """Bring the warehouse up to date with one run folder.

    Damaged trace and grade files are left out and named in the report. Raises RunUnreadable and other WarehouseErrors.
    """
    [(_, outcome)] = load_runs([folder], database, wait_seconds)
    if isinstance(outcome, WarehouseError):
        raise outcome
    return outcome


def load_runs(
    folders: Iterable[RunFolder], database: Path, wait_seconds: float = WAIT_SECONDS
) -> Iterator[tuple[RunFolder, Outcome]]:
    """Bring the warehouse up to date with many runs; a run that cannot be loaded does not affect the others.

    Where nothing has changed, nothing is written. Raises WarehouseError where the database itself cannot be used.
    """
    waiting: deque[RunFolder] = deque()
    for folder, report in _unchanged(folders, database, wait_seconds):
        if report is None:
            waiting.append(folder)
        else:
            yield folder, report
    while waiting:
        yield from _load_some(waiting, lambda: writer(database, wait_seconds), _PUBLISH_SECONDS)


def rebuild(
    folders: Iterable[RunFolder], database: Path, wait_seconds: float = WAIT_SECONDS
) -> Iterator[tuple[RunFolder, Outcome]]:
    """Rebuild the database from the given runs alone; it replaces the old one when all of them are loaded."""
    yield from _load_some(deque(folders), lambda: rebuilder(database, wait_seconds), None)


def _unchanged(
    folders: Iterable[RunFolder], database: Path, wait_seconds: float
) -> list[tuple[RunFolder, LoadReport | None]]:
    """Return each run, with its report where the database is up to date with it and with None where it is not."""
    runs = list(folders)
    try:
        with reader(database, wait_seconds) as connection:
            return [(folder, _report_if_unchanged(connection, folder)) for folder in runs]
    except WarehouseMissing:
        return [(folder, None) for folder in runs]


def files_of(database: Path, run_id: str, wait_seconds: float = 1.0) -> dict[str, int]:
    """Return the sizes of a run's files when they were loaded, by name; empty where the database lacks the run.

    Raises WarehouseError.
    """
    with reader(database, wait_seconds) as connection:
        return {file.name: file.size_bytes for file in _loaded_files(connection, run_id)}


def _report_if_unchanged(connection: Connection, folder: RunFolder) -> LoadReport | None:
    started = time.perf_counter()
    try:
        check_folder(connection, folder)
        loaded_files = _loaded_files(connection, folder.path.name)
        if not loaded_files or _hashes(fingerprints(folder)) != _hashes(loaded_files):
            return None
    except (RunUnreadable, *UNREADABLE):
        return None
    return report_on(connection, folder.path.name, Staged(loaded_files), started, unchanged=True)


def _load_some(
    waiting: deque[RunFolder], open_database: Callable[[], AbstractContextManager[Connection]], seconds: float | None
) -> Iterator[tuple[RunFolder, Outcome]]:
    """Load runs from the front of `waiting` for about `seconds`, and yield their outcomes once readers can see them.

    None: load all of them.
    """
    started = time.monotonic()
    outcomes: list[tuple[RunFolder, Outcome]] = []
    with open_database() as connection:
        while waiting and (seconds is None or not outcomes or time.monotonic() < started + seconds):
            folder = waiting.popleft()
            try:
                outcomes.append((folder, load_into(connection, folder)))
            except RunUnreadable as error:
                outcomes.append((folder, error))
        bring_up_to_date(connection)
    yield from outcomes


def _hashes(files: Iterable[LoadedFile]) -> dict[str, str]:
    return {file.name: file.sha256 for file in files}


def _loaded_files(connection: Connection, run_id: str) -> list[LoadedFile]:
    columns = ", ".join(LoadedFile.__dataclass_fields__)
    sql = f"SELECT {columns} FROM loaded_file WHERE run_id = ?"
    return [LoadedFile(*row) for row in connection.execute(sql, [run_id]).fetchall()]
