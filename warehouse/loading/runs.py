"""Load or update runs in the database, as `python -m warehouse.load` does.

Loading is idempotent. A run whose files match the last load's fingerprints is skipped. Any other run is replaced as a
whole in one transaction, so the old state remains if the loader is killed. A sample with several records counts once
(jobs.run.trace_files). Unfinished runs may be loaded any number of times.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from jobs.run.endings import num_only_in_journals
from jobs.run.files import RunDamaged
from jobs.run.folder import RunFolder
from jobs.run.folder import RunForbidden as PlanForbidden
from jobs.run.spec import RunSpec
from warehouse.database import (
    WAIT_SECONDS,
    Connection,
    WarehouseError,
    WarehouseMissing,
    reader,
    rows,
    run_tables,
    transaction,
    writer,
)
from warehouse.estimates import bring_up_to_date
from warehouse.files import one_line
from warehouse.loading import convert
from warehouse.loading.convert import LoadedFile, SkippedFile
from warehouse.loading.staging import UNREADABLE, Plan, Staged, fingerprints, read_plan, stage, stage_rows
from warehouse.sql.schema import FILLING, sql_of


@dataclass(frozen=True, slots=True)
class LoadReport:
    """Result of loading one run, and the run's current state in the database."""

    run_id: str
    unchanged: bool
    """Whether all files were already loaded with this content, so nothing was written."""
    num_samples: int
    """Planned samples: problems × samples."""
    num_finished: int
    num_graded: int
    num_steps: int
    num_candidates: int
    num_calls: int
    num_duplicates: int
    """Records left out because another record of the same sample counts; failed records are not included."""
    num_unplanned: int
    """Finished samples left out because they are not in the plan."""
    skipped: tuple[SkippedFile, ...]
    seconds: float
    former_names: tuple[str, ...] = ()
    """Names of the run before its folder was renamed; their rows are replaced."""
    copies: tuple[str, ...] = ()
    """Other runs in the database with the same specification and attempts: copies of the folder."""


_COUNTS = """
SELECT count(*) AS num_samples, count(*) FILTER (finished) AS num_finished, count(*) FILTER (graded) AS num_graded,
    (SELECT count(*) FROM step WHERE run_id = $run_id) AS num_steps,
    (SELECT count(*) FROM candidate WHERE run_id = $run_id) AS num_candidates,
    (SELECT count(*) FROM call WHERE run_id = $run_id) AS num_calls
FROM sample_grade WHERE run_id = $run_id
"""


def report_on(connection: Connection, run_id: str, staged: Staged, started: float, *, unchanged: bool) -> LoadReport:
    """Return the load report of a run. `started`: time.perf_counter at the start."""
    [counts] = rows(connection, _COUNTS, {"run_id": run_id})
    names = ("num_duplicates", "num_unplanned", "skipped", "former_names", "copies")
    told = {name: getattr(staged, name) for name in names}
    return LoadReport(run_id, unchanged, **counts, **told, seconds=time.perf_counter() - started)


def describe(report: LoadReport) -> str:
    if report.unchanged:
        return f"{report.run_id}: unchanged, {report.num_finished} of {report.num_samples} samples finished"
    remarks = [
        f"{number} {remark}"
        for number, remark in (
            (report.num_finished - report.num_graded, "not graded"),
            (report.num_duplicates, "duplicates left out"),
            (report.num_unplanned, "not in the plan and left out"),
        )
        if number
    ]
    return (
        f"{report.run_id}: {report.num_finished} of {report.num_samples} samples finished, {report.num_steps} steps, "
        f"{report.num_candidates} candidates, {report.num_calls} calls in {report.seconds:.1f} s"
        + "".join(f"; {remark}" for remark in remarks)
        + "".join(f"; replaces the rows under the former name {name}" for name in report.former_names)
    )


def describe_journals(folder: RunFolder) -> str:
    """Return one line about finished samples that are only in journals, or an empty string."""
    try:
        number = num_only_in_journals(folder)
    except (RunDamaged, OSError):
        return ""  # errors are reported elsewhere
    more = f"  {number} more finished only in journals; to add them:  python -m jobs finalize"
    return f"{more} {quote(str(folder.path))}" if number > 0 else ""


_PUBLISH_SECONDS = 60.0
"""Seconds of loading after which readers get to see the loaded runs."""
Outcome = LoadReport | WarehouseError


def load_run(folder: RunFolder, database: Path, wait_seconds: float = WAIT_SECONDS) -> LoadReport:
    """Load or update one run folder.

    Damaged trace and grade files are left out and listed in the report. Raises RunUnreadable and other WarehouseErrors.
    """
    [(_, outcome)] = load_runs([folder], database, wait_seconds)
    if isinstance(outcome, WarehouseError):
        raise outcome
    return outcome


def load_runs(
    folders: Iterable[RunFolder], database: Path, wait_seconds: float = WAIT_SECONDS
) -> Iterator[tuple[RunFolder, Outcome]]:
    """Load or update many runs; a run that cannot be loaded does not affect the others.

    Writes nothing if nothing has changed. Raises WarehouseError if the database cannot be used.
    """
    folders = list(folders)
    _check_place(folders, database)
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
    """Rebuild the database from only these runs; it replaces the old one after all of them are loaded."""
    folders = list(folders)
    _check_place(folders, database)
    yield from _load_some(deque(folders), lambda: writer(database, wait_seconds, is_anew=True), None)


def _check_place(folders: Iterable[RunFolder], database: Path) -> None:
    """Raise WarehouseError if the database next to run folders is a symlink, which another user may have created."""
    place = database.parent.resolve()
    if database.is_symlink() and any(place == folder.path.resolve().parent for folder in folders):
        raise WarehouseError(f"{database} is a symlink, which is not followed: pass the file itself with --database")


def _unchanged(
    folders: Iterable[RunFolder], database: Path, wait_seconds: float
) -> list[tuple[RunFolder, LoadReport | None]]:
    """Return each run with its load report, or with None if the database is not up to date for the run."""
    runs = list(folders)
    try:
        with reader(database, wait_seconds) as connection:
            return [(folder, _report_if_unchanged(connection, folder)) for folder in runs]
    except WarehouseMissing:
        return [(folder, None) for folder in runs]


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
    """Load runs from the front of `waiting` for about `seconds` (None: all); yield results once readers see them."""
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


_SAME_SPECIFICATION = """
SELECT run_id, folder,
    coalesce((SELECT list(attempt_id) FROM attempt WHERE attempt.run_id = run.run_id), []) AS attempts
FROM run WHERE spec_id = $spec_id AND run_id <> $run_id ORDER BY run_id
"""


class RunUnreadable(WarehouseError):
    """A run's plan cannot be read, or its rows do not fit the tables. The message is one line."""


class RunForbidden(RunUnreadable):
    """The user has no permission to read a file of the run."""


def load_into(connection: Connection, folder: RunFolder) -> LoadReport:
    """Replace a run's rows in an open database with the run's files. Raises RunUnreadable."""
    started = time.perf_counter()
    check_folder(connection, folder)
    try:
        files, plan = fingerprints(folder), read_plan(folder)
        try:
            staged = _replace(connection, folder, plan, files, read_each=False)
        except UNREADABLE:  # one trace file may be damaged: read them one by one
            staged = _replace(connection, folder, plan, files, read_each=True)
    except (PermissionError, PlanForbidden) as error:
        raise RunForbidden(f"{folder.path} cannot be loaded: {one_line(error)}") from error
    except UNREADABLE as error:
        raise RunUnreadable(f"{folder.path} cannot be loaded: {one_line(error)}") from error
    return report_on(connection, folder.path.name, staged, started, unchanged=False)


def check_folder(connection: Connection, folder: RunFolder) -> None:
    """Raise RunUnreadable if a run with this name was loaded from another folder that still exists."""
    for row in rows(connection, "SELECT folder FROM run WHERE run_id = $run_id", {"run_id": folder.path.name}):
        other = RunFolder(Path(str(row["folder"])))
        if other.path != folder.path.resolve() and other.exists():
            raise RunUnreadable(f"{folder.path}: a run with this name is already loaded from {other.path}")


def _replace(
    connection: Connection, folder: RunFolder, plan: Plan, files: list[LoadedFile], *, read_each: bool
) -> Staged:
    run_id, now = folder.path.name, convert.utc(time.time())
    staged = stage(connection, folder, plan, files, convert.run_row(folder, plan.spec, now), read_each=read_each)
    former, copies = _namesakes(connection, folder, plan.spec)
    staged.former_names, staged.copies = tuple(former), tuple(copies)
    file_rows = [convert.file_row(run_id, file, now) for file in staged.files]
    stage_rows(connection, "loaded_file", file_rows)
    with transaction(connection):
        for name in former:
            _delete_run(connection, name)
        replace_run(connection, run_id)
    return staged


def _namesakes(connection: Connection, folder: RunFolder, spec: RunSpec) -> tuple[list[str], list[str]]:
    """Return former names of this run in the database, and existing copies of the folder.

    Both have the specification of this run and share an attempt with it. A former name may also have no attempts, and
    thus no finished samples to lose.
    """
    attempts = {path.stem for path in folder.trace_files()}
    former, copies = [], []
    for row in rows(connection, _SAME_SPECIFICATION, {"spec_id": spec.run_id, "run_id": folder.path.name}):
        name, other, loaded = str(row["run_id"]), RunFolder(Path(str(row["folder"]))), row["attempts"]
        assert isinstance(loaded, list)
        is_same_folder = other.path == folder.path.resolve()  # its row has another name, so it was renamed
        if is_same_folder or not other.exists():
            if not loaded or not attempts.isdisjoint(loaded):
                former.append(name)
        elif not attempts.isdisjoint(loaded):
            copies.append(name)
    return former, copies


def replace_run(connection: Connection, run_id: str) -> None:
    """Replace a run's rows with the staged run, in the caller's transaction."""
    _delete_run(connection, run_id)
    connection.execute("SET VARIABLE loading_run = $run_id", {"run_id": run_id})
    for name in FILLING:
        connection.execute(sql_of(name))


def _delete_run(connection: Connection, run_id: str) -> None:
    for table in run_tables(connection):
        connection.execute(f"DELETE FROM {table} WHERE run_id = $run_id", {"run_id": run_id})
    connection.execute("DELETE FROM estimate WHERE baseline_run_id = $run_id", {"run_id": run_id})
