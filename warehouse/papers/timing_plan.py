"""How a suite's runs measure the latency of a sample alone: by a sample of samples, or every sample alone.

A run of a published table with one sample in flight is planned with all samples in full batches and some of them again,
one at a time (`--latency-sample`), where the table can read its times from these and the run has enough samples. A
suite of which any column was begun with every sample alone goes on so. recorded_runs.py reads its table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.settings.launch_settings import Launch
from jobs.run.folder import RunDamaged, RunFolder, run_folders
from jobs.run.spec import RunSpec
from jobs.timing import folder as timings
from warehouse.papers.conditions import num_problems, run_columns
from warehouse.papers.latency_sample import AT_ONCE, TIMED
from warehouse.papers.suite import Suite
from warehouse.papers.vocabulary import TIMES
from warehouse.timed_measures import MEASURES, NOT_ESTIMATED

LEAST_SAMPLES = 2 * TIMED
"""Fewer samples than these in a run, and timing TIMED of them again after the batches saves next to nothing."""
FLAG = "--every-sample-alone"
Way = Literal["sample", "alone", "begun alone"]


@dataclass(frozen=True, slots=True)
class Choice:
    """How the runs of a suite are timed, and the run that decided it where one did."""

    way: Way
    run_id: str = ""

    def in_words(self) -> str:
        """Return a sentence for the user; empty where there is nothing to say."""
        if self.way != "begun alone":
            return ""
        return (
            f"Every sample runs alone, because this suite was begun so ({self.run_id}); --tag NAME begins one with a "
            "sample of samples."
        )


def sampled(chosen: Suite, launch: Launch) -> Launch:
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
    if times - MEASURES - NOT_ESTIMATED:
        return launch
    return launch.changed(concurrency=AT_ONCE, latency_sample=TIMED if times else None)


def choose(pairs: Collection[tuple[Launch, Launch]], output: Path) -> Choice:
    """Return how a suite is timed, by the run folders of its launches.

    `pairs`: launches with every sample alone, and the same with a latency sample, of all columns of the suite.
    """
    changed = [pair for pair in pairs if pair[0] != pair[1]]
    find = _in_folders(changed, output) if changed else ""
    return Choice("begun alone", find) if find else Choice("sample")


def _in_folders(pairs: Collection[tuple[Launch, Launch]], output: Path) -> str:
    """Return the id of a run that was begun with every sample alone, where none was begun in batches; else ''.

    A run in batches that nobody asked to time is a measurement of throughput, of a suite with times.
    """
    if not output.is_dir():
        return ""
    found = list(_specs(run_folders([output])))
    alone = [run.path.name for run, spec in found if any(_is_of(spec, one) for one, _ in pairs)]
    batches = any(
        _is_of(spec, sampled) and (sampled.latency_sample is None or timings.num_asked(run))
        for run, spec in found
        for _, sampled in pairs
    )
    return "" if batches or not alone else alone[0]


def _specs(folders: Iterable[RunFolder]) -> Iterable[tuple[RunFolder, RunSpec]]:
    for run in folders:
        try:
            yield run, run.spec()
        except (RunDamaged, OSError, ValueError):
            continue  # what launches or loads it says so


def _is_of(spec: RunSpec, launch: Launch) -> bool:
    """Return whether a run is that of a launch, as far as its specification says without the problems."""
    columns = run_columns(launch)
    names = {"draft_name": spec.draft and spec.draft.name, "target_name": spec.target and spec.target.name}
    own = {name: columns[name] for name in ("method", "dataset", "concurrency", "temperature", "top_p", "token_budget")}
    return (
        all(getattr(spec, name) == value for name, value in own.items())
        and all(columns[name] == value for name, value in names.items())
        and {**columns["params"], **spec.params} == {**spec.params, **columns["params"]}
        and (spec.seed, spec.samples, spec.tag) == (launch.seed, launch.samples, launch.tag)
        and spec.num_problems == num_problems(launch)
    )
