"""A run as it is compared, and its score for every problem under each metric."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from shlex import quote
from typing import Literal

import numpy as np

from warehouse.comparison.manifests import Manifest
from warehouse.comparison.outcomes import Outcomes
from warehouse.comparison.votes import Votes
from warehouse.database import WarehouseError
from warehouse.records import RunSummary
from warehouse.statistics.intervals import Floats
from warehouse.statistics.samples import maj_at_k, pass_at_k


@dataclass(frozen=True)
class Run:
    """A run as it is compared."""

    summary: RunSummary
    manifest: Manifest
    folder: str
    """Path of the run folder when it was loaded."""
    outcomes: Outcomes
    """Everything that is planned."""
    votes: Mapping[str, Votes] | None
    """Votes by problem id; None where no majority vote was asked for."""
    named_grader: str | None
    """The grader version that the reader named; None: each run's newest counts."""

    @property
    def run_id(self) -> str:
        """Name of the run folder."""
        return self.summary.run_id

    @property
    def is_unfinished(self) -> bool:
        """Whether a planned sample is not finished or not graded."""
        return self.outcomes.num_missing > 0

    @property
    def is_empty(self) -> bool:
        """Whether no planned sample at all is finished and graded."""
        return self.outcomes.num_missing == self.outcomes.num_samples

    @property
    def num_ungraded(self) -> int:
        """Finished samples that the grader version that counts has not graded."""
        return self.outcomes.num_missing - self.summary.num_not_run

    @property
    def graded(self) -> str:
        """What a sample has to be beside finished."""
        return f"graded by version {self.named_grader}" if self.named_grader else "graded"

    @property
    def completion(self) -> str:
        """What runs or grades the missing samples, as the last part of a sentence."""
        if not os.access(self.folder, os.F_OK):
            return "load the run again from where it lies now"
        what = "resume" if self.summary.num_not_run else "finalize"
        return f"complete it with: python -m jobs {what} {quote(self.folder)}"

    @property
    def remedy(self) -> str:
        """What to do about the missing samples, likewise: no command grades by a version that is not the newest."""
        is_grader = self.named_grader is not None and self.num_ungraded > 0
        return "leave out --grader to count the newest" if is_grader else self.completion


@dataclass(frozen=True)
class Metric:
    """What a problem's samples say together."""

    kind: Literal["pass@1", "pass@k", "maj@k"]
    k: int
    """How many samples of a problem it needs at least."""

    @property
    def name(self) -> str:
        """As it is printed: pass@4."""
        return self.kind.replace("@k", f"@{self.k}")


def counted(run: Run, metric: Metric) -> Outcomes:
    """What the run's own result is over: no problem at all where none has enough samples that are not missing.

    Raises WarehouseError where the run has not even planned so many.
    """
    fewest = int(run.outcomes.samples.min())
    if not 1 <= metric.k <= fewest:
        raise WarehouseError(
            f"{run.run_id}: {metric.name} needs 1 ≤ k ≤ samples per problem, of which there are {fewest}"
        )
    return run.outcomes.present().holding(metric.k)


def scores(run: Run, outcomes: Outcomes, metric: Metric) -> Floats:
    """Scores (n,) of the counted samples in `outcomes`, which are some of the run's."""
    if metric.kind == "pass@1":
        return outcomes.scores
    if metric.kind == "pass@k":
        return pass_at_k(outcomes.correct, outcomes.samples, metric.k)
    assert run.votes is not None
    kept = [set(np.flatnonzero(row).tolist()) for row in outcomes.is_counted]
    cast = [run.votes[name].among(samples) for name, samples in zip(outcomes.problem_ids, kept, strict=True)]
    return np.array([maj_at_k(votes.counts, votes.is_right, votes.abstained, metric.k) for votes in cast])
