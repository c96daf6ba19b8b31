"""What nights have in common and where they change: the factor of a night, change points, moderated variances."""

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


SHORTEST = 3
"""Smallest number of values in a segment of constant level."""


def change_points(values: Floats, noise: Floats, penalty: float) -> list[int]:
    """Return the indices at which a new level begins, in order; empty if a single level explains the series.

    values (n,): one per night. noise (n,): their standard errors, which are the unit of deviations. penalty: how much
    an additional level must reduce the sum of squared deviations, in squared standard errors.
    """
    import ruptures  # slow to import, and most commands never look for drift

    if len(values) < 2 * SHORTEST:
        return []
    typical = float(np.sqrt(np.mean(noise**2)))
    if typical == 0:
        return []
    search = ruptures.KernelCPD(kernel="linear", min_size=SHORTEST).fit((values / typical).reshape(-1, 1))
    return [int(index) for index in search.predict(pen=penalty)[:-1]]


FEWEST = 4
"""With fewer variances than this, nothing is known of how they differ, and each stands for itself."""


def moderated(variances: Floats, degrees: Floats) -> tuple[Floats, Floats]:
    """Return variances that are drawn toward their common level, and their degrees of freedom; both (n,).

    variances (n,), degrees (n,): estimates and their degrees of freedom. An estimate of 0 says nothing of the others.
    The prior has at most as many degrees of freedom as all estimates together.
    """
    known = (variances > 0) & (degrees > 0)
    if known.sum() < FEWEST:
        return variances, degrees
    of_known = degrees[known]
    centered = np.log(variances[known]) - special.digamma(of_known / 2) + np.log(of_known / 2)
    spread = float(centered.var(ddof=1) - special.zeta(2, of_known / 2).mean())
    most = float(of_known.sum())
    prior_degrees = min(2 * _inverse_trigamma(spread), most) if spread > 0 else most
    half = prior_degrees / 2
    prior = float(np.exp(centered.mean() + special.digamma(half) - np.log(half)))
    total = prior_degrees + degrees
    return (prior_degrees * prior + degrees * variances) / total, np.minimum(total, most)


def _inverse_trigamma(value: float) -> float:
    """Return x with ψ′(x) = ζ(2, x) = value, by Newton's method on 1/ψ′, which is nearly linear."""
    x = 0.5 + 1 / value
    for _ in range(20):
        trigamma = float(special.zeta(2, x))
        step = trigamma * (1 - trigamma / value) / (-2 * float(special.zeta(3, x)))  # polygamma(2, x), but faster
        x += step
        if abs(step) < 1e-8 * x:
            break
    return x
