"""Methods for the mean of paired differences, of which warehouse/statistics/bounded.py is one, for skew.py.

Each takes differences (r, n) of r draws and a value, and returns two arrays (r,): one-sided p-values that the mean is
at most, and at least, this value. A 95 % interval misses the value on a side if that p-value is below 2.5 %.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray
from scipy import special

from warehouse.statistics.bounded import PSEUDO_WEIGHT, chance_below

Floats = NDArray[np.float64]
Method = Callable[[Floats, float], tuple[Floats, Floats]]
RESAMPLES = 599


def gaffke(weight: float = PSEUDO_WEIGHT) -> Method:
    """Return Gaffke's interval with a pseudo-problem of this weight, by default what the project uses."""

    def method(differences: Floats, value: float) -> tuple[Floats, Floats]:
        low = np.array([chance_below(row, value, -1.0, weight) for row in differences])
        high = np.array([1 - chance_below(row, value, 1.0, weight) for row in differences])
        return low, high

    return method


def padded_t(weight: float) -> Method:
    """Return t with two pseudo-problems of this weight, +1 and −1; weight 0 is Student's t."""

    def method(differences: Floats, value: float) -> tuple[Floats, Floats]:
        total = differences.shape[1] + 2 * weight
        mean = differences.sum(axis=1) / total
        squares = ((differences - mean[:, None]) ** 2).sum(axis=1) + weight * ((1 - mean) ** 2 + (1 + mean) ** 2)
        error = np.sqrt(squares / (total - 1) / total)
        with np.errstate(divide="ignore", invalid="ignore"):
            p = special.stdtr(total - 1, -(mean - value) / error)
        return p, 1 - p

    return method


def hall(differences: Floats, value: float) -> tuple[Floats, Floats]:
    """Hall's cubic correction of t for skewness (On the removal of skewness by transformation, JRSS B 54, 1992)."""
    n, spread = differences.shape[1], differences.std(axis=1, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        skewness = ((differences - differences.mean(axis=1, keepdims=True)) ** 3).mean(axis=1) / spread**3
        deviation = (differences.mean(axis=1) - value) / spread
        corrected = deviation + skewness * deviation**2 / 3 + skewness**2 * deviation**3 / 27 + skewness / (6 * n)
        p = special.stdtr(n - 1, -corrected * n**0.5)
    return p, 1 - p


def _flips(n: int) -> Floats:
    return np.random.default_rng(8).choice(np.array([-1.0, 1.0]), (1999, n))


def sign_flip(differences: Floats, value: float) -> tuple[Floats, Floats]:
    """Random sign flips of the differences to `value`: at 0, the permutation test."""
    rest = differences - value
    flipped, observed = rest @ _flips(differences.shape[1]).T, rest.sum(axis=1, keepdims=True)
    tie = 0.5 * (np.abs(flipped - observed) <= 1e-9).mean(axis=1)
    return (flipped > observed + 1e-9).mean(axis=1) + tie, (flipped < observed - 1e-9).mean(axis=1) + tie


def studentized_flip(differences: Floats, value: float) -> tuple[Floats, Floats]:
    """Sign flips of the t statistic."""
    rest, n = differences - value, differences.shape[1]
    squares, sums = (rest**2).sum(axis=1, keepdims=True), rest.sum(axis=1, keepdims=True)
    flipped = rest @ _flips(n).T
    flipped /= np.sqrt(np.maximum(squares - flipped**2 / n, 1e-18))
    observed = sums / np.sqrt(np.maximum(squares - sums**2 / n, 1e-18))
    tie = 0.5 * (np.abs(flipped - observed) <= 1e-9).mean(axis=1)
    return (flipped > observed + 1e-9).mean(axis=1) + tie, (flipped < observed - 1e-9).mean(axis=1) + tie


def bootstrap_t(differences: Floats, value: float) -> tuple[Floats, Floats]:
    """The equal-tailed studentized bootstrap."""
    rng, n = np.random.default_rng(5), differences.shape[1]
    low, high = np.full(len(differences), 0.5), np.full(len(differences), 0.5)
    for place, row in enumerate(differences):
        drawn = row[rng.integers(0, n, (RESAMPLES, n))]
        errors, error = drawn.std(axis=1, ddof=1) / n**0.5, row.std(ddof=1) / n**0.5
        has_spread = errors > 1e-12
        if error > 1e-12 and has_spread.any():
            pivots = (drawn.mean(axis=1)[has_spread] - row.mean()) / errors[has_spread]
            observed = (row.mean() - value) / error
            low[place], high[place] = (pivots >= observed).mean(), (pivots <= observed).mean()
    return low, high


def bca(differences: Floats, value: float) -> tuple[Floats, Floats]:
    """The bias-corrected and accelerated bootstrap, as `scipy.stats.bootstrap` has it; p is 0 or 1."""
    rng, n = np.random.default_rng(6), differences.shape[1]
    low, high = np.ones(len(differences)), np.ones(len(differences))
    for place, row in enumerate(differences):
        means, mean = np.sort(row[rng.integers(0, n, (RESAMPLES, n))].mean(axis=1)), row.mean()
        rest = row - mean
        if not rest.any():
            low[place], high[place] = mean <= value, mean >= value
            continue
        below = np.clip((np.mean(means < mean) + np.mean(means <= mean)) / 2, 1 / RESAMPLES, 1 - 1 / RESAMPLES)
        bias, skew = special.ndtri(below), (rest**3).sum() / (6 * (rest**2).sum() ** 1.5)
        moved = bias + special.ndtri(np.array([0.025, 0.975]))
        ends = np.quantile(means, special.ndtr(bias + moved / (1 - skew * moved)))
        low[place], high[place] = ends[0] <= value, ends[1] >= value
    return low, high


def empirical_likelihood(differences: Floats, value: float) -> tuple[Floats, Floats]:
    """Adjusted empirical likelihood (Chen, Variyath and Abraham, JCGS 17, 2008), calibrated by t."""
    n = differences.shape[1]
    rest = differences - value
    rest = np.column_stack([rest, -max(1.0, np.log(n) / 2) * rest.mean(axis=1)])
    shrink = 1 - 1 / (n + 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high = -shrink / rest.max(axis=1), -shrink / rest.min(axis=1)
        for _ in range(60):
            middle = (low + high) / 2
            is_positive = (rest / (1 + middle[:, None] * rest)).sum(axis=1) > 0
            low, high = np.where(is_positive, middle, low), np.where(is_positive, high, middle)
        ratio = 2 * np.log(np.maximum(1 + low[:, None] * rest, 1e-300)).sum(axis=1)
    root = np.sign(differences.mean(axis=1) - value) * np.sqrt(np.maximum(np.nan_to_num(ratio), 0))
    p = special.stdtr(n - 1, -root)
    return p, 1 - p


def betting(differences: Floats, value: float) -> tuple[Floats, Floats]:
    """Hedged betting (Waudby-Smith and Ramdas, JRSS B 86, 2024) with predictable bets for a fixed n; guaranteed."""
    x, mean, n = (differences + 1) / 2, (value + 1) / 2, differences.shape[1]
    count = np.arange(1, n + 1)
    centers = (0.5 + np.cumsum(x, axis=1)) / (count + 1)
    spreads = (0.25 + np.cumsum((x - centers) ** 2, axis=1)) / (count + 1)
    before = np.column_stack([np.full(len(x), 0.25), spreads[:, :-1]])
    bets = np.sqrt(2 * np.log(2 / 0.05) / (n * before))
    up = np.cumsum(np.log1p(np.minimum(bets, 0.5 / mean) * (x - mean)), axis=1).max(axis=1)
    down = np.cumsum(np.log1p(-np.minimum(bets, 0.5 / (1 - mean)) * (x - mean)), axis=1).max(axis=1)
    return np.minimum(1, np.exp(-up)), np.minimum(1, np.exp(-down))


CANDIDATES: Mapping[str, Method] = {
    "bounded mean: half a pseudo-problem (used)": gaffke(),
    "bounded mean: a whole pseudo-problem": gaffke(1.0),
    "t (used before)": padded_t(0),
    "t with half a problem +1 and −1": padded_t(0.5),
    "t with Hall's skewness correction": hall,
    "sign-flip permutation (used before)": sign_flip,
    "studentized sign flip": studentized_flip,
    "studentized bootstrap": bootstrap_t,
    "BCa bootstrap": bca,
    "adjusted empirical likelihood": empirical_likelihood,
    "betting": betting,
}
"""By name, in the order of the table."""
