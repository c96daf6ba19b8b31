"""Runs as inputs of a comparison, and their score for every problem under each metric."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from warehouse.comparison.manifests import Manifest
from warehouse.comparison.outcomes import Outcomes
from warehouse.comparison.votes import Votes
from warehouse.database import WarehouseError
from warehouse.latency_at_one import TimedRun
from warehouse.render import completion
from warehouse.statistics.intervals import Floats
from warehouse.statistics.run_factor import RunFactor
from warehouse.statistics.samples import maj_at_k, pass_at_k
from warehouse.summary import RunSummary


@dataclass(frozen=True)
class Run:
    """Everything that a comparison needs of a run."""

    summary: RunSummary
    manifest: Manifest
    folder: str
    """Path of the run folder when it was loaded."""
    outcomes: Outcomes
    """Outcomes of all planned samples."""
    votes: Mapping[str, Votes] | None
    """Votes by problem id; None if no majority vote is computed."""
    named_grader: str | None
    """The grader version that the user named; None: each run's newest counts."""
    factor: RunFactor | None = None
    """How much times differ between repeated runs under this run's conditions; None: not known."""
    timed: TimedRun | None = None
    """Its timing samples; None where it has none."""
    same_as: str | None = None
    """The other name under which an earlier run has the problems of this one's own dataset."""

    def under(self, metric: Metric) -> Run:
        """Return the run with the samples that a metric is over: pass@k and maj@k count no repeats."""
        return self if metric.kind == "pass@1" else self.without_repeats()

    def without_repeats(self) -> Run:
        """Return the run with the first graded sample of each problem where the others repeat it."""
        if not self.summary.is_greedy:
            return self
        first = (self.outcomes.is_counted & ~self.outcomes.is_missing).argmax(axis=1)  # 0 where none is graded
        is_first = np.arange(self.outcomes.is_counted.shape[1]) == first[:, np.newaxis]
        return replace(self, outcomes=self.outcomes.among(is_first))

    @property
    def dataset(self) -> str:
        """The name of the dataset whose runs this one is compared with."""
        return self.same_as or self.summary.dataset

    @property
    def run_id(self) -> str:
        """Name of the run folder."""
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
    def num_ungraded(self) -> int:
        """Number of finished samples without a grade by the grader version that counts."""
        return self.outcomes.num_missing - self.summary.num_not_run

    @property
    def graded(self) -> str:
        """The condition on a sample in addition to being finished, for messages."""
        return f"graded by version {self.named_grader}" if self.named_grader else "graded"

    @property
    def completion(self) -> str:
        """The command that runs or grades the missing samples, as the last clause of a message."""
        if not os.access(self.folder, os.F_OK):
            return "the run folder has moved: load the run from its new location"
        return f"complete it with: {completion(self.folder, self.summary.num_not_run)}"

    @property
    def remedy(self) -> str:
        """How to get the missing samples, as the last clause of a message.

        No command grades by a version other than the newest.
        """
        lacks_grades = self.named_grader is not None and self.num_ungraded > 0
        return "omit --grader to count the newest version" if lacks_grades else self.completion


@dataclass(frozen=True)
class Metric:
    """A metric over the samples of a problem."""

    kind: Literal["pass@1", "pass@k", "maj@k"]
    k: int
    """Smallest number of samples of a problem that the metric needs."""

    @property
    def name(self) -> str:
        """Printed name, such as pass@4."""
        return self.kind.replace("@k", f"@{self.k}")


def counted(run: Run, metric: Metric) -> Outcomes:
    """Return the outcomes that the run's own result is over: problems with enough samples that are not missing.

    Raises WarehouseError if the run has planned fewer than k samples of a problem.
    """
    fewest = int(run.under(metric).outcomes.samples.min())
    if not 1 <= metric.k <= fewest:
        raise WarehouseError(f"{run.run_id}: {metric.name} needs 1 ≤ k ≤ samples per problem, and the run has {fewest}")
    return run.under(metric).outcomes.present().holding(metric.k)


def scores(run: Run, outcomes: Outcomes, metric: Metric) -> Floats:
    """Return the scores (n,), one per problem, of the counted samples in `outcomes`, a subset of the run's."""
    if metric.kind == "pass@1":
        return outcomes.scores
    if metric.kind == "pass@k":
        return pass_at_k(outcomes.correct, outcomes.samples, metric.k)
    assert run.votes is not None
    counted_samples = [set(np.flatnonzero(row).tolist()) for row in outcomes.is_counted]
    cast = [run.votes[name].among(samples) for name, samples in zip(outcomes.problem_ids, counted_samples, strict=True)]
    return np.array([maj_at_k(votes.counts, votes.is_right, votes.abstained, metric.k) for votes in cast])


def possible_scores(run: Run, outcomes: Outcomes, metric: Metric) -> tuple[Floats, Floats]:
    """Return the lowest and the highest scores (n,), one per problem, that the missing samples leave possible.

    outcomes: planned samples of the run. A missing sample may turn out wrong, or right. What it does to a majority
    depends on its answer, so there a problem with a missing sample may have any score from 0 to 1.
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
