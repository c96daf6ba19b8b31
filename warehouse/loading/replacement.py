"""Replace what an open warehouse holds of one run by the run's files, in one transaction."""

from __future__ import annotations

import time
from pathlib import Path

from jobs.run.folder import RunFolder
from jobs.run.folder import RunForbidden as PlanForbidden
from jobs.run.spec import RunSpec
from warehouse.database import Connection, WarehouseError, rows, run_tables, transaction
from warehouse.formatting import one_line
from warehouse.loading import convert
from warehouse.loading.convert import LoadedFile
from warehouse.loading.load_report import LoadReport, report_on
from warehouse.loading.staging import UNREADABLE, Plan, Staged, fingerprints, read_plan, stage, stage_rows
from warehouse.schema import FILLING, sql_of

_SAME_SPECIFICATION = """
SELECT run_id, folder,
    coalesce((SELECT list(attempt_id) FROM attempt WHERE attempt.run_id = run.run_id), []) AS attempts
FROM run WHERE spec_id = $spec_id AND run_id <> $run_id ORDER BY run_id
"""


class RunUnreadable(WarehouseError):
    """A run's plan cannot be read, or its rows do not fit the tables; the message is one line."""


class RunForbidden(RunUnreadable):
    """The user may not read a file of the run."""


def load_into(connection: Connection, folder: RunFolder) -> LoadReport:
    """Replace what an open warehouse holds of a run by the run's files. Raises RunUnreadable."""
    started = time.perf_counter()
    check_folder(connection, folder)
    try:
        files, plan = fingerprints(folder), read_plan(folder)
        try:
            staged = _replace(connection, folder, plan, files, read_each=False)
        except UNREADABLE:  # perhaps one trace file is damaged: read them one by one
            staged = _replace(connection, folder, plan, files, read_each=True)
    except (PermissionError, PlanForbidden) as error:
        raise RunForbidden(f"{folder.path} cannot be loaded: {one_line(error)}") from error
    except UNREADABLE as error:
        raise RunUnreadable(f"{folder.path} cannot be loaded: {one_line(error)}") from error
    return report_on(connection, folder.path.name, staged, started, unchanged=False)


def check_folder(connection: Connection, folder: RunFolder) -> None:
    """Raise RunUnreadable where a run of this name was loaded from another folder that still exists."""
    for row in rows(connection, "SELECT folder FROM run WHERE run_id = $run_id", {"run_id": folder.path.name}):
        other = RunFolder(Path(str(row["folder"])))
        if other.path != folder.path.resolve() and other.exists():
            raise RunUnreadable(f"{folder.path} has the name of a run that is loaded from another folder: {other.path}")


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
    """Return the runs of the database that are this one under another name: former names, and copies that exist.

    They have the same specification and an attempt in common or, where either has none, nothing finished that could be
    lost.
    """
    attempts = {path.stem for path in folder.trace_files()}
    former, copies = [], []
    for row in rows(connection, _SAME_SPECIFICATION, {"spec_id": spec.run_id, "run_id": folder.path.name}):
        name, other, loaded = str(row["run_id"]), RunFolder(Path(str(row["folder"]))), row["attempts"]
        assert isinstance(loaded, list)
        is_same_folder = other.path == folder.path.resolve()  # its row is of another name, so it was renamed
        if is_same_folder or not other.exists():
            if not loaded or not attempts.isdisjoint(loaded):
                former.append(name)
        elif not attempts.isdisjoint(loaded):
            copies.append(name)
    return former, copies


def replace_run(connection: Connection, run_id: str) -> None:
    """Replace what the warehouse holds of a run by the staged run, in the caller's transaction."""
    _delete_run(connection, run_id)
    connection.execute("SET VARIABLE loading_run = $run_id", {"run_id": run_id})
    for name in FILLING:
        connection.execute(sql_of(name))


def _delete_run(connection: Connection, run_id: str) -> None:
    for table in run_tables(connection):
        connection.execute(f"DELETE FROM {table} WHERE run_id = $run_id", {"run_id": run_id})
    connection.execute("DELETE FROM estimate WHERE baseline_run_id = $run_id", {"run_id": run_id})
