"""The plan of a suite: what is done, what is left, and what that takes; and what every published suite takes.

Published latencies are of one sample in flight. The mean latency of a sample alone also comes from all samples in full
batches and some of them again, one at a time (`--latency-sample`): `Hours` has both ways beside each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from harness.cli.messages import counted
from harness.cli.number_format import hours
from harness.cli.screen import Column, Screen, Table, plain
from harness.settings import layers
from harness.settings.launch_settings import Launch
from jobs import launch_plan
from jobs.preparation import PreparedLaunch
from jobs.run.forecast import Forecast
from warehouse.database import DatabaseError, WarehouseError, reader
from warehouse.run_cost import alone, forecast, from_history
from warehouse.suites import published_costs, published_suites
from warehouse.suites.comparability import num_problems, run_columns
from warehouse.suites.own_runs import OwnRun, by_row, recorded_ids, state_of
from warehouse.suites.published_costs import START_SECONDS, num_gpus
from warehouse.suites.published_runs import TIMED, Reproduction, SuiteRun, distinct_runs, timed_runs
from warehouse.suites.published_suites import OF_LATENCIES, TIMES, Overrides, Planned
from warehouse.suites.suite_cells import about


@dataclass(frozen=True, slots=True)
class Hours:
    """GPU-hours of runs whose latency of a sample alone is measured, both ways."""

    alone: float = 0.0
    """With every sample alone."""
    batches: float = 0.0
    """All samples in full batches."""
    timing: float = 0.0
    """The samples that are timed, one at a time."""

    def __add__(self, other: Hours) -> Hours:
        """Return the sums."""
        return Hours(self.alone + other.alone, self.batches + other.batches, self.timing + other.timing)

    @property
    def with_sample(self) -> float:
        """Batches and timing together."""
        return self.batches + self.timing

    def as_asked(self) -> str:
        """Return in a sentence what runs take that have a latency sample, and what they would take without it."""
        parts = f"{hours(self.batches)} for the batches and {hours(self.timing)} for the timing"
        saved = 100 * (1 - self.with_sample / self.alone)
        return (
            f"Latency from a sample of samples: {hours(self.with_sample)} GPU-hours ({parts}) instead of "
            f"{hours(self.alone)} with every sample alone, {abs(saved):.0f} % {'less' if saved >= 0 else 'more'}."
        )


def _say(console: Console, line: str, style: str = "") -> None:
    Screen(console).say(line, style)


def _say_totals(console: Console, total: str, both_ways: Hours) -> None:
    _say(console, total)
    if both_ways.alone:
        _say(console, both_ways.as_asked())


def print_own_plan(name: str, runs: Sequence[OwnRun], database: Path, console: Console) -> None:
    """Print for each row whether it is done, partly done or missing, and the GPU-hours that are left, in sum too."""
    of_rows = by_row(runs)
    states = Counter(state_of(members) for members in of_rows.values())
    told = ", ".join(f"{states[state]} {state}" for state in ("done", "partly done", "missing") if states[state])
    _say(console, f"{name}: {counted(len(of_rows), 'row')}, {counted(len(runs), 'run')}; rows: {told}")
    recorded = _recorded(runs, database)
    left: list[Forecast | None] = []
    both_ways = Hours()
    for row, members in of_rows.items():
        _say(console, f"  {row}: {state_of(members)}")
        for run in members:
            line = f"    {run.dataset}: {run.state}, {run.finished} of {counted(run.num_samples, 'sample')}"
            both_ways += _own_ways(run, database) or Hours()
            if run.to_time:
                line += f", {run.to_time} to be timed alone"
            if run.state != "done":
                left.append(_left(run, database))
                line += f", {launch_plan.in_words(left[-1]) if left[-1] else 'GPU-hours unknown'}"
                if recorded.get(run.run_id, run.run_id) != run.run_id:
                    line += f"; the database has {recorded[run.run_id]}, with the same models elsewhere"
            _say(console, line)
    total = launch_plan.total_of(left) if left else "Total: nothing is left to run."
    _say_totals(console, total, both_ways)
    if any(cost is None for cost in left):
        _say(console, "Unknown: no run of these settings is in the database; run a few problems first (--scale 5x1).")


def _recorded(runs: Sequence[OwnRun], database: Path) -> dict[str, str]:
    """Return the ids of the runs in the database, by their ids here; empty where it cannot be read."""
    try:
        with reader(database) as connection:
            return recorded_ids(connection, runs)
    except (WarehouseError, DatabaseError):
        return {}


def _left(run: OwnRun, database: Path) -> Forecast | None:
    """Estimate what is left of a run, with the samples that are timed one at a time; None: unknown."""
    number, prepared = run.num_samples - run.finished, run.prepared
    return forecast(prepared.launch, prepared.plan.spec, number, database, to_time=run.to_time)


def _own_ways(run: OwnRun, database: Path) -> Hours | None:
    """Return the GPU-hours of a whole run with its latency sample, and with every sample alone.

    None: it has no latency sample, or the GPU-hours are unknown.
    """
    launch, spec = run.prepared.launch, run.prepared.plan.spec
    if launch.latency_sample is None:
        return None
    every, timing = (alone(launch, spec, number, database) for number in (run.num_samples, launch.latency_sample))
    batches = forecast(launch, spec, run.num_samples, database)
    if every is None or timing is None or batches is None:
        return None
    return Hours(*(cost.hours if cost.has_gpu else 0.0 for cost in (every, batches, timing)))


def print_published_plan(console: Console, asked: Reproduction, runs: Sequence[SuiteRun]) -> None:
    """Print every distinct run with what it takes and its flags, the total, and what a latency sample saves."""
    chosen = asked.suite
    _say(console, f"{chosen.name}: {chosen.title} ({chosen.paper}, {chosen.version}, {chosen.place})", style="bold")
    known: list[float] = []
    both_ways = Hours()
    printed: list[Launch] = []
    left_out: list[str] = []
    for run in runs:
        label = f"{run.plan.row.label} · {chosen.columns[run.plan.column].label}"
        if run.launch is None:
            left_out.append(label)
            _say(console, f"  {label}: not planned, awaits {run.awaits}")
        elif run.launch in printed:
            _say(console, f"  {label}: the same run as one above, with these flags")
        else:
            printed.append(run.launch)
            cost = estimated(asked, run.launch, run.plan)
            ways = both_ways_of(asked, run) or Hours()
            if cost is None:
                left_out.append(label)
            else:
                known.append(cost.gpu_hours + ways.timing)
            both_ways += ways
            size = f"{num_problems(run.launch)} problems × {run.launch.samples} samples"
            line = f"  {label}: {run.launch.method}, {size}, {_cost_in_words(cost)}"
            if ways.timing:
                line += f", and {ways.timing:,.1f} for {run.launch.latency_sample} samples timed one at a time"
            elif run.launch.latency_sample and (slow := estimated(asked, _every_alone(run.launch), run.plan)):
                line += f"; with every sample alone {_cost_in_words(slow)}"
            _say(console, line)
            flags = plain(f"      {' '.join(layers.arguments(run.plan.flags))}", style="dim")
            console.print(flags, soft_wrap=True)
    total = f"Total: {sum(known):,.1f} GPU-hours" if known else "Total: GPU-hours unknown"
    _say_totals(console, total, both_ways)
    if any(launch.latency_sample for launch in printed) and "latency_sample" not in asked.overrides:
        _say(console, "--every-sample-alone measures every sample.")
    if left_out:
        _say(console, f"Not included: {'; '.join(left_out)}")
    for line in about(chosen):
        _say(console, line)


def _cost_in_words(cost: Forecast | None) -> str:
    if cost is None:
        return "no estimate"
    if not cost.gpu_hours:
        return f"{cost.worker_hours:,.1f} worker-hours ({cost.source})"
    return f"{cost.gpu_hours:,.1f} GPU-hours ({cost.source})"


def estimated(asked: Reproduction, launch: Launch, plan: Planned) -> Forecast | None:
    """Estimate a launch of a planned run: from recorded runs of the same kind, else from what the papers publish."""
    number = num_problems(launch) * launch.samples
    if from_runs := from_history(launch, run_columns(launch), number, asked.database):
        return from_runs
    own = published_costs.setting(asked.suite, plan, launch)
    return published_costs.from_published(launch, own, published_costs.everything())


def _every_alone(launch: Launch) -> Launch:
    return launch.changed(concurrency=1, latency_sample=None)


def both_ways_of(asked: Reproduction, run: SuiteRun) -> Hours | None:
    """Return what a run takes alone and with the latency sample that it asks for.

    None: it asks for none or is not there for a latency alone, or the GPU-hours of one of the two are unknown.
    """
    launch, metrics = run.launch, asked.suite.metrics.values()
    if launch is None or launch.latency_sample is None or not {metric.measure for metric in metrics} & OF_LATENCIES:
        return None
    every = estimated(asked, _every_alone(launch), run.plan)
    batches = estimated(asked, launch, run.plan)
    if every is None or batches is None or not every.gpu_hours:
        return None
    samples_alone = max(0.0, every.gpu_hours - START_SECONDS / 3600 * num_gpus(launch))
    share = min(1.0, launch.latency_sample / (num_problems(launch) * launch.samples))
    return Hours(every.gpu_hours, batches.gpu_hours, samples_alone * share)


def check_budget(asked: Reproduction, runs: Sequence[SuiteRun], prepared: Sequence[PreparedLaunch]) -> None:
    """Raise OverBudget where what is left takes more than the limit by the plan's estimates, or has none."""
    left: dict[str, Forecast | None] = {}
    for run, planned in zip(runs, prepared, strict=True):
        if planned.is_work_left:
            left[planned.run.path.name] = _part_left(asked, run, planned)
    launch_plan.check_forecasts(left, asked.max_gpu_hours or 0.0)


def _part_left(asked: Reproduction, run: SuiteRun, planned: PreparedLaunch) -> Forecast | None:
    """Return what is left of a run by the plan's estimates."""
    cost = estimated(asked, run.launch, run.plan) if run.launch else None
    if cost is None:
        return None
    share = planned.num_left / planned.plan.spec.num_samples
    timing, to_time = 0.0, planned.launch.latency_sample
    if to_time and (ways := both_ways_of(asked, run)):
        timing = ways.timing * planned.num_to_time / to_time
    hours = cost.hours * share + timing
    return replace(
        cost,
        worker_hours=hours / max(1, cost.num_gpus),
        low=cost.low * share + timing,
        high=cost.high * share + timing,
    )


@dataclass(frozen=True, slots=True)
class _Known:
    """GPU-hours of a suite's distinct runs."""

    hours: float
    num_runs: int
    num_without: int
    """Runs that have no estimate, and are not in the hours."""

    def __str__(self) -> str:
        if self.num_without == self.num_runs:
            return "unknown"
        return f"{self.hours:,.1f}" + (f", {self.num_without} unknown" if self.num_without else "")


def print_costs(overrides: Overrides, aligned: str | None, database: Path, console: Console) -> None:
    """Print what every published suite takes, as planned and with every sample alone.

    Raises ValueError where an override is not valid for one.
    """
    names = ("suite", "runs", "GPU-hours", "every sample alone", "less")
    rows = list(_costs(overrides, aligned, database))
    has_untimed = any(row[-1] == "no times" for row in rows)
    Screen(console).table(Table([Column(name, is_right=name != "suite") for name in names], rows))
    _say(
        console,
        "Runs that await a model of yours are left out; suites share runs, so all together take less than the sum. "
        "GPU-hours: by recorded runs, else by what the papers publish, else unknown; "
        f"latency from {TIMED} samples of each run.",
    )
    if has_untimed:
        _say(
            console,
            "no times: the suite measures none, so all its samples run in full batches and none is timed alone.",
        )


def _costs(overrides: Overrides, aligned: str | None, database: Path) -> Iterator[tuple[str, ...]]:
    """Yield a row for each suite: its runs, what they take both ways, and the saving in words."""
    for name in published_suites.names():
        chosen = published_suites.load(name)
        planned, every = (
            _known(Reproduction(chosen, overrides, False, (), aligned, database, every_sample_alone=is_alone))
            for is_alone in (False, True)
        )
        saving = "–"
        if not (planned.num_without or every.num_without or planned.hours >= every.hours):
            has_times = any(metric.measure in TIMES for metric in chosen.metrics.values())
            # All samples in full batches save no latency where none is measured.
            saving = f"{100 * (1 - planned.hours / every.hours):.0f} %" if has_times else "no times"
        yield name, str(planned.num_runs), str(planned), str(every), saving


def _known(asked: Reproduction) -> _Known:
    hours, num_without = 0.0, 0
    runs = distinct_runs(timed_runs(asked, tuple(asked.suite.columns)))
    for run in runs:
        ways = both_ways_of(asked, run)
        cost = estimated(asked, run.launch, run.plan) if run.launch and not ways else None
        num_without += ways is None and cost is None
        hours += ways.with_sample if ways else cost.gpu_hours if cost else 0.0
    return _Known(hours, len(runs), num_without)
