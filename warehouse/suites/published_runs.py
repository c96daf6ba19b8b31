"""The runs of a published table: launches with what is to be different, how they are timed, and what is recorded.

A run of a published table with one sample in flight is planned with all samples in full batches and some of them again,
one at a time (`--latency-sample`, warehouse/statistics/two_phase.py), where the table can read its times from these and
the run has enough samples: one sample in flight leaves the GPUs nearly idle.

Ratios are within a column, and never between two ways of timing. So a column is read in the way in which most of its
samples are finished, and a run that was recorded in the other way alone stands in it without ratios to the others.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.methods import defaults
from harness.methods.parameters import parameter_names
from harness.settings.launch_settings import Launch
from warehouse.database import Connection, Record
from warehouse.measured import ESTIMATED, NOT_ESTIMATED, progress, runs_like
from warehouse.suites import published_suites
from warehouse.suites.comparability import num_problems, run_columns
from warehouse.suites.published_suites import TIMES, Overrides, Planned, Suite

TIMED, AT_ONCE = 100, 64
"""Samples of each run that are timed, and samples in flight of a full batch, where a launch asks for neither."""
LEAST_SAMPLES = 2 * TIMED
"""Fewer samples than these in a run, and timing TIMED of them again after the batches saves next to nothing."""


@dataclass(frozen=True, slots=True)
class SuiteRun:
    """One run of the suite, as the paper has it and as it is asked for here."""

    plan: Planned
    paper: Launch | None
    """The launch of the suite's flags alone; None where the harness lacks what the row needs."""
    launch: Launch | None
    """The launch of the suite's flags with the overrides."""
    awaits: str | None
    other_way: Launch | None = None
    """The launch by which the same run's latency is measured the other way, where both ways are there."""

    @property
    def key(self) -> tuple[str, str]:
        """The label of its row and the key of its column."""
        return self.plan.row.label, self.plan.column


@dataclass(frozen=True)
class Reproduction:
    """A suite, and what is to be different from the paper."""

    suite: Suite
    overrides: Overrides
    """Flags of the launcher on top of the suite's, by name."""
    exact_scale: bool
    """Whether only runs of exactly this number of problems and samples count."""
    columns: tuple[str, ...]
    """Empty: all."""
    aligned: str | None
    """SCoT's aligned draft, for the rows that need it."""
    database: Path
    max_gpu_hours: float | None = None
    """The budget of all runs together; None: there is none."""
    every_sample_alone: bool = False
    """Whether latencies are measured of every sample, not estimated from a sample of them."""


def timed_runs(reproduction: Reproduction, columns: Collection[str]) -> list[SuiteRun]:
    """Return the runs of some columns, with the launches that measure the latencies of the suite.

    A run that could be measured the other way too has that launch beside its own, unless the flags name the way.
    """
    chosen = reproduction.suite
    planned = [plan for plan in published_suites.planned(chosen) if plan.column in columns]
    alone = [suite_run(plan, reproduction.overrides, reproduction.aligned) for plan in planned]
    if reproduction.every_sample_alone or "concurrency" in reproduction.overrides:
        return alone
    sampled = [replace(run, launch=with_latency_sample(chosen, run.launch)) if run.launch else run for run in alone]
    if reproduction.overrides.get("latency_sample") is not None:
        return sampled
    return [_with_other_way(reproduction, run) for run in sampled]


def _with_other_way(reproduction: Reproduction, run: SuiteRun) -> SuiteRun:
    """Return a run with its launch the other way, also where its size speaks for one: it may have been asked for."""
    if run.launch is None or run.paper is None or run.paper.concurrency != 1:
        return run
    alone = run.launch.changed(concurrency=1, latency_sample=None)
    other = in_batches(reproduction.suite, alone) if run.launch == alone else alone
    return run if other == run.launch else replace(run, other_way=other)


def suite_run(plan: Planned, overrides: Overrides, aligned: str | None) -> SuiteRun:
    """Build the launches of a suite's run. Raises ValueError with one line."""
    flags, overrides = dict(plan.flags), dict(overrides)
    awaits = plan.row.awaits
    if plan.row.model_of == "aligned":
        awaits = awaits or (None if aligned else "SCoT's aligned draft: train it and name it with --aligned")
        flags |= {"draft": aligned} if aligned else {}
        overrides.pop("draft", None)  # it names the draft of the other rows
    if plan.row.adapter == "needed" and "selection_adapter" not in overrides:
        awaits = awaits or "SCoT's selection adapter: train it and name it with --target.adapter"
    if plan.row.adapter == "never" or flags["method"] != "scot":
        overrides.pop("selection_adapter", None)
    if awaits:
        return SuiteRun(plan, None, None, awaits)
    method = str(flags["method"])
    # A suite may hold several methods: a hyper-parameter applies to the rows whose method has it.
    foreign = set(parameter_names()) - set(defaults(method))
    applicable = {name: value for name, value in overrides.items() if name not in foreign}
    underscored = {name.replace("-", "_"): value for name, value in flags.items()}
    asked = published_suites.launch_of({**underscored, **applicable})
    return SuiteRun(plan, published_suites.launch_of(flags), asked, None)


def distinct_runs(runs: Sequence[SuiteRun]) -> list[SuiteRun]:
    """Return the runs without those whose launch another one has: a baseline may stand in several rows."""
    distinct: list[SuiteRun] = []
    for run in runs:
        if run.launch is not None and run.launch not in [other.launch for other in distinct]:
            distinct.append(run)
    return distinct


def with_latency_sample(chosen: Suite, launch: Launch) -> Launch:
    """Return the launch with a latency sample where a suite's run with one sample in flight can be timed by one.

    In a suite without times such a run is in batches as well, so that it stays the same run as that of a suite with.
    """
    if launch.concurrency != 1:
        return launch
    if launch.latency_sample is not None:  # asked for, and the suite's one sample in flight would refuse it
        return launch.changed(concurrency=AT_ONCE)
    return launch if num_problems(launch) * launch.samples < LEAST_SAMPLES else in_batches(chosen, launch)


def in_batches(chosen: Suite, launch: Launch) -> Launch:
    """Return the launch of a run alone with a latency sample, of whatever size; unchanged where no sample gives it."""
    times = {metric.measure for metric in chosen.metrics.values()} & TIMES
    if times - ESTIMATED - NOT_ESTIMATED:
        return launch
    return launch.changed(concurrency=AT_ONCE, latency_sample=TIMED if times else None)


def recorded_runs(
    connection: Connection, runs: Sequence[SuiteRun], *, exact_scale: bool, either_way: bool
) -> dict[tuple[str, str], Record | None]:
    """Return the recorded run of each by the label of its row and the key of its column; None: there is none.

    `exact_scale`: only those of the launch's number of problems and samples. `either_way`: also those of which the
    latency was measured the other way than that of the launch.
    """
    found: dict[tuple[str, str], Record | None] = {}
    for column in dict.fromkeys(run.plan.column for run in runs):
        members = [run for run in runs if run.plan.column == column]
        planned = [_find(connection, run.launch, exact_scale) for run in members]
        other = [_find(connection, run.other_way, exact_scale) if either_way else None for run in members]
        if sum(_num_finished(connection, row) for row in planned) < sum(
            _num_finished(connection, row) for row in other
        ):
            planned, other = other, planned
        for run, row, instead in zip(members, planned, other, strict=True):
            found[run.key] = row or instead
    return found


def _num_finished(connection: Connection, row: Record | None) -> int:
    """Return how many samples of a run are finished; none of batches of which no sample was timed alone."""
    if row is None or (row["concurrency"] != 1 and progress(connection, row["run_id"]) is None):
        return 0
    return int(row["num_finished"])


def _find(connection: Connection, launch: Launch | None, exact_scale: bool) -> Record | None:
    if launch is None:
        return None
    scale = {"num_problems": num_problems(launch), "samples": launch.samples} if exact_scale else {}
    return next(iter(runs_like(connection, {**run_columns(launch), **scale})), None)
