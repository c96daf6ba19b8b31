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
    emitted_tokens: float | None = None
    """Mean emitted tokens per sample; None unless decoding is greedy."""

    @property
    def num_samples(self) -> int:
        """Number of planned samples."""
        return int(self.samples.sum())

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
    """Conditions that may change from outside: devices, packages, engine settings, model files, grader."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """Hashes of prompts and problems, which must not change unless intended."""

    @property
    def is_complete(self) -> bool:
        """True if every sample of the first run has a grade."""
        return self.first.num_missing == 0

    @property
    def together(self) -> Batch:
        """The first run and the complete re-runs, pooled."""
        complete = [batch for batch in self.reruns if batch.num_missing == 0]
        return pooled([self.first, *complete])

    @property
    def is_confirmed(self) -> bool:
        """True if there is a complete re-run."""
        return any(batch.num_missing == 0 for batch in self.reruns)


def pooled(batches: Sequence[Batch]) -> Batch:
    """Pool several runs of the same problems into one batch."""
    verdicts: dict[str, int] = {}
    for batch in batches:
        for verdict, number in batch.verdicts.items():
            verdicts[verdict] = verdicts.get(verdict, 0) + number
    return Batch(
        batches[0].run_id,
        np.sum([batch.correct for batch in batches], axis=0),
        np.sum([batch.samples for batch in batches], axis=0),
        verdicts,
    )


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return one phrase for each difference between two environments."""
    names = sorted({*before, *now})
    return [
        f"{name}: {before.get(name, 'none')} → {now.get(name, 'none')}"
        for name in names
        if before.get(name) != now.get(name)
    ]


def segment(night: CellNight, earlier: Sequence[CellNight]) -> list[CellNight]:
    """Return the earlier nights with the same environment and inputs as this one, unbroken and oldest first."""
    unchanged: list[CellNight] = []
    for before in reversed(earlier):
        if not (_are_equal(before.environment, night.environment) and _are_equal(before.inputs, night.inputs)):
            break
        unchanged.append(before)
    return unchanged[::-1]


def _are_equal(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    return one is other or one == other  # nights that were read share their conditions; years are compared with years


def night_noise(nights: Sequence[CellNight]) -> list[float]:
    """Return the standard error of each night's pass@1 over re-runs of the same problems.

    With one sample per problem a single night does not tell, so it is estimated from the differences between successive
    nights.
    """
    errors = [night.first.noise for night in nights]
    if all(error is not None for error in errors):
        return [float(error) for error in errors if error is not None]
    steps = np.diff([night.first.score for night in nights])
    return [float(np.sqrt(np.mean(steps**2) / 2)) if len(steps) else 0.0] * len(nights)
