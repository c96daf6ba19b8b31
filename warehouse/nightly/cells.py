"""Cells and nights: what is judged, and what it is judged against.

A cell is a method with its parameters, models and sampling on a dataset. It runs every night with another seed. A
second run in the same night is a re-run that confirms or refutes a suspicion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property

import numpy as np

from warehouse.render import completion
from warehouse.statistics.intervals import Counts, rerun_standard_error


@dataclass(frozen=True)
class Batch:
    """The outcome of one run of a cell."""

    run_id: str
    correct: Counts
    """(n,). Correct samples per problem, in the dataset's order."""
    samples: Counts
    """(n,). Samples per problem."""
    verdicts: Mapping[str, int] = field(default_factory=dict)
    """Number of samples by verdict; a verdict that is not listed has none."""
    num_missing: int = 0
    """Samples not run or not graded."""
    num_not_run: int = 0
    """Those of them that are not run."""
    emitted_tokens: float | None = None
    """Mean emitted tokens per sample; None unless decoding is greedy."""
    measures: Mapping[str, float] = field(default_factory=dict)
    """Values of `metrics.METRICS` by name, on the metric's scale; one that does not apply has none."""

    @cached_property
    def num_samples(self) -> int:
        """Number of planned samples."""
        return int(self.samples.sum())

    @property
    def missing(self) -> str:
        """What is missing, in words."""
        return f"{self.num_missing} of {self.num_samples} samples are not run or not graded"

    @property
    def completion(self) -> str:
        """The command that runs or grades what is missing."""
        return completion(self.run_id, self.num_not_run)

    @cached_property
    def score(self) -> float:
        """pass@1: mean over problems."""
        return float(np.mean(self.correct / self.samples))

    @cached_property
    def noise(self) -> float | None:
        """Standard error of the score over re-runs of the same problems; None with one sample per problem."""
        return rerun_standard_error(self.correct, self.samples)


@dataclass(frozen=True)
class CellNight:
    """One cell in one night."""

    cell: str
    night: date
    first: Batch
    reruns: tuple[Batch, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    """Conditions of accuracy that may change from outside: devices, packages, engine settings, model files, grader."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """Hashes of prompts and problems, which must not change unless intended."""
    times: Mapping[str, str] = field(default_factory=dict)
    """Further conditions of times: processor, samples in flight, memory shares."""
    dates: Mapping[str, str] = field(default_factory=dict)
    """The date in the prompts, where a chat template has one: a change of it is said, and changes no condition."""
    baseline: str | None = None
    """The cell whose runs of this night the speed-up refers to: the target alone under the same conditions."""
    num_baseline_runs: int = 1
    """Complete runs of that cell in this night."""
    uncounted: tuple[str, ...] = ()
    """Phrases that say which runs of this night ran under other conditions than the first and are no re-runs of it."""
    untimed: tuple[str, ...] = ()
    """The same for re-runs whose times alone do not count."""

    @property
    def run_ids(self) -> list[str]:
        """The runs that count."""
        return [batch.run_id for batch in (self.first, *self.reruns)]

    @property
    def is_complete(self) -> bool:
        """True if every sample of the first run has a grade."""
        return self.first.num_missing == 0

    @property
    def complete(self) -> list[Batch]:
        """The runs whose samples all have a grade, the first one first."""
        return [batch for batch in (self.first, *self.reruns) if batch.num_missing == 0]

    @cached_property
    def together(self) -> Batch:
        """The first run and the complete re-runs, pooled."""
        complete = [batch for batch in self.reruns if batch.num_missing == 0]
        return pooled([self.first, *complete]) if complete else self.first

    @property
    def not_counted(self) -> list[str]:
        """Phrases that say which runs besides the first confirm nothing, and why."""
        incomplete = [batch for batch in self.reruns if batch.num_missing]
        return [
            *self.uncounted,
            *(
                f"re-run {batch.run_id} does not count: it is not finished ({batch.missing}); {batch.completion}"
                for batch in incomplete
            ),
        ]

    @property
    def is_confirmed(self) -> bool:
        """True if there is a complete re-run."""
        return any(batch.num_missing == 0 for batch in self.reruns)


def pooled(batches: Sequence[Batch]) -> Batch:
    """Pool several runs of the same problems into one batch, without their metrics."""
    verdicts: dict[str, int] = {}
    for batch in batches:
        for verdict, number in batch.verdicts.items():
            verdicts[verdict] = verdicts.get(verdict, 0) + number
    tokens = [batch.emitted_tokens for batch in batches if batch.emitted_tokens is not None]
    return Batch(
        batches[0].run_id,
        np.sum([batch.correct for batch in batches], axis=0),
        np.sum([batch.samples for batch in batches], axis=0),
        verdicts,
        emitted_tokens=sum(tokens) / len(tokens) if tokens else None,
    )


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return one phrase for each difference between two environments."""
    names = sorted({*before, *now})
    return [
        f"{name}: {before.get(name, 'none')} → {now.get(name, 'none')}"
        for name in names
        if before.get(name) != now.get(name)
    ]
