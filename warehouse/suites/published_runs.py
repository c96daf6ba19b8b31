"""The runs of a published table as they are asked for: the suite's launches with what is to be different on top."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.methods import defaults
from harness.methods.values import parameter_names
from warehouse.papers import suite, timing_plan
from warehouse.papers.entries import SuiteRun
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
    database: Path
    max_gpu_hours: float | None = None
    """The budget of all runs together; None: there is none."""
    every_sample_alone: bool = False
    """Whether latencies are measured of every sample, not estimated from a sample of them."""


def timed_runs(reproduction: Reproduction, columns: Collection[str]) -> tuple[list[SuiteRun], Choice]:
    """Return the runs of some columns, and how the latencies of the suite, whatever its columns, are measured.

    A run that could be measured the other way too has that launch beside its own, unless the flags name the way.
    """
    chosen = reproduction.suite
    alone = [suite_run(plan, reproduction.overrides, reproduction.aligned) for plan in suite.planned(chosen)]
    if reproduction.every_sample_alone or "concurrency" in reproduction.overrides:
        return _of(columns, alone), Choice("alone")
    sampled = [replace(run, launch=timing_plan.sampled(chosen, run.launch)) if run.launch else run for run in alone]
    if reproduction.overrides.get("latency_sample") is not None:
        return _of(columns, sampled), Choice("sample")
    pairs = [
        (run.launch, other.launch) for run, other in zip(alone, sampled, strict=True) if run.launch and other.launch
    ]
    choice = timing_plan.choose(pairs, pairs[0][0].output) if pairs else Choice("sample")
    runs = sampled if choice.way == "sample" else alone
    return _of(columns, [_with_other_way(reproduction, run) for run in runs]), choice


def _of(columns: Collection[str], runs: Sequence[SuiteRun]) -> list[SuiteRun]:
    return [run for run in runs if run.plan.column in columns]


def _with_other_way(reproduction: Reproduction, run: SuiteRun) -> SuiteRun:
    """Return a run with its launch the other way, also where its size speaks for one: it may have been asked for."""
    if run.launch is None or run.paper is None or run.paper.concurrency != 1:
        return run
    alone = run.launch.changed(concurrency=1, latency_sample=None)
    other = timing_plan.in_batches(reproduction.suite, alone) if run.launch == alone else alone
    return run if other == run.launch else replace(run, other_way=other)


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


def distinct_runs(runs: Sequence[SuiteRun]) -> list[SuiteRun]:
    """Return the runs without those whose launch another one has: a baseline may stand in several rows."""
    distinct: list[SuiteRun] = []
    for run in runs:
        if run.launch is not None and run.launch not in [other.launch for other in distinct]:
            distinct.append(run)
    return distinct
