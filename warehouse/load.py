"""Run folders into the warehouse: `python -m warehouse.load RUNS_DIR`.

Loading is idempotent: a run whose files have the fingerprints of the last load is left alone, any other is replaced as
a whole in one transaction, so a loader killed at any moment leaves the old state. Of several complete records of one
sample the first without an error counts, else the first, files in the order of their names. Runs that are still going
on may be loaded again and again.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import click

from jobs.run.folder import RunFolder, run_folders
from warehouse.database import (
    FILLING,
    SCHEMA_VERSION,
    WAIT_SECONDS,
    Connection,
    WarehouseError,
    WarehouseMissing,
    WarehouseOutdated,
    former_runs,
    one_line,
    reader,
    rebuilder,
    rows,
    sql_of,
    transaction,
    writer,
)
from warehouse.display import printable
from warehouse.loading import convert
from warehouse.loading.load_report import LoadReport, describe, describe_skipped, report_on
from warehouse.loading.run_files import LoadedFile
from warehouse.loading.staging import UNREADABLE, Plan, Staged, fingerprints, read_plan, stage, stage_rows
from warehouse.options import WarehouseCommand, database_beside, database_option, wait_option

_TABLES = (
    "run", "attempt", "problem", "sample", "step", "candidate", "call", "grade", "second_grade", "candidate_grade",
    "step_score", "candidate_score", "grade_total", "graded_sample", "sample_tokens", "timed_sample", "step_total",
    "sample_answer", "sample_verdicts", "position_total", "option_total", "rating_total", "replay_total", "call_total",
    "loaded_file",
)  # fmt: skip
_PUBLISH_SECONDS = 60.0
"""Readers see what is loaded after at most this time and one run more."""
__all__ = ["RunUnreadable", "describe", "load_into", "load_run", "load_runs", "main", "plan_migration", "rebuild"]
_logger = logging.getLogger(__name__)
Outcome = LoadReport | WarehouseError


class RunUnreadable(WarehouseError):
    """A run's plan cannot be read, or its rows do not fit; the message is one line."""


def load_run(folder: RunFolder, database: Path, wait_seconds: float = WAIT_SECONDS) -> LoadReport:
    """Bring the warehouse up to date with one run folder. Raises RunUnreadable and other WarehouseErrors.

    Damaged trace and grade files are left out and named in the report. A database of an older schema is made anew.
    """
    try:
        outcomes = list(load_runs([folder], database, wait_seconds))
    except WarehouseOutdated:
        folders, line = plan_migration([folder], database, wait_seconds)
        _logger.warning("%s", line)
        outcomes = list(rebuild(folders, database, wait_seconds))
    [outcome] = [found for run, found in outcomes if run.path == folder.path]
    if isinstance(outcome, WarehouseError):
        raise outcome
    return outcome


def load_runs(
    folders: Iterable[RunFolder], database: Path, wait_seconds: float = WAIT_SECONDS
) -> Iterator[tuple[RunFolder, Outcome]]:
    """Bring the warehouse up to date with many runs; a run that cannot be loaded does not keep the others out.

    Where nothing has changed, nothing is written. Raises WarehouseError where the database itself is wrong.
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
    """Make the database anew from the given runs alone; it takes the old one's place when all of them are loaded."""
    yield from _load_some(deque(folders), lambda: rebuilder(database, wait_seconds), None)


def plan_migration(
    folders: Iterable[RunFolder], database: Path, wait_seconds: float = WAIT_SECONDS
) -> tuple[list[RunFolder], str]:
    """The runs from which an outdated database is made anew, and one line that says so.

    Those that it holds and the given ones. Raises WarehouseOutdated where folders of runs that it holds are gone.
    """
    known = {name: RunFolder(path) for name, path in former_runs(database, wait_seconds).items()}
    known |= {folder.path.name: folder for folder in folders}
    gone = sorted(name for name, folder in known.items() if not folder.exists())
    if gone:
        raise WarehouseOutdated(
            f"{database} was made by another version of the warehouse, and the folders of {len(gone)} of its runs are "
            f"gone ({', '.join(gone[:5])}{', …' if len(gone) > 5 else ''}): name their folders too, or do without "
            "them with --rebuild"
        )
    line = (
        f"{database} was made by another version of the warehouse: made anew with schema {SCHEMA_VERSION} "
        f"from its {len(known)} run folders"
    )
    return list(known.values()), line


def _unchanged(
    folders: Iterable[RunFolder], database: Path, wait_seconds: float
) -> list[tuple[RunFolder, LoadReport | None]]:
    """Each run with its report where the database holds it as it is, else with None."""
    given = list(folders)
    try:
        with reader(database, wait_seconds):
            pass
    except WarehouseMissing:
        return [(folder, None) for folder in given]
    except WarehouseOutdated:  # of the views alone, or this says so again
        with writer(database, wait_seconds):
            pass
    with reader(database, wait_seconds) as connection:
        return [(folder, _report_if_unchanged(connection, folder)) for folder in given]


def _report_if_unchanged(connection: Connection, folder: RunFolder) -> LoadReport | None:
    started = time.perf_counter()
    try:
        _check_folder(connection, folder)
        known = _known_files(connection, folder.path.name)
        if not known or _hashes(fingerprints(folder)) != _hashes(known.values()):
            return None
    except (RunUnreadable, *UNREADABLE):
        return None
    return report_on(connection, folder.path.name, Staged(list(known.values())), started, unchanged=True)


def _load_some(
    waiting: deque[RunFolder], open_it: Callable[[], AbstractContextManager[Connection]], seconds: float | None
) -> Iterator[tuple[RunFolder, Outcome]]:
    """Load from the front of `waiting` for about so long; reports only what others can see by then."""
    began = time.monotonic()
    outcomes: list[tuple[RunFolder, Outcome]] = []
    with open_it() as connection:
        while waiting and (seconds is None or not outcomes or time.monotonic() < began + seconds):
            folder = waiting.popleft()
            try:
                outcomes.append((folder, load_into(connection, folder)))
            except RunUnreadable as error:
                outcomes.append((folder, error))
    yield from outcomes


def load_into(connection: Connection, folder: RunFolder) -> LoadReport:
    """Put a run in the place of what an open warehouse holds of it. Raises RunUnreadable."""
    started = time.perf_counter()
    _check_folder(connection, folder)
    try:
        files, plan = fingerprints(folder), read_plan(folder)
        try:
            staged = _replace(connection, folder, plan, files, is_wary=False)
        except UNREADABLE:  # a trace file may be damaged: read them one by one to find out which
            staged = _replace(connection, folder, plan, files, is_wary=True)
    except UNREADABLE as error:
        raise RunUnreadable(f"{folder.path} cannot be loaded: {one_line(error)}") from error
    return report_on(connection, folder.path.name, staged, started, unchanged=False)


def _replace(
    connection: Connection, folder: RunFolder, plan: Plan, files: list[LoadedFile], *, is_wary: bool
) -> Staged:
    run_id, now = folder.path.name, convert.utc(time.time())
    staged = stage(connection, folder, plan, files, convert.run_row(folder, plan.spec, now), is_wary=is_wary)
    file_rows = [convert.file_row(run_id, file, now) for file in staged.files]
    stage_rows(connection, "loaded_file", file_rows)
    with transaction(connection):
        replace_run(connection, run_id)
    return staged


def replace_run(connection: Connection, run_id: str) -> None:
    """Put the staged run in the place of what the warehouse holds of it; the caller opens the transaction."""
    for table in _TABLES:
        connection.execute(f"DELETE FROM {table} WHERE run_id = $run_id", {"run_id": run_id})
    connection.execute("SET VARIABLE loading_run = $run_id", {"run_id": run_id})
    for name in FILLING:
        connection.execute(sql_of(name))


def _hashes(files: Iterable[LoadedFile]) -> dict[str, str]:
    return {file.name: file.sha256 for file in files}


def _check_folder(connection: Connection, folder: RunFolder) -> None:
    found = rows(connection, "SELECT folder FROM run WHERE run_id = $run_id", {"run_id": folder.path.name})
    for row in found:
        other = RunFolder(Path(str(row["folder"])))
        if other.path != folder.path.resolve() and other.exists():
            raise RunUnreadable(f"{folder.path} has the name of another run that is loaded: {other.path}")


def _known_files(connection: Connection, run_id: str) -> dict[str, LoadedFile]:
    columns = ", ".join(LoadedFile.__dataclass_fields__)
    found = connection.execute(f"SELECT {columns} FROM loaded_file WHERE run_id = ?", [run_id]).fetchall()
    return {file.name: file for file in (LoadedFile(*row) for row in found)}


def _print(outcomes: Iterable[tuple[RunFolder, Outcome]]) -> bool:
    """Say what was loaded; returns whether every file of every run was."""
    whole = True
    for _, outcome in outcomes:
        if isinstance(outcome, WarehouseError):
            click.echo(printable(f"WARNING: {outcome}"), err=True)
            whole = False
            continue
        click.echo(printable(describe(outcome)))
        for file in outcome.skipped:
            click.echo(printable(describe_skipped(outcome.run_id, file)), err=True)
            whole = False
    return whole


@click.command(cls=WarehouseCommand)
@click.argument("paths", metavar="RUNS_DIR_OR_RUN…", nargs=-1, required=True, type=click.Path(path_type=Path))
@database_option("Database to load into.", "beside the run folders")
@click.option("--rebuild", "is_rebuild", is_flag=True, help="Make the database anew from the given runs alone.")
@wait_option()
def main(paths: tuple[Path, ...], database: Path | None, is_rebuild: bool, wait_seconds: float) -> int:
    """Bring the warehouse up to date with run folders.

    Exit code 1: something was left out and named; 2: nothing could be done.
    """
    folders = run_folders(paths)
    if not folders:
        raise click.UsageError(f"no run folder in {', '.join(map(str, paths))}")
    database = database or database_beside(folders[0].path)
    if not is_rebuild:
        try:
            return 0 if _print(load_runs(folders, database, wait_seconds)) else 1
        except WarehouseOutdated:
            folders, line = plan_migration(folders, database, wait_seconds)
            click.echo(printable(line), err=True)
    return 0 if _print(rebuild(folders, database, wait_seconds)) else 1


if __name__ == "__main__":
    main(prog_name="python -m warehouse.load")
