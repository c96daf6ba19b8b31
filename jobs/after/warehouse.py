"""The only module in jobs that imports the warehouse, and only when it is needed: the warehouse builds on jobs."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Literal

from rich.console import Console

from harness.cli.program import typed
from harness.problems.problem import Problem
from harness.settings.launch_settings import Launch
from jobs.run.folder import RunFolder
from jobs.run.forecast import Forecast
from jobs.run.spec import RunSpec

if TYPE_CHECKING:
    from jobs.run.shards import Recorded
    from warehouse.nightly.judge import NightVerdict
    from warehouse.results import RunResults


class WarehouseFailed(RuntimeError):
    """The warehouse could not be read or written; the message is one line. Traces and grades are safe."""


@contextmanager
def _warehouse_errors() -> Iterator[None]:
    from warehouse.database import DatabaseError, WarehouseError
    from warehouse.formatting import one_line
    from warehouse.summary import UnknownRun

    try:
        yield
    except (WarehouseError, DatabaseError) as error:
        raise WarehouseFailed(one_line(error)) from error
    except UnknownRun as error:  # the file was replaced meanwhile by one that another program had begun before
        raise WarehouseFailed(str(error)) from error


def database_of(run: RunFolder) -> Path:
    """Return the warehouse beside the run folder."""
    from warehouse.options import database_beside

    return database_beside(run.path)


def check(database: Path) -> None:
    """Raise WarehouseFailed where a database file exists and a run could not be loaded into it when it has ended.

    A database that is locked at the moment passes: loading waits for it.
    """
    from warehouse.database import WarehouseBusy, WarehouseError, WarehouseMissing, reader
    from warehouse.files import check_writable

    try:
        check_writable(database)
        with reader(database, wait_seconds=0.0):
            pass
    except (WarehouseMissing, WarehouseBusy):
        pass
    except WarehouseError as error:
        raise WarehouseFailed(str(error)) from error


def spent_tokens(run: RunFolder, spec: RunSpec, problems: Sequence[Problem]) -> dict[str, Recorded]:
    """Return the tokens that the problems took before, as the warehouse beside the run folder recorded them."""
    from warehouse import run_cost

    return run_cost.spent_tokens(database_of(run), spec, [problem.text for problem in problems])


def forecast(
    run: RunFolder, launch: Launch, spec: RunSpec, num_samples: int, own: Forecast | None, to_time: int = 0
) -> Forecast | None:
    """Return what samples of a launch are likely to take, from the warehouse beside the run folder.

    `own`: what the run itself tells of it; `to_time`: samples to be timed one at a time. None: nothing tells.
    """
    from warehouse import run_cost

    return run_cost.forecast(launch, spec, num_samples, database_of(run), own, to_time)


def load(run: RunFolder) -> None:
    """Load a run into the warehouse beside it. Raises WarehouseFailed."""
    from warehouse.loading.runs import load_run

    with _warehouse_errors():
        load_run(run, database_of(run))


def short_names(specs: Mapping[str, RunSpec]) -> list[str]:
    """Return a short name for each run, by which it can be told from the others; specs: by the folder's name."""
    from warehouse.labels import labels, planned

    return labels([planned(name, spec) for name, spec in specs.items()])


def load_and_print(
    run: RunFolder,
    database: Path,
    console: Console,
    wait_seconds: float | None = None,
    among: str | None = None,
) -> None:
    """Load a run and print its result; of a probe that is what it found, no accuracy: that is of its continuations.

    `wait_seconds`: how long to wait for a busy warehouse; None: as long as its own commands do. `among`: the beginning
    of the only line where the run is one of several. Raises WarehouseFailed.
    """
    from warehouse.database import WAIT_SECONDS
    from warehouse.loading.runs import load_run
    from warehouse.render import in_one_line, render, render_warnings
    from warehouse.summary import summary

    with _warehouse_errors():
        load_run(run, database, WAIT_SECONDS if wait_seconds is None else wait_seconds)
        summaries = summary(database, [run.path.name])
        if among is not None:
            console.print(f"{among}  {in_one_line(summaries[0])}", markup=False, soft_wrap=True)
        elif run.probe_dir.is_dir():
            render_warnings(summaries, console)
            _print_probe(run, database, console)
        else:
            render(summaries, console)


def _print_probe(run: RunFolder, database: Path, console: Console) -> None:
    from warehouse.database import reader
    from warehouse.probed import found, print_found

    with reader(database) as connection:
        print_found(found(connection, run.path.name), console)


def results_of(run: RunFolder, database: Path) -> RunResults:
    """Return the result of a run that is loaded, for programs. Raises WarehouseFailed."""
    from warehouse.results import results

    with _warehouse_errors():
        return results(database, run.path.name)


def compare_and_report(runs: Sequence[RunFolder], page: Path) -> None:
    """Print a short comparison of finished runs with the target alone, and write an HTML report on all of them.

    The report is written even if the runs cannot be compared, which needs a finished sample of each. Raises
    WarehouseFailed.
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
            console = Console(highlight=False)
            console.print(make_report(folders, database).write(page), markup=False, soft_wrap=True)
    _print_next(runs, database, console)


def _print_next(runs: Sequence[RunFolder], database: Path, console: Console) -> None:
    """Print what to do with the runs of a suite, by the last of them and the first with as many samples in flight."""
    from warehouse.options import DATABASE_NAME, RUNS_FOLDER

    last = runs[-1]
    first = next(run for run in runs if run.spec().concurrency == last.spec().concurrency)
    is_usual = database == RUNS_FOLDER / DATABASE_NAME  # where a hash is enough
    at = "" if is_usual else f" --database {quote(str(database))}"
    name = last.spec().digest
    commands = {
        f"{typed('warehouse.trace')}{at} {name} {quote(last.problems()[0].id)} 0": "one sample, step by step",
        f"{typed('warehouse.compare')}{at} {first.spec().digest} {name}": "tests, what differs",
        f"{typed('jobs finalize')} {name if is_usual else quote(str(last.path))}": "all numbers of a run",
    }
    width = max(map(len, commands))
    console.print("Next:", style="bold")
    for command, meaning in commands.items():
        console.print(f"  {command:{width}}  # {meaning}", markup=False, soft_wrap=True)


def judged(database: Path, night: date, since: date | None = None) -> NightVerdict:
    """Return the verdict on a night's runs against those of the nights before; those before `since` are ignored.

    What nights are judged by is kept beside the database, for when run folders are gone. Raises WarehouseFailed.
    """
    from warehouse.nightly import history
    from warehouse.nightly import verdict as nights

    with _warehouse_errors():
        history.keep_nights(database)
        return nights.judged(database, night, since)


def verdict_as(verdict: NightVerdict, shape: Literal["markdown", "json", "junit"]) -> str:
    """Return a verdict as Markdown, as what `warehouse.nightly --json` prints, or as JUnit XML."""
    from warehouse.nightly import verdict as nights

    if shape == "junit":
        return nights.junit(verdict)
    out = io.StringIO()
    nights.write(verdict, out, shape)
    return out.getvalue()


def junit_of_no_verdict(night: date, reason: str, exit_code: int) -> str:
    """Return the JUnit XML of a night on which no verdict was possible."""
    from warehouse.nightly import verdict as nights

    return nights.junit_of_none(night, reason, exit_code)


def print_verdict(verdict: NightVerdict) -> None:
    """Print a verdict as a table."""
    from warehouse.nightly import verdict as nights

    nights.write(verdict, sys.stdout, "table")


def num_graded(database: Path, names: Sequence[str]) -> dict[str, int]:
    """Return how many finished samples of runs the warehouse has grades of, by run; what it lacks is left out.

    A warehouse that cannot be read has none.
    """
    from warehouse.database import DatabaseError, WarehouseError, reader
    from warehouse.nightly.history import num_graded as count

    try:
        with reader(database) as connection:
            return count(connection, names)
    except (WarehouseError, DatabaseError):
        return {}


def files_loaded(database: Path, name: str) -> dict[str, int] | None:
    """Return the sizes of a run's files when they were loaded, by their paths in the run folder.

    Empty where the database lacks the run, None where it cannot be read.
    """
    from warehouse.database import DatabaseError, WarehouseError, WarehouseMissing
    from warehouse.loading.runs import files_of

    try:
        return files_of(database, name)
    except WarehouseMissing:
        return {}
    except (WarehouseError, DatabaseError):
        return None
