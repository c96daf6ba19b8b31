"""The end of a run, in a job or in a terminal: grade, load the warehouse, print the result and the next commands."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

from rich.console import Console

from grading import GraderFailed
from harness.cli.program import typed
from harness.plural import counted
from jobs.after import target_logprobs, warehouse
from jobs.after.grading import finish
from jobs.run import endings, submissions
from jobs.run.files import write_atomically
from jobs.run.folder import RunFolder
from jobs.slurm import client
from jobs.submission import snapshot
from jobs.timing import folder as timings

_WAIT_SECONDS = 3600.0
"""How long to wait for the warehouse: the runs of a night end at the same time."""


def conclude(folder: str, database: str | None = None) -> bool:
    """Conclude a run for a log or a terminal; returns whether it is complete. Raises what `report` raises."""
    snapshot.require()
    console = Console(highlight=False)
    run = RunFolder(Path(folder))
    if client.this_job():  # the workers have ended on other machines a moment ago
        endings.wait_for_endings(run)
    ungraded: GraderFailed | None = None
    try:
        report(run, console, Path(database) if database else None, _WAIT_SECONDS)
    except GraderFailed as error:
        ungraded = error
    num_unfinished = endings.num_unfinished(run)
    untimed = timings.progress(run).left
    if num_unfinished or (untimed and not timings.is_at_work(run)):
        left = f"{counted(num_unfinished, 'sample is', 'samples are')} not finished"
        timing = f"{counted(untimed, 'sample is', 'samples are')} still to be timed"
        what = f"NOT COMPLETE: {left}" if num_unfinished else f"NOT TIMED: {timing}"
        console.print(f"{what}. {_how_to_resume(run)}", style="bold yellow", soft_wrap=True)
    if ungraded is not None:
        raise ungraded
    return not num_unfinished


def _how_to_resume(run: RunFolder) -> str:
    if not submissions.read(run):
        return "To resume, run its launch command again."
    return f"To resume:  {typed('jobs resume')} {quote(str(run.path))}"


def report(
    run: RunFolder,
    console: Console,
    database: Path | None = None,
    wait_seconds: float | None = None,
    *,
    says_unscored: bool = True,
    among: str | None = None,
) -> None:
    """Grade and load what is finished, print the result, and write `results.json` once all is.

    Raises WarehouseFailed, with traces and grades safe, and, after all that, GraderFailed where samples are ungraded.

    `wait_seconds`: how long to wait for a warehouse that is being written; None: as long as its own commands do.
    `says_unscored`: whether it says which samples the target has not read. `among`: the beginning of the result's line
    where the run is one of several, whose warnings and next commands come after the last; None: it is printed in full.
    """
    database = database or warehouse.database_of(run)
    ungraded: GraderFailed | None = None
    with console.status("Grading …"):
        try:
            finish(run)
        except GraderFailed as error:
            ungraded = error
    warehouse.load_and_print(run, database, console, wait_seconds, among)
    if says_unscored and (missing := target_logprobs.notice(run)):
        console.print(missing, style="bold yellow", markup=False, soft_wrap=True)
    _write_results(run, database)
    if among is None:
        _print_next(run, database, console)
    if ungraded is not None:
        raise ungraded


def _print_next(run: RunFolder, database: Path, console: Console) -> None:
    console.print(f"Run folder: {run.path}    Warehouse: {database}", soft_wrap=True)
    console.print("Next:", style="bold")
    at = quote(str(database))
    if run.probe_dir.is_dir():
        console.print(f"  {typed('warehouse.probed')} --database {at} {quote(run.path.name)}", soft_wrap=True)
    else:
        console.print(f'  {typed("warehouse.query")} --database {at} "SELECT * FROM pass_at_1"', soft_wrap=True)
    console.print(f"  {typed('warehouse.query')} --database {at} --list", soft_wrap=True)
    words = quote(run.path.name), quote(run.problems()[0].id)
    console.print(f"  {typed('warehouse.trace')} --database {at} {' '.join(words)} 0", soft_wrap=True)


def _write_results(run: RunFolder, database: Path) -> None:
    """Write the result of a run that was just loaded, if all its samples are finished and graded; otherwise remove it.

    `results.json` has the same numbers as the summary, from the same tables, for programs. Raises WarehouseFailed.
    """
    result = warehouse.results_of(run, database)
    path, content = run.results_path, result.to_json()
    if result.state != "finished":  # samples that had failed are retried
        path.unlink(missing_ok=True)
    elif not path.exists() or path.read_bytes() != content:
        write_atomically(path, content)
