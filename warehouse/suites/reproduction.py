"""The reproduction of a suite: launch what is left of its runs, and write its table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from rich.console import Console

from harness.cli.program import typed
from harness.cli.screen import Screen, printable
from jobs import probe
from jobs import suite as suites
from jobs.drive import drive
from jobs.preparation import PreparedLaunch, prepare
from warehouse.candidates import grade_candidates
from warehouse.comparison.show import merged
from warehouse.database import DatabaseError, WarehouseError, reader, rows
from warehouse.files import one_line
from warehouse.labels import labels
from warehouse.loading.runs import load_run
from warehouse.options import DATABASE_NAME, TableFormat, complete_output
from warehouse.render import warnings
from warehouse.suites.own_runs import OwnRun, own_runs
from warehouse.suites.published_runs import Reproduction, SuiteRun, distinct_runs, recorded_runs, timed_runs
from warehouse.suites.published_suites import OF_GRADED_DRAFTS, Overrides
from warehouse.suites.suite_cells import AT_ONE, DEFAULT_METRICS, METRICS, own_table, published_table
from warehouse.suites.suite_plans import check_budget, print_own_plan, print_published_plan
from warehouse.suites.suite_table import SuiteTable, write
from warehouse.summary import summaries


@dataclass(frozen=True)
class Printed:
    """What is asked of a suite's table."""

    metrics: Sequence[str]
    """Empty: all of a published table; of an own suite the usual ones, and those of timing samples where it has any."""
    shape: TableFormat
    output: Path | None
    """None: standard output."""
    has_intervals: bool


def reproduce_published(
    asked: Reproduction, printed: Printed, *, dry_run: bool = False, only_table: bool = False
) -> None:
    """Launch what is not finished and write the table; with `dry_run` print the plan alone.

    Raises ValueError with one line, and what a launch raises.
    """
    console, chosen = Console(highlight=False), asked.suite
    _check("--metric", printed.metrics, list(chosen.metrics))
    if unknown := sorted(set(asked.columns) - set(chosen.columns)):
        raise ValueError(f"--column {unknown[0]}: {chosen.name} has {', '.join(chosen.columns)}")
    runs = timed_runs(asked, asked.columns or tuple(chosen.columns))
    if dry_run:
        print_published_plan(console, asked, runs)
        if asked.max_gpu_hours is not None:
            _prepared(asked, distinct_runs(runs))
        return
    if not only_table:
        _launch(console, asked, runs)
        if not asked.database.is_file():
            _later(chosen.name, console)
            return
    try:
        with reader(asked.database) as connection:
            recorded = recorded_runs(connection, runs, exact_scale=asked.exact_scale, either_way=only_table)
            metrics = printed.metrics or tuple(chosen.metrics)
            table = published_table(connection, chosen, runs, recorded, metrics)
        _write(table, printed, console)
    except (WarehouseError, DatabaseError) as error:
        raise ValueError(one_line(error)) from error


def reproduce_own(
    file: Path,
    overrides: Overrides,
    columns: Sequence[str],
    database: Path | None,
    printed: Printed,
    *,
    dry_run: bool = False,
    only_table: bool = False,
) -> None:
    """Launch what is not finished and write the table; with `dry_run` print the plan alone.

    database: without it the one beside the runs. Raises ValueError with one line, and what a launch raises.
    """
    _check("--metric", printed.metrics, list(METRICS))
    suite = suites.read(file, overrides=overrides)
    database = database or suite.output / DATABASE_NAME
    runs = own_runs(suite, columns)
    console = Console(highlight=False)
    if dry_run:
        print_own_plan(suite.name, runs, database, console)
        if suite.probe is not None:
            words = probe.in_words([run.prepared for run in runs], suite.probe)
            console.print(words, soft_wrap=not console.is_terminal)
        return
    if not only_table:
        launches = suites.prepare(suite, None, [run.number for run in runs])
        drive(suites.rounds(launches, suite.probe, console), console)
        if not database.is_file():
            _later(str(file), console)
            return
        runs = own_runs(suite, columns)
    try:
        with reader(database) as connection:
            table = own_table(connection, suite.name, runs, printed.metrics or _usual(runs))
        _write(table, printed, console)
    except (WarehouseError, DatabaseError) as error:
        raise ValueError(one_line(error)) from error


def _check(option: str, names: Sequence[str], valid: Sequence[str]) -> None:
    if unknown := sorted(set(names) - set(valid)):
        raise ValueError(f"{option} {unknown[0]}: unknown; valid: {', '.join(valid)}")


def _usual(runs: Sequence[OwnRun]) -> tuple[str, ...]:
    is_timed = any(run.prepared.launch.latency_sample is not None for run in runs)
    return (*DEFAULT_METRICS, *AT_ONE) if is_timed else DEFAULT_METRICS


def _write(table: SuiteTable, printed: Printed, console: Console) -> None:
    with complete_output(printed.output) as out:
        write(table, out, printed.shape, has_intervals=printed.has_intervals)
    if printed.output is not None:
        cells = table.cells.values()
        done = sum(0 < cell.num_samples <= cell.num_finished - (cell.num_ungraded or 0) for cell in cells)
        told = (
            f"{printed.output}: {done} of {len(cells)} runs are finished{'' if table.is_published else ' and graded'}"
        )
        console.print(printable(told), markup=False)


def _later(suite_name: str, console: Console) -> None:
    """Say how to print the table of a suite none of whose runs is finished."""
    console.print("No run is finished yet. To print the table later, use the same flags with:")
    console.print(f"  {typed('harness.reproduce')} {quote(suite_name)} --table", soft_wrap=True, markup=False)


def _launch(console: Console, asked: Reproduction, runs: Sequence[SuiteRun]) -> None:
    """Launch every run once, those that share engines together: a baseline may stand in several rows."""
    folders = drive([_prepared(asked, distinct_runs(runs))], console)
    _print_warnings([folder.path.name for folder in folders], asked.database, console)
    if any(metric.measure in OF_GRADED_DRAFTS for metric in asked.suite.metrics.values()):
        for folder in folders:
            if grade_candidates(folder):
                load_run(folder, asked.database)


def _print_warnings(names: Sequence[str], database: Path, console: Console) -> None:
    if not database.is_file():  # on Slurm nothing has ended
        return
    with reader(database) as connection:
        known = {str(row["run_id"]) for row in rows(connection, "SELECT run_id FROM run", {})}
        found = summaries(connection, [name for name in names if name in known])
    short = dict(zip((run.run_id for run in found), labels(found), strict=True))
    for line in merged((f"{run.run_id}: {line}" for run in found for line in warnings(run)), short):
        Screen(console).say(line, "bold red")


def _prepared(asked: Reproduction, runs: Sequence[SuiteRun]) -> list[PreparedLaunch]:
    """Prepare every run. Raises launch_plan.OverBudget."""
    prepared = [prepare(run.launch) for run in runs if run.launch is not None]
    if asked.max_gpu_hours is not None:
        check_budget(asked, runs, prepared)
    return prepared
