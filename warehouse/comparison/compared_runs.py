"""Inputs of a comparison: each run's data, its scores under each metric, and its baseline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from harness.problems.benchmarks import DATASETS
from warehouse.comparison import latency_at_one
from warehouse.comparison.latency_at_one import TimedRun
from warehouse.comparison.manifests import Manifest, latency_mismatches, read_manifests
from warehouse.comparison.outcomes import Outcomes, num_shared_problems, read_outcomes, resolve
from warehouse.comparison.pairs import Times, read_times, repeats_of
from warehouse.comparison.votes import Votes, read_votes
from warehouse.database import Connection, WarehouseError, rows
from warehouse.report.summary import RunSummary, completion, summaries
from warehouse.statistics.intervals import Floats
from warehouse.statistics.samples import maj_at_k, pass_at_k


@dataclass(frozen=True)
class Run:
    """A run's data for a comparison."""

    summary: RunSummary
    manifest: Manifest
    folder: str
    """Path of the run folder when it was loaded."""
    outcomes: Outcomes
    """Outcomes of all planned samples."""
    votes: Mapping[str, Votes] | None
    """Votes by problem id; None if no majority vote is computed."""
    dataset: str
    """Name of the dataset. Runs on the same dataset are compared."""
    times: Mapping[str, Times] = field(default_factory=dict)
    """Times of all finished repeats of the run's setting, including the run itself, by run id."""
    timed: TimedRun | None = None
    """Timing samples, if any."""

    def under(self, metric: Metric) -> Run:
        """Return the run with the samples used by a metric. pass@k and maj@k leave out repeated samples."""
        return self if metric.kind == "pass@1" else self.without_repeats()

    def without_repeats(self) -> Run:
        """Keep only the first graded sample of each problem if the run is greedy: the other samples repeat it."""
        if not self.summary.is_greedy:
            return self
        first = (self.outcomes.is_counted & ~self.outcomes.is_missing).argmax(axis=1)  # 0 if none is graded
        is_first = np.arange(self.outcomes.is_counted.shape[1]) == first[:, np.newaxis]
        return replace(self, outcomes=self.outcomes.among(is_first))

    @property
    def run_id(self) -> str:
        return self.summary.run_id

    @property
    def is_unfinished(self) -> bool:
        """True if any planned sample is not finished or not graded."""
        return self.outcomes.num_missing > 0

    @property
    def is_empty(self) -> bool:
        """True if no planned sample is finished and graded."""
        return self.outcomes.num_missing == self.outcomes.num_samples

    @property
    def remedy(self) -> str:
        """How to get the missing samples, as the last clause of a message."""
        return f"complete it with: {completion(self.folder, self.summary.num_not_run)}"

    @property
    def why_empty(self) -> str:
        """Why a run without samples has no row."""
        return f"{self.run_id}: none of its {self.outcomes.num_samples} samples are finished and graded; {self.remedy}"


@dataclass(frozen=True)
class Metric:
    """A metric over the samples of a problem."""

    kind: Literal["pass@1", "pass@k", "maj@k"]
    k: int
    """Minimum number of samples per problem."""

    @property
    def name(self) -> str:
        """Printed name, such as pass@4."""
        return self.kind.replace("@k", f"@{self.k}")


def counted(run: Run, metric: Metric) -> Outcomes:
    """Return the outcomes used for the run's own result: available samples of the problems with at least k of them.

    Raises WarehouseError if fewer than k samples are planned for a problem.
    """
    fewest = int(run.under(metric).outcomes.samples.min())
    if not 1 <= metric.k <= fewest:
        raise WarehouseError(f"{run.run_id}: {metric.name} requires 1 ≤ k ≤ {fewest} samples per problem")
    return run.under(metric).outcomes.present().holding(metric.k)


def scores(run: Run, outcomes: Outcomes, metric: Metric) -> Floats:
    """Return the score per problem (n,) over the counted samples of `outcomes`, a subset of the run's outcomes."""
    if metric.kind == "pass@1":
        return outcomes.scores
    if metric.kind == "pass@k":
        return pass_at_k(outcomes.correct, outcomes.samples, metric.k)
    assert run.votes is not None
    counted_samples = [set(np.flatnonzero(row).tolist()) for row in outcomes.is_counted]
    cast = [run.votes[name].among(samples) for name, samples in zip(outcomes.problem_ids, counted_samples, strict=True)]
    return np.array([maj_at_k(votes.counts, votes.is_right, votes.abstained, metric.k) for votes in cast])


def possible_scores(run: Run, outcomes: Outcomes, metric: Metric) -> tuple[Floats, Floats]:
    """Return the lowest and highest possible score per problem, both (n,), given the missing samples.

    outcomes: planned samples of the run. A missing sample may be right or wrong. For a majority vote, a problem with a
    missing sample may have any score from 0 to 1, because the effect depends on the sample's answer.
    """
    missing = outcomes.is_missing.sum(axis=1)
    if metric.kind == "maj@k":
        whole = np.flatnonzero(missing == 0)
        lowest, highest = np.zeros(len(missing)), np.ones(len(missing))
        lowest[whole] = highest[whole] = scores(run, outcomes.at(whole), metric)
        return lowest, highest
    if metric.kind == "pass@k":
        ends = [
            pass_at_k(correct, outcomes.samples, metric.k) for correct in (outcomes.correct, outcomes.correct + missing)
        ]
        return ends[0], ends[1]
    return outcomes.scores, np.asarray((outcomes.correct + missing) / outcomes.samples, dtype=float)


def read_runs(connection: Connection, names: Sequence[str], *, votes: bool) -> list[Run]:
    """Read the named runs in the given order. Raises WarehouseError.

    Runs on custom datasets that share a problem get the dataset name of the first run, because files are renamed and
    copied. Built-in benchmarks are identified by name only.
    """
    ids = list(dict.fromkeys(resolve(connection, name) for name in names))
    manifests, repeats = read_manifests(connection, ids), repeats_of(connection, ids)
    times = read_times(connection, sorted({name for names in repeats.values() for name in names}))
    of_runs = rows(connection, "SELECT run_id, folder FROM run WHERE list_contains($ids, run_id)", {"ids": ids})
    folders = {str(row["run_id"]): str(row["folder"]) for row in of_runs}
    runs: list[Run] = []
    for run_id, summary in zip(ids, summaries(connection, ids), strict=True):
        outcomes = read_outcomes(connection, run_id)
        same = None
        if summary.dataset not in DATASETS:
            own = (other for other in runs if other.dataset not in DATASETS)
            same = next((other.dataset for other in own if num_shared_problems(outcomes, other.outcomes)), None)
        runs.append(
            Run(
                summary,
                manifests[run_id],
                folders[run_id],
                outcomes,
                read_votes(connection, run_id) if votes else None,
                same or summary.dataset,
                {name: times[name] for name in repeats[run_id]},
                latency_at_one.read(connection, run_id),
            )
        )
    return runs


@dataclass(frozen=True)
class Baseline:
    """A run that the other runs on its dataset are compared with."""

    run: Run
    why: str
    """Reason for the choice, as a clause: `it is the target alone`."""
    members: Sequence[Run] = ()
    """Runs compared with the baseline, in the given order, including the baseline itself and runs without samples."""

    @property
    def regimes(self) -> Sequence[str]:
        """Distinct regimes of the members: `latency` (one sample in flight) and `load`."""
        return list(dict.fromkeys(member.summary.regime for member in self.members))


def choose(runs: Sequence[Run], named: str | None = None) -> list[Baseline]:
    """Return the baseline of every dataset that has a run with samples.

    named: run id to use as the baseline of its dataset. By default, the baseline is the run of the target alone; if
    there are several, the one that fits the other runs best (`_fit`); if there is none, the first run. If a dataset has
    the target alone and other runs in both regimes (one and several samples in flight), each regime gets its own
    baseline, because times are comparable only within a regime. Raises WarehouseError if the named run has no samples.
    """
    by_dataset: dict[str, list[Run]] = {}
    for run in runs:
        by_dataset.setdefault(run.dataset, []).append(run)
    return [base for members in by_dataset.values() for base in _of_dataset(members, named)]


def _of_dataset(members: Sequence[Run], named: str | None) -> Iterator[Baseline]:
    if own := next((run for run in members if run.run_id == named), None):
        if own.is_empty:
            raise WarehouseError(f"the baseline has no samples to compare: {own.why_empty}")
        yield Baseline(own, "it was selected", members)
        return
    for group in _by_regime(members):
        if present := [run for run in group if not run.is_empty]:
            yield replace(_default(present), members=group)


def _by_regime(members: Sequence[Run]) -> Sequence[Sequence[Run]]:
    """Group a dataset's runs by regime if each regime has runs of the target alone and others; else in one."""
    regimes: dict[str, list[Run]] = {}
    for run in members:
        regimes.setdefault(run.summary.regime, []).append(run)
    for of_regime in regimes.values():
        if {run.manifest.is_target_alone for run in of_regime if not run.is_empty} != {True, False}:
            return [members]
    return list(regimes.values())


def _default(runs: Sequence[Run]) -> Baseline:
    alone = [run for run in runs if run.manifest.is_target_alone]
    if not alone:
        return Baseline(runs[0], "it is the first run and none is the target alone (--baseline RUN selects another)")
    if len(alone) == 1:
        return Baseline(alone[0], "it is the target alone")
    others = [run for run in runs if not run.manifest.is_target_alone]
    best = max(alone, key=lambda run: _fit(run, others))
    return Baseline(best, f"it fits best of {len(alone)} runs of the target alone (--baseline RUN selects another)")


def _fit(run: Run, others: Sequence[Run]) -> tuple[float, ...]:
    """Return how well a run of the target alone fits the other runs, as a sort key. Most important first: number of
    other runs with the same target, problems in common, number of other runs with comparable times, share of available
    samples.
    """
    if not others:
        return ()
    return (
        sum(run.manifest.values["target files"] == other.manifest.values["target files"] for other in others),
        sum(num_shared_problems(run.outcomes, other.outcomes) for other in others),
        sum(not latency_mismatches(run.manifest, other.manifest) for other in others),
        -run.outcomes.num_missing / run.outcomes.num_samples,
    )
