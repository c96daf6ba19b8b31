"""Run folders into the warehouse: `python -m warehouse.load RUNS_DIR`.

Loading is idempotent: a run whose files have the fingerprints of the last load is left alone, any other is replaced as
a whole in one transaction, so a loader killed at any moment leaves the old state. Of several complete records of one
sample the first without an error counts, else the first, files in the order of their names.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click
import pyarrow as pa

from harness.command import OneLineErrors
from jobs.store import RunFolder, run_folders
from warehouse import convert
from warehouse.database import (
    WAIT_SECONDS,
    Connection,
    DatabaseError,
    WarehouseError,
    one_line,
    replacement,
    rows,
    transaction,
    writer,
)
from warehouse.display import printable
from warehouse.records import FileRecord, LoadReport, SkippedFile
from warehouse.staging import UNREADABLE, Staged, fingerprints, read_plan, stage

_TABLES = ("run", "attempt", "problem", "sample", "step", "candidate", "call", "grade", "second_grade", "loaded_file")
_INSERT = Path(__file__).with_name("insert.sql")


class RunUnreadable(Exception):
    """A run's plan cannot be read, or its rows do not fit; the message is one line."""


def load_run(folder: RunFolder, database: Path, wait_seconds: float = WAIT_SECONDS) -> LoadReport:
    """Bring the warehouse up to date with one run folder. Raises RunUnreadable and WarehouseError.

    Damaged trace and grade files are left out and named in the report.
    """
    with writer(database, wait_seconds) as connection:
        return load_into(connection, folder)


def load_into(connection: Connection, folder: RunFolder) -> LoadReport:
    """`load_run` on an open connection."""
    started = time.perf_counter()
    run_id = folder.path.name
    _check_folder(connection, folder)
    known = _known_files(connection, run_id)
    try:
        files = fingerprints(folder)
        if {f.name: f.sha256 for f in files} == {name: f.sha256 for name, f in known.items()}:
            return _report(connection, run_id, Staged(list(known.values())), started, unchanged=True)
        plan = read_plan(folder)
        run = convert.run_row(folder, plan.spec, convert.utc(time.time()))
        staged = stage(connection, folder, plan, files, run)
    except UNREADABLE as error:
        raise RunUnreadable(f"{folder.path} cannot be loaded: {one_line(error)}") from error
    file_rows = [convert.file_row(run_id, file, convert.utc(time.time())) for file in staged.files]
    connection.register("staged_file", pa.Table.from_pylist(file_rows))
    try:
        with transaction(connection):
            replace_run(connection, run_id)
    except DatabaseError as error:
        raise RunUnreadable(f"{folder.path} does not fit the warehouse: {one_line(error)}") from error
    return _report(connection, run_id, staged, started, unchanged=False)


def replace_run(connection: Connection, run_id: str) -> None:
    """Put the staged run in the place of what the warehouse holds of it; the caller opens the transaction."""
    for table in _TABLES:
        connection.execute(f"DELETE FROM {table} WHERE run_id = $run_id", {"run_id": run_id})
    connection.execute(_INSERT.read_text(encoding="utf-8"))


def _check_folder(connection: Connection, folder: RunFolder) -> None:
    found = rows(connection, "SELECT folder FROM run WHERE run_id = $run_id", {"run_id": folder.path.name})
    for row in found:
        other = RunFolder(Path(str(row["folder"])))
        if other.path != folder.path.resolve() and other.exists():
            raise RunUnreadable(f"{folder.path} has the name of another run that is loaded: {other.path}")


def _known_files(connection: Connection, run_id: str) -> dict[str, FileRecord]:
    columns = ", ".join(FileRecord.__dataclass_fields__)
    found = connection.execute(f"SELECT {columns} FROM loaded_file WHERE run_id = ?", [run_id]).fetchall()
    return {file.name: file for file in (FileRecord(*row) for row in found)}


def _report(connection: Connection, run_id: str, staged: Staged, started: float, *, unchanged: bool) -> LoadReport:
    [counts] = connection.execute(
        """
        SELECT count(*), count(*) FILTER (finished), count(*) FILTER (graded),
            (SELECT count(*) FROM step WHERE run_id = $run_id),
            (SELECT count(*) FROM candidate WHERE run_id = $run_id),
            (SELECT count(*) FROM call WHERE run_id = $run_id)
        FROM sample_grade WHERE run_id = $run_id
        """,
        {"run_id": run_id},
    ).fetchall()
    num_samples, num_finished, num_graded, num_steps, num_candidates, num_calls = counts
    return LoadReport(
        run_id=run_id,
        unchanged=unchanged,
        num_samples=num_samples,
        num_finished=num_finished,
        num_graded=num_graded,
        num_steps=num_steps,
        num_candidates=num_candidates,
        num_calls=num_calls,
        num_duplicates=staged.num_duplicates,
        num_unplanned=staged.num_unplanned,
        skipped=staged.skipped,
        seconds=time.perf_counter() - started,
    )


def describe(report: LoadReport) -> str:
    """One line on a load."""
    if report.unchanged:
        return f"{report.run_id}: unchanged, {report.num_finished} of {report.num_samples} samples finished"
    extra = [
        f"{number} {what}"
        for number, what in (
            (report.num_finished - report.num_graded, "not graded"),
            (report.num_duplicates, "duplicates left out"),
            (report.num_unplanned, "not in the plan and left out"),
        )
        if number
    ]
    return (
        f"{report.run_id}: {report.num_finished} of {report.num_samples} samples finished, {report.num_steps} steps, "
        f"{report.num_candidates} candidates, {report.num_calls} calls in {report.seconds:.1f} s"
        + "".join(f"; {part}" for part in extra)
    )


def describe_skipped(run_id: str, file: SkippedFile) -> str:
    """One loud line on a file that was left out."""
    return f"WARNING: {run_id}: {file.name} cannot be read and is LEFT OUT: {file.reason}"


def _load_all(folders: list[RunFolder], database: Path, wait_seconds: float) -> bool:
    """Load runs one after the other; returns whether every file of every run was read."""
    whole = True
    with writer(database, wait_seconds) as connection:
        for folder in folders:
            try:
                report = load_into(connection, folder)
            except RunUnreadable as error:
                click.echo(printable(f"WARNING: {error}"), err=True)
                whole = False
                continue
            click.echo(printable(describe(report)))
            for file in report.skipped:
                click.echo(printable(describe_skipped(report.run_id, file)), err=True)
                whole = False
    return whole


@click.command(cls=OneLineErrors)
@click.argument("paths", metavar="RUNS_DIR_OR_RUN…", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--database", type=click.Path(path_type=Path), help="The warehouse.  [default: beside the run folders]")
@click.option("--rebuild", is_flag=True, help="Make the database anew from the given runs alone.")
@click.option(
    "--wait", "wait_seconds", default=WAIT_SECONDS, show_default=True, help="Seconds to wait while it is busy."
)
def main(paths: tuple[Path, ...], database: Path | None, rebuild: bool, wait_seconds: float) -> None:
    """Bring the warehouse up to date with run folders.

    Exit code 1: something was left out and named; 2: nothing could be done.
    """
    try:
        folders = run_folders(paths)
        if not folders:
            raise click.UsageError(f"no run folder in {', '.join(map(str, paths))}")
        database = database or folders[0].path.parent / "warehouse.duckdb"
        if rebuild:
            with replacement(database, wait_seconds) as fresh:
                whole = _load_all(folders, fresh, wait_seconds)
        else:
            whole = _load_all(folders, database, wait_seconds)
    except (WarehouseError, OSError) as error:
        click.echo(printable(f"error: {error}"), err=True)
        sys.exit(2)
    sys.exit(0 if whole else 1)


if __name__ == "__main__":
    main(prog_name="python -m warehouse.load")
