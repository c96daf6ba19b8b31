"""The reproduction of a published table: launch its runs, and print ours beside the published."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shlex import quote

from rich.console import Console

from harness.cli.program import typed
from jobs import launching
from jobs.launching_several import start_several
from jobs.preparation import PreparedLaunch
from jobs.run.folder import RunFolder
from warehouse.candidates import grade_candidates
from warehouse.comparison.show_warnings import merged
from warehouse.database import DatabaseError, WarehouseError, reader, rows
from warehouse.display import plain
from warehouse.errors import one_line
from warehouse.labels import labels
from warehouse.loading.runs import load_run
from warehouse.papers import vocabulary
from warehouse.papers.dry_run import print_plan
from warehouse.papers.entries import SuiteRun, entries_of
from warehouse.papers.plan_costs import check_budget
from warehouse.papers.recorded_runs import recorded_runs
from warehouse.papers.suite_runs import Reproduction, distinct_runs, timed_runs
from warehouse.papers.table import show
from warehouse.render import warnings
from warehouse.summary import summaries


def reproduce(reproduction: Reproduction, *, dry_run: bool = False, only_table: bool = False) -> None:
    """Launch what is not finished and print the table; with `dry_run` print the plan alone.

    Raises ValueError with one line, and what a launch raises.
    """
    console = Console(highlight=False)
    chosen = reproduction.suite
    columns = reproduction.columns or tuple(chosen.columns)
    if unknown := sorted(set(columns) - set(chosen.columns)):
        raise ValueError(f"--column {unknown[0]}: {chosen.name} has {', '.join(chosen.columns)}")
    runs, choice = timed_runs(reproduction, columns)
    if (words := choice.in_words()) and not only_table:
        console.print(words, soft_wrap=not console.is_terminal, markup=False)
    if dry_run:
        print_plan(console, reproduction, runs, choice)
        if reproduction.max_gpu_hours is not None:
            _prepared(reproduction, distinct_runs(runs))
        return
    if not only_table:
        _launch(console, reproduction, runs)
    if not only_table and not reproduction.database.is_file():
        later(chosen.name, console)
        return
    try:
        _print_table(console, reproduction, runs, only_table=only_table)
    except (WarehouseError, DatabaseError) as error:
        raise ValueError(one_line(error)) from error


def later(suite_name: str, console: Console) -> None:
    """Say how to print the table of a suite none of whose runs is finished."""
    console.print("No run is finished yet. To print the table later, use the same flags with:")
    console.print(f"  {typed('harness.reproduce')} {quote(suite_name)} --table", soft_wrap=True, markup=False)


def _launch(console: Console, reproduction: Reproduction, runs: list[SuiteRun]) -> None:
    """Launch every run once, those that share engines together: a baseline may stand in several rows."""
    chosen = reproduction.suite
    prepared = _prepared(reproduction, distinct_runs(runs))
    folders = start_several(prepared, console)
    _print_warnings([folder.path.name for folder in folders], reproduction.database, console)
    if any(metric.measure in vocabulary.OF_GRADED_DRAFTS for metric in chosen.metrics.values()):
        for folder in folders:
            _grade_drafts(folder, reproduction.database)


def _print_warnings(names: Sequence[str], database: Path, console: Console) -> None:
    if not database.is_file():  # on Slurm nothing has ended
        return
    with reader(database) as connection:
        known = {str(row["run_id"]) for row in rows(connection, "SELECT run_id FROM run", {})}
        found = summaries(connection, [name for name in names if name in known])
    short = dict(zip((run.run_id for run in found), labels(found), strict=True))
    for line in merged((f"{run.run_id}: {line}" for run in found for line in warnings(run)), short):
        console.print(plain(line, style="bold red"), soft_wrap=not console.is_terminal)


def _prepared(reproduction: Reproduction, runs: Sequence[SuiteRun]) -> list[PreparedLaunch]:
    """Prepare every run. Raises costs.OverBudget."""
    prepared = [launching.prepare(run.launch) for run in runs if run.launch is not None]
    if reproduction.max_gpu_hours is not None:
        check_budget(reproduction, runs, prepared)
    return prepared


def _grade_drafts(run: RunFolder, database: Path) -> None:
    if grade_candidates(run):
        load_run(run, database)


def _print_table(console: Console, reproduction: Reproduction, runs: list[SuiteRun], *, only_table: bool) -> None:
    with reader(reproduction.database) as connection:
        recorded = recorded_runs(connection, runs, exact_scale=reproduction.exact_scale, either_way=only_table)
        entries = dict(entries_of(connection, reproduction.suite, runs, recorded))
    show(reproduction.suite, entries, {run.plan.column for run in runs}, console)
