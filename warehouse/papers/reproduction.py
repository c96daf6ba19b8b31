"""The reproduction of a published table: launch its runs, estimate what they take, print ours beside the published."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Any

from rich.console import Console

from harness import hardware
from harness.cli import options
from harness.cli.program import typed
from harness.launch_options import Launch
from harness.methods import defaults
from harness.methods.values import parameter_names
from jobs import costs, launching
from jobs.engine_plan import planned_starts
from jobs.launching_several import start_several
from jobs.preparation import PreparedLaunch
from jobs.run.folder import RunFolder
from warehouse.candidates import grade_candidates
from warehouse.database import Connection, DatabaseError, WarehouseError, reader
from warehouse.errors import one_line
from warehouse.loading.runs import load_run
from warehouse.measures import runs_like
from warehouse.papers import conditions, estimate, latency_sample, published, suite, timing_plan, vocabulary
from warehouse.papers.entries import SuiteRun, entries_of
from warehouse.papers.estimate import Estimate, Machine
from warehouse.papers.table import about, show
from warehouse.papers.timing_plan import Choice


@dataclass(frozen=True)
class Reproduction:
    """A suite, and what is to be different from the paper."""

    suite: suite.Suite
    overrides: Mapping[str, Any]
    """Flags of the launcher on top of the suite's, by name."""
    exact_scale: bool
    """Whether only runs of exactly this number of problems and samples count."""
    columns: tuple[str, ...]
    """Empty: all."""
    aligned: str | None
    """SCoT's aligned draft, for the rows that need it."""
    hardware_file: Path | None
    database: Path
    max_gpu_hours: float | None = None
    """The budget of all runs together; None: there is none."""
    every_sample_alone: bool = False
    """Whether latencies are measured of every sample, not estimated from a sample of them."""


def reproduce(reproduction: Reproduction, *, dry_run: bool = False, only_table: bool = False) -> None:
    """Launch what is not finished and print the table; with `dry_run` print the plan alone.

    Raises ValueError with one line, and what a launch raises.
    """
    console = Console(highlight=False)
    chosen = reproduction.suite
    columns = reproduction.columns or tuple(chosen.columns)
    if unknown := sorted(set(columns) - set(chosen.columns)):
        raise ValueError(f"--column {unknown[0]}: {chosen.name} has {', '.join(chosen.columns)}")
    runs, choice = timed_runs(reproduction, columns, by_database=only_table)
    if (words := choice.in_words()) and not only_table:
        console.print(words, soft_wrap=not console.is_terminal, markup=False)
    if dry_run:
        _print_plan(console, reproduction, runs, choice)
        if reproduction.max_gpu_hours is not None:
            _prepared(reproduction, _distinct(runs))
        return
    if not only_table:
        _launch(console, reproduction, runs)
    if not only_table and not reproduction.database.is_file():
        later(chosen.name, console)
        return
    try:
        _print_table(console, reproduction, runs)
    except (WarehouseError, DatabaseError) as error:
        raise ValueError(one_line(error)) from error


def timed_runs(
    reproduction: Reproduction, columns: Collection[str], *, by_database: bool = False
) -> tuple[list[SuiteRun], Choice]:
    """Return the runs of some columns, and how their latencies are measured.

    `by_database`: by the runs that the database has, instead of the run folders of these very launches.
    """
    runs = [
        suite_run(plan, reproduction.overrides, reproduction.aligned)
        for plan in suite.planned(reproduction.suite)
        if plan.column in columns
    ]
    if reproduction.every_sample_alone or "concurrency" in reproduction.overrides:
        return runs, Choice("alone")
    sampled = [
        replace(run, launch=timing_plan.sampled(reproduction.suite, run.launch)) if run.launch else run for run in runs
    ]
    pairs = [
        (run.launch, other.launch) for run, other in zip(runs, sampled, strict=True) if run.launch and other.launch
    ]
    if reproduction.overrides.get("latency_sample") is not None or not pairs:
        return sampled, Choice("sample")
    choice = timing_plan.choose(pairs, reproduction.database if by_database else None, pairs[0][0].output)
    return (sampled if choice.way == "sample" else runs), choice


def later(suite_name: str, console: Console) -> None:
    """Say how to print the table of a suite none of whose runs is finished."""
    console.print("No run is finished yet. To print the table later, use the same flags with:")
    console.print(f"  {typed('harness.reproduce')} {quote(suite_name)} --table", soft_wrap=True, markup=False)


def suite_run(plan: suite.Planned, overrides: Mapping[str, Any], aligned: str | None) -> SuiteRun:
    """Build the launches of a suite's run. Raises ValueError with one line."""
    flags, overrides = dict(plan.flags), dict(overrides)
    awaits = plan.row.awaits
    if plan.row.model_of == "aligned":
        awaits = awaits or (None if aligned else "SCoT's aligned draft: train it and name it with --aligned")
        flags |= {"draft": aligned} if aligned else {}
        overrides.pop("draft", None)  # it names the draft of the other rows
    if plan.row.adapter == "needed" and "selection_adapter" not in overrides:
        awaits = awaits or "SCoT's selection adapter: train it and name it with --selection-adapter"
    if plan.row.adapter == "never" or flags["method"] != "scot":
        overrides.pop("selection_adapter", None)
    if awaits:
        return SuiteRun(plan, None, None, awaits)
    method = str(flags["method"])
    # A suite may hold several methods: a hyper-parameter applies to the rows whose method has it.
    foreign = set(parameter_names()) - set(defaults(method))
    applicable = {name: value for name, value in overrides.items() if name not in foreign}
    underscored = {name.replace("-", "_"): value for name, value in flags.items()}
    return SuiteRun(plan, suite.launch_of(flags), suite.launch_of({**underscored, **applicable}), None)


def _launch(console: Console, reproduction: Reproduction, runs: list[SuiteRun]) -> None:
    """Launch every run once, those that share engines together: a baseline may stand in several rows."""
    chosen = reproduction.suite
    prepared = _prepared(reproduction, _distinct(runs))
    numbers = itertools.count(1)
    folders = start_several(
        prepared, console, lambda _: console.rule(f"{chosen.name}: run {next(numbers)} of {len(prepared)}")
    )
    if any(metric.measure in vocabulary.OF_GRADED_DRAFTS for metric in chosen.metrics.values()):
        for folder in folders:
            _grade_drafts(folder, reproduction.database)


def _distinct(runs: Sequence[SuiteRun]) -> list[SuiteRun]:
    distinct: list[SuiteRun] = []
    for run in runs:
        if run.launch is not None and run.launch not in [other.launch for other in distinct]:
            distinct.append(run)
    return distinct


def _prepared(reproduction: Reproduction, runs: Sequence[SuiteRun]) -> list[PreparedLaunch]:
    """Prepare every run, under the budget. Raises costs.OverBudget."""
    prepared = [launching.prepare(run.launch) for run in runs if run.launch is not None]
    prepared = costs.under(prepared, reproduction.max_gpu_hours)
    if reproduction.max_gpu_hours is not None:
        _check_budget(reproduction, runs, prepared)
    return prepared


def _check_budget(reproduction: Reproduction, runs: Sequence[SuiteRun], prepared: Sequence[PreparedLaunch]) -> None:
    """Raise costs.OverBudget where the samples that are left take more than the budget, by the plan's estimates."""
    machine, limit = machine_of(reproduction), reproduction.max_gpu_hours or 0.0
    hours = 0.0
    for run, planned in zip(runs, prepared, strict=True):
        asked = planned.launch.latency_sample
        ways = both_ways_of(reproduction, run, machine, asked) if asked else None
        whole = ways.batches if ways else cost.gpu_hours if (cost := estimated(reproduction, run, machine)) else 0.0
        hours += whole * planned.num_left / planned.plan.spec.num_samples
        if ways and asked:
            hours += ways.timing * planned.num_to_time / asked
    if hours > limit:
        raise costs.OverBudget(
            f"--max-gpu-hours {limit:g} is below the estimate: {hours:,.1f} GPU-hours are left (see --dry-run)"
        )


def machine_of(reproduction: Reproduction) -> Machine:
    """Return the machine that the estimates are for."""
    file = reproduction.hardware_file
    return Machine(hardware.read(file), is_papers=False) if file else estimate.papers_machine(reproduction.suite)


def _grade_drafts(run: RunFolder, database: Path) -> None:
    if grade_candidates(run):
        load_run(run, database)


def _print_plan(console: Console, reproduction: Reproduction, runs: list[SuiteRun], choice: Choice) -> None:
    chosen = reproduction.suite
    machine = machine_of(reproduction)
    title = f"{chosen.name}: {chosen.title} ({chosen.paper}, {chosen.version}, {chosen.place})"
    console.print(title, style="bold", soft_wrap=not console.is_terminal)
    gpu_hours, both_ways = 0.0, latency_sample.Hours()
    timed = latency_sample.num_timed([run.launch for run in runs if run.launch is not None])
    printed: list[Launch] = []
    left_out: list[str] = []
    for run in runs:
        label = f"{run.plan.row.label} · {chosen.columns[run.plan.column].label}"
        if run.launch is None:
            left_out.append(label)
            console.print(
                f"  {label}: not planned, awaits {run.awaits}", soft_wrap=not console.is_terminal, markup=False
            )
        elif run.launch in printed:
            console.print(
                f"  {label}: the same run as one above, with these flags",
                soft_wrap=not console.is_terminal,
                markup=False,
            )
        else:
            printed.append(run.launch)
            cost = estimated(reproduction, run, machine)
            if cost is None:
                left_out.append(label)
            ways = both_ways_of(reproduction, run, machine, timed)
            timing = ways.timing if ways and latency_sample.is_asked(run.launch) else 0.0
            if cost and cost.gpu_hours and timing and ways:
                cost = cost.with_gpu_hours(ways.batches)
            gpu_hours += timing + (cost.gpu_hours if cost else 0.0)
            both_ways += ways or latency_sample.Hours()
            size = f"{conditions.num_problems(run.launch)} problems × {run.launch.samples} samples"
            line = f"  {label}: {run.launch.method}, {size}, {_cost_in_words(cost)}"
            if timing:
                line += f", and {timing:,.1f} for {run.launch.latency_sample} samples timed one at a time"
            console.print(line, soft_wrap=not console.is_terminal, markup=False)
            words = " ".join(options.arguments(run.plan.flags))
            console.print(f"      {words}", soft_wrap=True, markup=False, style="dim")
    speeds = f"{machine.hardware.name}; {machine.hardware.source}"
    console.print(
        f"Total: {gpu_hours:,.1f} GPU-hours. Speeds assumed by the model: {speeds}", soft_wrap=not console.is_terminal
    )
    if both_ways.alone:
        is_asked = any(map(latency_sample.is_asked, printed))
        words = both_ways.as_asked() if is_asked else both_ways.as_could_be(timed)
        if choice.way == "sample" and "latency_sample" not in reproduction.overrides:
            words += f" {timing_plan.FLAG} measures every sample."
        console.print(words, soft_wrap=not console.is_terminal)
    alone, together = planned_starts(printed)
    if together < alone:
        console.print(f"Starts of engines on each worker: {together}; {alone} if every run started its own.")
    if left_out:
        console.print(f"Not included: {'; '.join(left_out)}", soft_wrap=not console.is_terminal, markup=False)
    about(chosen, console)


def both_ways_of(
    reproduction: Reproduction, run: SuiteRun, machine: Machine, timed: int
) -> latency_sample.Hours | None:
    """Return what a run takes alone and with a latency sample; None where it is not there for a latency alone."""
    if run.launch is None or run.paper is None or not latency_sample.measures_latency(reproduction.suite, run.launch):
        return None
    own, of_paper = (published.setting(reproduction.suite, run.plan, launch) for launch in (run.launch, run.paper))

    def by_plan(launch: Launch) -> Estimate | None:
        return estimated(reproduction, replace(run, launch=launch), machine)

    def by_model(launch: Launch) -> Estimate | None:
        return estimate.modelled(launch, own, of_paper, published.everything(), machine)

    start_hours = machine.hardware.start_seconds / 3600 * machine.gpus(run.launch)
    return latency_sample.hours(run.launch, timed, start_hours, by_plan, by_model)


def _cost_in_words(cost: Estimate | None) -> str:
    if cost is None:
        return "no estimate"
    if not cost.gpu_hours:
        return f"{cost.worker_hours:,.1f} worker-hours ({cost.source})"
    return f"{cost.gpu_hours:,.1f} GPU-hours ({cost.source})"


def estimated(reproduction: Reproduction, run: SuiteRun, machine: Machine) -> Estimate | None:
    """Estimate a planned run: from recorded runs of the same kind, otherwise from what the papers publish.

    Raises ValueError if the hardware file lacks a model.
    """
    if run.launch is None or run.paper is None:
        return None
    try:
        with reader(reproduction.database) as connection:
            for recorded in runs_like(connection, conditions.run_columns(run.launch)):
                if from_history := estimate.from_history(run.launch, recorded):
                    return from_history
    except (WarehouseError, DatabaseError):
        pass  # no history: the papers answer
    own, of_paper = (published.setting(reproduction.suite, run.plan, launch) for launch in (run.launch, run.paper))
    return estimate.estimate(run.launch, own, of_paper, published.everything(), machine)


def _print_table(console: Console, reproduction: Reproduction, runs: list[SuiteRun]) -> None:
    with reader(reproduction.database) as connection:
        recorded = {
            (run.plan.row.label, run.plan.column): _recorded(connection, run, reproduction.exact_scale) for run in runs
        }
        entries = dict(entries_of(connection, reproduction.suite, runs, recorded))
    show(reproduction.suite, entries, {run.plan.column for run in runs}, console)


def _recorded(connection: Connection, run: SuiteRun, exact_scale: bool) -> dict[str, object] | None:
    """Return the row of the warehouse's table `run`; with `exact_scale` only one of that scale."""
    if run.launch is None:
        return None
    columns = conditions.run_columns(run.launch)
    if exact_scale:
        columns |= {"num_problems": conditions.num_problems(run.launch), "samples": run.launch.samples}
    return next(iter(runs_like(connection, columns)), None)
