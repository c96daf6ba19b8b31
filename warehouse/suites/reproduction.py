"""Reproduce a suite: print the remaining runs and their cost, launch them, and write the table."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Any

import click
from rich.console import Console

from harness.cli.messages import counted
from harness.cli.program import typed
from harness.cli.screen import Column, Line, Screen, Table, printable, terminal
from harness.settings import layers
from harness.settings.declaration import Flags, flag
from harness.settings.launch_settings import Launch
from jobs import suite as suites
from jobs.cli.launches import SUITES
from jobs.continuations import probe
from jobs.drive import drive
from jobs.finished.grading import grade_candidates
from jobs.forecast import Forecast, in_words, total_of
from jobs.outcome import launch_errors_in_one_line
from jobs.preparation import PreparedLaunch, prepare
from warehouse.comparison.show import merged
from warehouse.database import Connection, DatabaseError, WarehouseError, reader, rows
from warehouse.files import DATABASE_NAME, one_line
from warehouse.loading.runs import load_run
from warehouse.measures import SELECTED
from warehouse.options import TableFormat, check_output_folder, choose_format, complete_output
from warehouse.report.summary import labels, summaries
from warehouse.suites import published
from warehouse.suites.costs import check_budget, estimated, timing_hours
from warehouse.suites.own_runs import OwnRun, by_row, own_runs, recorded_ids, state_of
from warehouse.suites.published import (
    TIMED,
    Overrides,
    Reproduction,
    SuiteRun,
    distinct_runs,
    every_sample_alone,
    num_problems,
    timed_runs,
)
from warehouse.suites.run_cost import forecast
from warehouse.suites.table import (
    AT_ONE,
    DEFAULT_METRICS,
    METRICS,
    SuiteTable,
    about,
    own_table,
    published_table,
    recorded_runs,
    write,
)

_FORMATS: Mapping[str, TableFormat] = {".md": "markdown", ".tex": "latex", ".csv": "csv", ".txt": "table"}


@dataclass(frozen=True)
class Printed:
    """Options of a suite's table."""

    metrics: Sequence[str]
    """Names of the metrics. Empty: all metrics of a published table; for a custom suite, the defaults, with the metrics
    of timing samples if there are any.
    """
    shape: TableFormat
    output: Path | None
    """None: standard output."""
    has_intervals: bool


def reproduce(
    name: str | None, values: Mapping[str, Any], typed: Flags, overrides: Flags, max_gpu_hours: float | None
) -> None:
    """Run `harness.reproduce`; every error is reported in one line.

    `values`: options of the command. `typed`: its launch flags. `overrides`: `typed` with limit and samples of --scale.
    """
    if values["listing"]:
        every_suite = {known: published.load(known) for known in published.names()}
        numbers = {known: len(list(published.planned(suite))) for known, suite in every_suite.items()}
        listed = [(known, f"{numbers[known]} runs", f"{one.title} ({one.place})") for known, one in every_suite.items()]
        rest = Line(f"or a TOML file of launches; bundled: {', '.join(SUITES)}")
        Screen(sys.stdout).show([Table([Column("")] * 3, listed), rest])
        return
    profile = layers.flags_of_profile(None if typed.get("profile") is None else str(typed["profile"]))
    output = {"output": "runs", **profile, **typed}["output"]
    database = values["database"] or Path(str(output)) / DATABASE_NAME
    path = Path(name or "")
    is_file = path.suffix or path.is_file() or len(path.parts) > 1
    file = None if name in published.names() else path if is_file else SUITES.get(str(name))
    _refuse(values, typed, is_own=file is not None)
    with launch_errors_in_one_line():
        if name is None:
            print_costs(overrides, values["aligned"], database, terminal())
            return
        check_output_folder("-o", values["output_file"])
        printed = Printed(
            metrics=tuple(dict.fromkeys(values["metrics"])),
            shape=choose_format(values["output_format"], values["output_file"], _FORMATS, "table"),
            output=values["output_file"],
            has_intervals=not values["no_intervals"],
        )
        how = {"dry_run": values["dry_run"], "only_table": values["only_table"]}
        if file is not None:
            reproduce_own(file, overrides, values["columns"], values["database"], printed, **how)
            return
        asked = Reproduction(
            suite=published.load(name),
            overrides={key: value for key, value in overrides.items() if key != "max_gpu_hours"},
            max_gpu_hours=max_gpu_hours,
            every_sample_alone=values["every_sample_alone"],
            exact_scale=values["scale"] not in (None, "paper"),
            columns=values["columns"],
            aligned=values["aligned"],
            database=database,
        )
        reproduce_published(asked, printed, **how)


def _refuse(values: Mapping[str, Any], typed: Flags, *, is_own: bool) -> None:
    name, alone = values["name"], values["every_sample_alone"]
    refused = {
        f"--costs covers all published suites: omit {name}, or use --dry-run": values["costs"] and name is not None,
        "SUITE is missing: pass a name from python -m harness.reproduce --list, or a TOML file": name is None
        and not values["costs"],
        "--dry-run and --table are mutually exclusive: --dry-run prints the plan, --table the table": values["dry_run"]
        and values["only_table"],
        f"--every-sample-alone is only valid for published tables; in {name}, use latency-sample": is_own and alone,
        f"--aligned is only valid for published tables; {name} sets its own drafts": is_own and values["aligned"],
        **{
            f"--every-sample-alone uses one sample in flight: omit {flag(other)}": alone and typed.get(other, 1) != 1
            for other in ("latency_sample", "concurrency")
        },
    }
    for message, is_wrong in refused.items():
        if is_wrong:
            raise click.UsageError(message)


def reproduce_published(
    asked: Reproduction, printed: Printed, *, dry_run: bool = False, only_table: bool = False
) -> None:
    """Launch the unfinished runs and write the table; with `dry_run`, only print the plan.

    Raises ValueError (one line), and any error of a launch.
    """
    console, suite = terminal(), asked.suite
    _check("--metric", printed.metrics, list(suite.metrics))
    if unknown := sorted(set(asked.columns) - set(suite.columns)):
        raise ValueError(f"--column {unknown[0]}: not in {suite.name}; valid: {', '.join(suite.columns)}")
    runs = timed_runs(asked)
    if dry_run:
        _print_published_plan(console, asked, runs)
        if asked.max_gpu_hours is not None:
            _prepared(asked, distinct_runs(runs))
        return

    def table(connection: Connection) -> SuiteTable:
        recorded = recorded_runs(connection, runs, exact_scale=asked.exact_scale)
        return published_table(connection, suite, runs, recorded, printed.metrics or tuple(suite.metrics))

    if not only_table:
        _launch(console, asked, runs)
    _write(suite.name, asked.database, table, printed, console, is_there=only_table)


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
    """Launch the unfinished runs and write the table; with `dry_run`, only print the plan.

    database: by default the one next to the runs. Raises ValueError (one line), and any error of a launch.
    """
    _check("--metric", printed.metrics, list(METRICS))
    suite = suites.read(file, overrides=overrides)
    database = database or suite.output / DATABASE_NAME
    runs = own_runs(suite, columns)
    console = terminal()
    if dry_run:
        _print_own_plan(Screen(console), suite.name, runs, database)
        if suite.probe is not None:
            words = probe.in_words([run.prepared for run in runs], suite.probe)
            console.print(words, soft_wrap=not console.is_terminal)
        return

    def table(connection: Connection) -> SuiteTable:
        now = runs if only_table else own_runs(suite, columns)
        is_timed = any(run.prepared.launch.latency_sample is not None for run in now)
        usual = (*DEFAULT_METRICS, *AT_ONE) if is_timed else DEFAULT_METRICS
        return own_table(connection, suite.name, now, printed.metrics or usual)

    if not only_table:
        launches = suites.prepare(suite, None, [run.number for run in runs])
        drive(suites.rounds(launches, suite.probe, console), console)
    _write(str(file), database, table, printed, console, is_there=only_table)


def _check(option: str, names: Sequence[str], valid: Sequence[str]) -> None:
    if unknown := sorted(set(names) - set(valid)):
        raise ValueError(f"{option} {unknown[0]}: unknown; valid: {', '.join(valid)}")


def _write(
    suite_name: str,
    database: Path,
    read: Callable[[Connection], SuiteTable],
    printed: Printed,
    console: Console,
    *,
    is_there: bool,
) -> None:
    """Write the table; if there is no database yet, print how to get the table later.

    is_there: whether a missing database is an error.
    """
    if not is_there and not database.is_file():
        console.print("No run is finished yet. To print the table later, use the same flags with:")
        console.print(f"  {typed('harness.reproduce')} {quote(suite_name)} --table", soft_wrap=True, markup=False)
        return
    try:
        with reader(database) as connection:
            table = read(connection)
    except (WarehouseError, DatabaseError) as error:
        raise ValueError(one_line(error)) from error
    with complete_output(printed.output) as out:
        write(table, out, printed.shape, has_intervals=printed.has_intervals)
    if printed.output is not None:
        cells = table.cells.values()
        done = sum(0 < cell.num_samples <= cell.num_finished - (cell.num_ungraded or 0) for cell in cells)
        graded = "" if table.is_published else " and graded"
        told = f"{printed.output}: {done} of {len(cells)} runs are finished{graded}"
        console.print(printable(told), markup=False)


def _launch(console: Console, asked: Reproduction, runs: Sequence[SuiteRun]) -> None:
    """Launch every distinct run, print the warnings of loaded runs, and grade candidates if a metric needs that."""
    folders = drive([_prepared(asked, distinct_runs(runs))], console)
    if asked.database.is_file():  # on Slurm, no run has finished yet
        with reader(asked.database) as connection:
            known = {str(row["run_id"]) for row in rows(connection, "SELECT run_id FROM run", {})}
            found = summaries(connection, [folder.path.name for folder in folders if folder.path.name in known])
        short = dict(zip((run.run_id for run in found), labels(found), strict=True))
        for line in merged((f"{run.run_id}: {line}" for run in found for line in run.warnings), short):
            Screen(console).say(line, "bold red")
    if any(metric.registered.source is SELECTED for metric in asked.suite.metrics.values()):
        for folder in folders:
            if grade_candidates(folder):
                load_run(folder, asked.database)


def _prepared(asked: Reproduction, runs: Sequence[SuiteRun]) -> list[PreparedLaunch]:
    prepared = [prepare(run.launch) for run in runs if run.launch is not None]
    if asked.max_gpu_hours is not None:
        check_budget(asked, runs, prepared)
    return prepared


def _print_own_plan(screen: Screen, name: str, runs: Sequence[OwnRun], database: Path) -> None:
    """Print the state of each row and the remaining GPU-hours per run and in total."""
    of_rows = by_row(runs)
    states = Counter(state_of(members) for members in of_rows.values())
    told = ", ".join(f"{states[state]} {state}" for state in ("done", "partly done", "missing") if states[state])
    screen.say(f"{name}: {counted(len(of_rows), 'row')}, {counted(len(runs), 'run')}; rows: {told}")
    recorded = _recorded(runs, database)
    left: list[Forecast | None] = []
    for row, members in of_rows.items():
        screen.say(f"  {row}: {state_of(members)}")
        for run in members:
            line = f"    {run.dataset}: {state_of([run])}, {run.finished} of {counted(run.num_samples, 'sample')}"
            if run.to_time:
                line += f", {run.to_time} still to be timed alone"
            if state_of([run]) != "done":
                number, prepared = run.num_samples - run.finished, run.prepared
                left.append(forecast(prepared.launch, prepared.plan.spec, number, database, to_time=run.to_time))
                line += f", {in_words(left[-1]) if left[-1] else 'GPU-hours unknown'}"
                if recorded.get(run.run_id, run.run_id) != run.run_id:
                    line += f"; the database has {recorded[run.run_id]}, with the same models at other paths"
            screen.say(line)
    screen.say(total_of(left) if left else "Total: all runs are finished.")
    if any(cost is None for cost in left):
        screen.say("GPU-hours unknown: found no recorded run with these settings; run a few problems (--scale 5x1).")


def _recorded(runs: Sequence[OwnRun], database: Path) -> dict[str, str]:
    """Return the database ids of the runs by their ids here; empty if the database cannot be read."""
    try:
        with reader(database) as connection:
            return recorded_ids(connection, runs)
    except (WarehouseError, DatabaseError):
        return {}


def _print_published_plan(console: Console, asked: Reproduction, runs: Sequence[SuiteRun]) -> None:
    """Print the cost and flags of every distinct run, and the total."""
    screen = Screen(console)
    screen.say(asked.suite.heading, "bold")
    known: list[float] = []
    printed: list[Launch] = []
    left_out: list[str] = []
    for run in runs:
        label = f"{run.plan.row.label} · {asked.suite.columns[run.plan.column].label}"
        if run.launch is None:
            left_out.append(label)
            screen.say(f"  {label}: not planned; requires {run.awaits}")
        elif run.launch in printed:
            screen.say(f"  {label}: same run as a row above")
        else:
            printed.append(run.launch)
            cost, timing = estimated(asked, run.launch, run.plan), timing_hours(asked, run)
            if cost is None:
                left_out.append(label)
            else:
                known.append(cost.gpu_hours + timing)
            size = f"{num_problems(run.launch)} problems × {run.launch.samples} samples"
            line = f"  {label}: {run.launch.method}, {size}, {_cost_in_words(cost)}"
            if cost and timing:
                line += f", plus {timing:,.1f} for {run.launch.latency_sample} samples timed one at a time"
            elif run.launch.latency_sample and (slow := estimated(asked, every_sample_alone(run.launch), run.plan)):
                line += f"; with every sample alone {_cost_in_words(slow)}"
            screen.say(line)
            Screen(console, is_whole=True).say(f"      {' '.join(layers.arguments(run.plan.flags))}", "dim")
    screen.say(f"Total: {sum(known):,.1f} GPU-hours" if known else "Total: GPU-hours unknown")
    if any(launch.latency_sample for launch in printed) and "latency_sample" not in asked.overrides:
        screen.say("--every-sample-alone times all samples, not only these.")
    if left_out:
        screen.say(f"Not included: {'; '.join(left_out)}")
    for line in about(asked.suite):
        screen.say(line)


def _cost_in_words(cost: Forecast | None) -> str:
    if cost is None:
        return "no estimate"
    if not cost.gpu_hours:
        return f"{cost.worker_hours:,.1f} worker-hours ({cost.source})"
    return f"{cost.gpu_hours:,.1f} GPU-hours ({cost.source})"


def print_costs(overrides: Overrides, aligned: str | None, database: Path, console: Console) -> None:
    """Print the cost of every published suite, with timing samples and with every sample alone.

    Raises ValueError if an override is not valid for a suite.
    """
    costs = []
    for suite in map(published.load, published.names()):
        asked = Reproduction(suite, overrides, False, (), aligned, database)
        number, hours = _costs(asked)
        costs.append((suite.name, number, hours, _costs(replace(asked, every_sample_alone=True))[1]))
    screen, names = Screen(console), ("suite", "runs", "GPU-hours", "every sample alone")
    screen.table(Table([Column(name, is_right=name != "suite") for name in names], costs))
    screen.say(
        "Excludes runs that need a model you have not trained. Suites share runs, so their total is below the sum. "
        "GPU-hours: from recorded runs, else from published values, otherwise unknown; "
        f"latency from {TIMED} samples of each run."
    )


def _costs(asked: Reproduction) -> tuple[str, str]:
    """Return the number of a suite's distinct runs, and the sum of the known GPU-hours."""
    runs, hours = distinct_runs(timed_runs(asked)), list[float]()
    for run in runs:
        if run.launch and (cost := estimated(asked, run.launch, run.plan)):
            hours.append(cost.gpu_hours + timing_hours(asked, run))
    unknown = f", {len(runs) - len(hours)} unknown" if len(hours) < len(runs) else ""
    return str(len(runs)), f"{sum(hours):,.1f}{unknown}" if hours else "unknown"
