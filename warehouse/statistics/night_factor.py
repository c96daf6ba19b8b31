"""The night factor: an effect that all cells of a night share, beyond what sampling explains.

Another node, a busy file system or a driver may move every result of a night together. Tests that know of sampling
noise alone then fail most nights. Only the change from each night to the next is used: a level that stays changed is
one change and no spread, so a regression that lasts cannot pass for noise.

Source: the median of squares as a robust estimate of a variance (Rousseeuw and Croux, Alternatives to the Median
Absolute Deviation, JASA 88, 1993). statistics/README.md has the simulation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from warehouse.statistics.intervals import Floats

FEWEST_STEPS = 4
"""With fewer changes than this, nothing is said about the spread of nights."""
LEVEL = 0.001
"""Largest chance that nights which differ by sampling alone are said to have an effect in common."""
_MEDIAN = float(special.chdtri(1, 0.5))
"""Median of a squared standard normal value."""


_EFFICIENCY = 0.37
"""Of the median of squares, relative to the variance, as an estimate of a normal variance."""


@dataclass(frozen=True, slots=True)
class NightFactor:
    """What all cells of a night have in common."""

    standard_deviation: float
    degrees: float
    """Degrees of freedom of its estimate."""


NO_FACTOR = NightFactor(0.0, 1.0)


def night_factor(steps: Floats, variances: Floats, degrees: float | None = None) -> NightFactor:
    """Return the spread of the common effect; NO_FACTOR unless the nights differ by more than their noise.

    steps (n,): weighted mean over cells of the change since the night before. variances (n,): what sampling noise
    contributes to each; degrees: degrees of freedom of each of these, None if they are known.
    """
    n = len(steps)
    if n < FEWEST_STEPS or not np.all(variances > 0):
        return NO_FACTOR
    median = float(np.median(steps**2 / variances))
    upper = float(special.betaincinv((n + 1) / 2, (n + 1) / 2, 1 - LEVEL))
    largest = special.chdtri(1, 1 - upper) if degrees is None else special.fdtri(1, degrees, upper)
    if median <= float(largest):
        return NO_FACTOR
    excess = float(np.median(steps**2)) / _MEDIAN - float(np.median(variances))
    return NightFactor(float(np.sqrt(max(0.0, excess) / 2)), max(1.0, _EFFICIENCY * n))
