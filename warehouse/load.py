"""Load run folders into the database: `python -m warehouse.load RUNS_DIR`.

This module is the command; loading is in `warehouse.loading`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from warehouse.files import database_beside
from warehouse.options import WarehouseCommand, database_option, wait_option

if TYPE_CHECKING:
    from jobs.run.folder import RunFolder
    from warehouse.loading.runs import Outcome

_COMPLETE, _INCOMPLETE, _NOTHING = 0, 1, 2
"""Exit codes."""


def _print(outcomes: Iterable[tuple[RunFolder, Outcome]]) -> int:
    """Print what was loaded or left out, and return the exit code."""
    from harness.cli.screen import printable
    from warehouse.database import WarehouseError
    from warehouse.loading.runs import RunForbidden, describe, describe_journals

    is_complete, is_all_forbidden = True, True
    for folder, outcome in outcomes:
        is_all_forbidden &= isinstance(outcome, RunForbidden)
        if isinstance(outcome, WarehouseError):
            click.echo(printable(f"WARNING: {outcome}"), err=True)
            is_complete = False
            continue
        click.echo(printable(describe(outcome)))
        if outcome.num_finished < outcome.num_samples and (journals := describe_journals(folder)):
            click.echo(printable(journals))
        warning = f"WARNING: {outcome.run_id}"
        if outcome.copies:
            names = ", ".join(outcome.copies)
            same = "the database contains the same samples in several runs"
            click.echo(printable(f"{warning} is a copy of {names}: {same}"), err=True)
        for file in outcome.skipped:
            click.echo(printable(f"{warning}: {file.name} cannot be read; SKIPPED: {file.reason}"), err=True)
            is_complete = False
    if is_all_forbidden:
        return _NOTHING
    return _COMPLETE if is_complete else _INCOMPLETE


@click.command(cls=WarehouseCommand)
@click.argument("paths", metavar="RUNS_DIR_OR_RUN…", nargs=-1, required=True, type=click.Path(path_type=Path))
@database_option("Database to load into.", "next to the run folders")
@click.option("--rebuild", "is_rebuild", is_flag=True, help="Rebuild the database from the given runs only.")
@wait_option()
def main(paths: tuple[Path, ...], database: Path | None, is_rebuild: bool, wait_seconds: float) -> int:
    """Load run folders into the database, or update runs that it already contains.

    Exit code 1: runs or files were left out, with a warning; 2: no permission to read any of the runs.
    """
    from jobs.run.folder import run_folders
    from warehouse.loading.runs import load_runs, rebuild

    paths = tuple(path if path.is_dir() else _run_of(path) for path in paths)
    folders = run_folders(paths)
    if not folders:
        raise click.UsageError(f"no run folder in {', '.join(map(str, paths))}")
    database = database or database_beside(folders[0].path)
    return _print((rebuild if is_rebuild else load_runs)(folders, database, wait_seconds))


def _run_of(path: Path) -> Path:
    """Return the run folder for a run name or a unique prefix. Raises click.UsageError."""
    from jobs.run.folder import run_paths

    found = [] if path.exists() else run_paths(str(path))
    found = [run for run in found if run.name == path.name] or found
    if len(found) == 1:
        return found[0]
    problem = f"a prefix of {len(found)} runs" if found else "not a folder" if path.exists() else "no such folder"
    raise click.UsageError(f"{path}: {problem}")


if __name__ == "__main__":
    main(prog_name="python -m warehouse.load")
