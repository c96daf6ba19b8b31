"""Nights of one cell for the tests of the nightly verdict: usual ones, worse ones, and ones with a re-run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any

import numpy as np

from warehouse.nightly.cells import Batch, CellNight
from warehouse.nightly.judge import NightVerdict

FIRST = date(2026, 1, 1)
K = 16
CHANCES = np.random.default_rng(7).beta(0.4, 0.4, 40)
OLD, NEW = {"vllm": "0.32"}, {"vllm": "0.33"}


def batch(rng: np.random.Generator, points: float = 0.0, **more: Any) -> Batch:
    chances = np.clip(CHANCES - points / 100, 0, 1)
    return Batch("run", rng.binomial(K, chances).astype(np.int64), np.full(len(CHANCES), K), **more)


def lower(fewer: int) -> Batch:
    """The usual counts with so many right answers fewer, spread over the problems that are sometimes right."""
    correct = np.rint(K * CHANCES).astype(np.int64)
    unsure = np.flatnonzero((correct >= 3) & (correct <= K - 3))
    for i in range(abs(fewer)):
        correct[unsure[i % len(unsure)]] -= int(np.sign(fewer))
    return Batch("run", correct, np.full(len(CHANCES), K))


def night(index: int, first: Batch, cell: str = "a", **more: Any) -> CellNight:
    return CellNight(cell, FIRST + timedelta(index), first, **more)


def calm(rng: np.random.Generator, number: int, **more: Any) -> list[list[CellNight]]:
    return [[night(i, batch(rng), **more)] for i in range(number)]


def dropped(rng: np.random.Generator, index: int, points: float, **more: Any) -> list[CellNight]:
    """A night with a drop and the re-run that shows it too."""
    return [night(index, batch(rng, points), reruns=(batch(rng, points),), **more)]


def exit_codes(verdicts: Sequence[NightVerdict]) -> list[int]:
    return [verdict.exit_code for verdict in verdicts]
