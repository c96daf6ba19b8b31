"""The reproduction of a suite of one's own: launch what is left, say what that takes, write its table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from jobs import suite as suites
from jobs.probing import of_suite
from warehouse.database import DatabaseError, WarehouseError, reader
from warehouse.display import printable
from warehouse.errors import one_line
from warehouse.formats import TableFormat
from warehouse.options import DATABASE_NAME, complete_output
from warehouse.own_tables.cost import print_plan
from warehouse.own_tables.metrics import AT_ONE, DEFAULT_METRICS, METRICS
from warehouse.own_tables.planned import OwnRun, own_runs
from warehouse.own_tables.table import own_table
from warehouse.own_tables.written import write
from warehouse.papers.reproduction import later


@dataclass(frozen=True)
class OwnReproduction:
    """A suite's file, and what is asked of it."""

    file: Path
    overrides: Mapping[str, Any]
    """Flags of the launcher on top of the suite's, by name."""
    columns: Sequence[str]
    """Datasets; empty: all."""
    metrics: Sequence[str]
    """Empty: the usual ones, with those that need timing samples where a run has some."""
    shape: TableFormat
    output: Path | None
    """None: standard output."""
    has_intervals: bool
    database: Path | None
    """None: the one beside the runs."""


def reproduce(asked: OwnReproduction, *, dry_run: bool = False, only_table: bool = False) -> None:
    """Launch what is not finished and write the table; with `dry_run` print the plan alone.

    Raises ValueError with one line, and what a launch raises.
    """
    if unknown := sorted(set(asked.metrics) - set(METRICS)):
        raise ValueError(f"--metric {unknown[0]}: unknown; valid: {', '.join(METRICS)}")
    suite = suites.read(asked.file, overrides=asked.overrides)
    database = asked.database or suite.output / DATABASE_NAME
    runs = own_runs(suite, asked.columns)
    console = Console(highlight=False)
    if dry_run:
        print_plan(suite.name, runs, database, console)
        if suite.probe is not None:
            words = of_suite.in_words([run.prepared for run in runs], suite.probe)
            console.print(words, soft_wrap=not console.is_terminal)
        return
    if not only_table:
        launches = suites.prepare(suite, None, [run.number for run in runs])
        suites.start(launches)
        of_suite.follow(launches, suite.probe, console)
        if not database.is_file():
            later(str(asked.file), console)
            return
        runs = own_runs(suite, asked.columns)
    try:
        with reader(database) as connection:
            table = own_table(connection, suite.name, runs, asked.metrics or _usual(runs))
        with complete_output(asked.output) as out:
            write(table, out, asked.shape, has_intervals=asked.has_intervals)
    except (WarehouseError, DatabaseError) as error:
        raise ValueError(one_line(error)) from error
    if asked.output is not None:
        done = sum(cell.finished - cell.ungraded >= cell.run.num_samples for cell in table.cells.values())
        console.print(printable(f"{asked.output}: {done} of {len(runs)} runs are finished and graded"), markup=False)


def _usual(runs: Sequence[OwnRun]) -> tuple[str, ...]:
    is_timed = any(run.prepared.launch.latency_sample is not None for run in runs)
    return (*DEFAULT_METRICS, *AT_ONE) if is_timed else DEFAULT_METRICS
