"""The warehouse's functions for jobs: finish a run, in a job or a terminal; forecasts; nightly verdicts.

Finishing grades and loads a run, prints its result, and writes `results.json`. Jobs access this module only through
`jobs.after`. Each function imports what it needs, because a small launch needs little of the warehouse.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import date
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from rich.console import Console

from grading import GraderFailed
from harness.cli.messages import counted
from harness.cli.number_format import NOTHING
from harness.cli.program import typed
from harness.cli.screen import Column, Line, Screen, Table, terminal
from harness.settings.launch_settings import Launch
from jobs.finished.grading import finish, is_concluded
from jobs.forecast import Forecast
from jobs.run import derived, endings, submissions
from jobs.run import timing as timings
from jobs.run.endings import wait_for_endings
from jobs.run.files import write_atomically
from jobs.run.folder import RunFolder, run_path
from jobs.run.spec import RunSpec
from jobs.slurm import client
from warehouse import files
from warehouse.files import WarehouseBusy as WarehouseBusy
from warehouse.files import WarehouseError as WarehouseError
from warehouse.files import one_line

if TYPE_CHECKING:
    import pandas

    from warehouse.nightly.verdict import Judged
    from warehouse.report.summary import RunSummary

_IN_SHORT = ("models", "pass@1", "once complete", "verdicts", "fallback rate", "tokens per sample", "speed-up")
"""Lines of the result that are printed when a run ends."""
_DOUBT = "CHECK THE JUDGE"
"""Other lines of the result are printed when a run ends if they contain this text."""
_WAIT_SECONDS = 3600.0
"""Maximum wait for a locked database, in seconds. It is long, because all runs of a night end at the same time."""


@contextmanager
def _warehouse_errors() -> Iterator[None]:
    """Convert errors of DuckDB to WarehouseError."""
    from warehouse.database import DatabaseError

    try:
        yield
    except DatabaseError as error:
        raise WarehouseError(one_line(error)) from error


def database_of(run: RunFolder) -> Path:
    return run.path.parent / files.DATABASE_NAME


def check(database: Path) -> None:
    """Raise WarehouseError if a run could not be loaded into this database later.

    A missing database passes, and so does a locked one, because loading waits for it.
    """
    from warehouse.database import reader

    files.check_writable(database)
    with suppress(files.WarehouseMissing, WarehouseBusy), reader(database, wait_seconds=0.0):
        pass


def num_unfinished(folder: Path) -> int:
    return endings.num_unfinished(RunFolder(folder))


def load(run: str, database: Path | None = None) -> tuple[Path, Path]:
    """Load or update a run given by path, id or unique prefix; return folder and database. Raises WarehouseError."""
    from warehouse.loading.runs import load_run

    run_folder = RunFolder(run_path(run))
    database = database or database_of(run_folder)
    with _warehouse_errors():
        load_run(run_folder, database)
    return run_folder.path, database


def load_again(run: RunFolder, database: Path) -> str:
    """Reload a regraded run, and return one line about it. Raises WarehouseError.

    `results.json` is updated if the database is the one next to the run folder.
    """
    from warehouse.loading.runs import describe, load_run
    from warehouse.report.summary import summary

    with _warehouse_errors():
        report = load_run(run, database)
        if database.resolve() == database_of(run).resolve():
            write_results(run, summary(database, [run.path.name])[0])
    return describe(report)


def summary_of(database: Path, run: Path) -> RunSummary:
    """Return a run's summary. Raises WarehouseError."""
    from warehouse.report.summary import UnknownRun, summary

    try:
        with _warehouse_errors():
            return summary(database, [run.name])[0]
    except UnknownRun as error:
        raise WarehouseError(f"{error}; load it with harness.load({str(run)!r})") from error


def data_frame(database: Path | None, runs: Sequence[str], level: str) -> pandas.DataFrame:
    """Return the rows of runs, by default from the database next to the first run. Raises WarehouseError."""
    from warehouse import export
    from warehouse.options import default_database

    with _warehouse_errors():
        return export.data_frame(database or default_database(runs[0] if runs else None), runs, level)


def forecast(
    run: RunFolder, launch: Launch, spec: RunSpec, num_samples: int, own: Forecast | None, to_time: int = 0
) -> Forecast | None:
    """Estimate the cost of a launch's samples from the database next to the run folder; None if it is unknown.

    `own`: estimate from the run's progress, if any. `to_time`: number of samples to time one at a time.
    """
    database = database_of(run)
    if not (to_time or database.exists()):
        return own
    from warehouse.suites import run_cost

    return run_cost.forecast(launch, spec, num_samples, database, own, to_time)


def short_names(runs: Sequence[RunSpec]) -> list[str]:
    """Return a short, unique name for each run."""
    from warehouse.report.summary import row_labels, told_apart

    return told_apart(runs, row_labels(runs, [None] * len(runs)), lambda spec: spec.dataset)


def conclude(folder: str, database: str | None = None) -> bool:
    """Finish a run, printing its result, and return whether it is complete. Raises the exceptions of `report`."""
    console, run = terminal(), RunFolder(Path(folder))
    if client.this_job():  # the workers have just ended on other machines
        wait_for_endings(run)
    try:
        report(run, console, Path(database) if database else None, _WAIT_SECONDS)
    finally:
        left, untimed = endings.num_unfinished(run), timings.progress(run).left
        if left or (untimed and not timings.is_at_work(run)):
            samples = counted(left or untimed, "sample is", "samples are")
            what = f"NOT COMPLETE: {samples} not finished" if left else f"NOT TIMED: {samples} not timed yet"
            resume = f"To resume:  {typed('jobs resume')} {quote(str(run.path))}"
            how = resume if submissions.read(run) else "To resume, run its launch command again."
            console.print(f"{what}. {how}", style="bold yellow", soft_wrap=True)
    return not left


def report(
    run: RunFolder,
    console: Console,
    database: Path | None = None,
    wait_seconds: float | None = None,
    *,
    among: str | None = None,
) -> None:
    """Grade and load the finished samples, print the result, and write `results.json` if the run is complete.

    Raises WarehouseError after saving traces and grades. At the end, raises GraderFailed if samples are ungraded.

    `wait_seconds`: maximum wait for a locked database; None: the default of the warehouse's commands. `among`: prefix
    of the result, if the run is one of several; the result is then one line, and warnings and next commands follow
    after the last run. None: the result has several lines.
    """
    database = database or database_of(run)
    ungraded: GraderFailed | None = None
    with console.status("Grading …"):
        try:
            finish(run)
        except GraderFailed as error:
            ungraded = error
    with _warehouse_errors():
        result = _load_and_print(run, database, console, wait_seconds, among)
    if derived.are_logprobs_asked(run):
        from jobs.finished import scoring  # imports engines

        if missing := scoring.notice(run):
            console.print(missing, style="bold yellow", markup=False, soft_wrap=True)
    write_results(run, result)
    if among is None:
        _print_next([run], database, console)
    if ungraded is not None:
        raise ungraded


def _load_and_print(
    run: RunFolder, database: Path, console: Console, wait_seconds: float | None, among: str | None
) -> RunSummary:
    """Load a run, print its result in short (a probe's is a table), and return it."""
    from warehouse.database import WAIT_SECONDS
    from warehouse.loading.runs import load_run
    from warehouse.report.summary import in_one_line, lines, summary

    wait = WAIT_SECONDS if wait_seconds is None else wait_seconds
    load_run(run, database, wait)
    if kind := derived.continuation(run):
        if kind == "budget_cuts" and (source := RunFolder(run.path.parent / derived.source_of(run, kind))).exists():
            load_run(source, database, wait)  # the verdicts of the source are shown
        show(run, console, database)
    [result] = summary(database, [run.path.name])
    if kind:
        return result
    if among is not None:
        console.print(f"{among}  {in_one_line(result)}", markup=False, soft_wrap=True)
        return result
    problems = f"{counted(result.n, 'problem')} × {counted(result.k, 'sample')}"
    rows = [
        ("method", f"{result.method} on {result.dataset}: {problems}"),
        *(line for line in lines(result) if line[0].startswith(_IN_SHORT) and line[1] != NOTHING),
        *(line for line in lines(result) if _DOUBT in line[1]),
    ]
    columns = [Column("", style="bold"), Column("", is_right=False, is_folded=True)]
    warnings = (Line(line, "bold red") for line in result.warnings)
    Screen(console, is_fitted=True).show([*warnings, Table(columns, rows, title=result.run_id)])
    return result


def show(run: RunFolder, console: Console, database: Path | None = None) -> None:
    """Print all metrics of a run; for a continuation of another run (probe, sweep), print its results instead.

    Raises WarehouseError.
    """
    from warehouse import probed
    from warehouse.database import reader
    from warehouse.report import budgets
    from warehouse.report.summary import render, render_warnings, summary

    database = database or database_of(run)
    with _warehouse_errors():
        summaries = summary(database, [run.path.name])
        if (kind := derived.continuation(run)) is None:
            render(summaries, console)
            return
        render_warnings(summaries, console)
        with reader(database) as connection:
            if kind == "budget_cuts":
                budgets.print_sweep(connection, run.path.name, console)
            else:
                probed.print_found(probed.found(connection, run.path.name), console)


def write_results(run: RunFolder, result: RunSummary) -> None:
    """Write the result of a loaded run if all samples are finished and graded; otherwise remove the file.

    `results.json` has the same values as the summary, from the same tables.
    """
    path, content = run.results_path, result.to_json()
    if result.state != "finished":  # failed samples are being retried
        path.unlink(missing_ok=True)
    elif not is_concluded(run) or path.read_bytes() != content:
        write_atomically(path, content)


def compare_and_report(runs: Sequence[RunFolder], page: Path) -> None:
    """Print a short comparison of finished runs with the target alone, and write an HTML report on all of them.

    The report is written even if the runs cannot be compared because one has no finished samples. Raises
    WarehouseError.
    """
    from warehouse.comparison.contrasts import Settings, compare_runs
    from warehouse.comparison.written import write_short
    from warehouse.options import default_database
    from warehouse.report.page import make_report

    folders = list(dict.fromkeys(str(run.path) for run in runs))
    with _warehouse_errors():
        database = default_database(folders[0])
        try:
            if len(folders) > 1:
                write_short(compare_runs(folders, database, Settings()), sys.stdout)
        finally:
            console = terminal()
            console.print(make_report(folders, database).write(page), markup=False, soft_wrap=True)
    _print_next(runs, database, console)


def _print_next(runs: Sequence[RunFolder], database: Path, console: Console) -> None:
    """Print suggested commands for the last run, compared with the first run on the same dataset and concurrency."""
    last, spec = runs[-1], runs[-1].spec()
    is_usual = database == files.RUNS_FOLDER / files.DATABASE_NAME  # then a run's hash is enough to find the run
    at, name = "" if is_usual else f" --database {quote(str(database))}", spec.digest
    problem = quote(last.problems()[0].id)
    kind, commands = derived.continuation(last), dict[str, str]()
    if kind == "probe_points":
        commands[f"{typed('warehouse.probed')}{at} {name}"] = "results of the probe"
    elif kind is None:
        alike = (spec.dataset, spec.concurrency)
        first = next(run for run in runs if (run.spec().dataset, run.spec().concurrency) == alike)
        other = first.spec().digest if first.path != last.path else "OTHER_RUN"
        commands = {
            f"{typed('warehouse.trace')}{at} {'-- ' * problem.startswith('-')}{name} {problem} 0": "a sample's steps",
            f"{typed('warehouse.compare')}{at} {other} {name}": "tests and differences",
        }
        if len(runs) == 1:
            commands[f"{typed('warehouse.report')}{at} {name} -o report.html"] = "HTML report with charts"
    commands[f"{typed('jobs show')} {name if is_usual else quote(str(last.path))}"] = "all metrics of a run"
    width = max(map(len, commands))
    console.print("Next:", style="bold")
    for command, meaning in commands.items():
        console.print(f"  {command:{width}}  # {meaning}", markup=False, soft_wrap=True)


def judged(database: Path, night: date, since: date | None = None) -> Judged:
    """Judge a night against earlier nights from `since` on, and print and return the verdict.

    Raises WarehouseError.
    """
    from warehouse.nightly.verdict import judge_and_keep

    with _warehouse_errors():
        return judge_and_keep(database, night, since)


def junit(database: Path, night: date, since: date | None, error: str | None, exit_code: int) -> str:
    """Return a night's verdict as JUnit XML, or the error that prevented a verdict."""
    from warehouse.nightly import verdict

    try:
        with _warehouse_errors():
            if error is None:
                return verdict.junit(verdict.judged(database, night, since))
    except WarehouseError as failure:
        error = str(failure)
    return verdict.junit_of_none(night, error or "", exit_code)
