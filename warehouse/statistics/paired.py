"""Two questions, two tests. Both are exact and need no random numbers, except that the first one draws flips, with a
fixed seed, where differences have no common unit that is coarse enough. The same data give the same verdict.

`sign_flip`: which of two methods is better on problems like these? Problems are the observations.
`stratified`: did the same method change on these same problems? Samples are exchanged within each problem.
Sources: Miller (arXiv 2411.00640), section 4; Fagerland, Lydersen and Laake, The McNemar test for binary matched-pairs
data (BMC Med. Res. Methodol. 13, 2013), for mid-p; Mantel and Haenszel (1959) for the stratified statistic.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special, stats

from warehouse.statistics.intervals import Counts, Floats, Interval

RANDOM_FLIPS = 99_999
"""Sign flips drawn where differences are no multiples of a coarse enough unit; the smallest p-value is 1/(1 + this)."""


@dataclass(frozen=True, slots=True)
class Stratified:
    """The outcome of a stratified test."""

    difference: float
    """Mean over problems of first − second."""
    z: float
    """The Mantel–Haenszel statistic; 0 where no problem can show a difference."""
    p_less: float
    """One-sided, that the first side is not worse."""
    p_greater: float
    """One-sided, that the first side is not better. Both sides are exact and hold what was observed."""
    p_observed: float
    """Chance of exactly what was observed."""

    @property
    def p(self) -> float:
        """Two-sided mid-p: twice the smaller side, of which what was observed counts half."""
        return min(1.0, 2 * min(self.p_less, self.p_greater) - self.p_observed)


def sign_flip(differences: Floats, units: int | None = None) -> float:
    """Two-sided p-value of the sign-flip permutation test that differences (n,) are symmetric about 0.

    units: where every difference is a multiple of 1/units, the distribution of the sum over all 2^n flips is computed
    exactly and p is the mid-p value; with units 1 this is McNemar's mid-p test. Else flips are drawn with a fixed seed.
    """
    if units is None:
        return _drawn_flips(differences)
    steps = np.rint(differences * units).astype(np.int64)
    if not np.allclose(steps, differences * units, atol=1e-6):
        raise ValueError(f"not every difference is a multiple of 1/{units}")
    sizes = np.abs(steps[steps != 0])
    observed, reach = abs(int(steps.sum())), int(sizes.sum())
    if observed == 0:
        return 1.0
    chances = np.zeros(2 * reach + 1)
    chances[reach] = 1.0
    for size in sizes:
        half = 0.5 * chances
        chances = np.zeros_like(half)
        chances[size:] += half[:-size]
        chances[:-size] += half[size:]
    sums = np.abs(np.arange(-reach, reach + 1))
    p = chances[sums > observed].sum() + 0.5 * chances[sums == observed].sum()
    return float(p)


def _drawn_flips(differences: Floats) -> float:
    if len(differences) < 2 or not np.any(differences):
        return 1.0
    found = stats.permutation_test(
        (differences,),
        np.mean,
        permutation_type="samples",
        n_resamples=RANDOM_FLIPS,
        vectorized=True,
        batch=max(1, 2_000_000 // len(differences)),
        rng=np.random.default_rng(0),
    )
    return float(found.pvalue)


def stratified(
    first_correct: Counts, first_samples: Counts, second_correct: Counts, second_samples: Counts
) -> Stratified:
    """Exact conditional test that each problem's chance is the same on both sides; all arguments (n,).

    Given how often a problem was answered right in all, its right answers fall on the two sides as a hypergeometric
    draw; the p-values are those of the total, whose distribution is the convolution over problems. Problems that are
    always or never right say nothing and do not matter.
    """
    difference = float(np.mean(first_correct / first_samples - second_correct / second_samples))
    total, right = first_samples + second_samples, first_correct + second_correct
    mean = first_samples * right / total
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = mean * (1 - right / total) * second_samples / (total - 1)
    open_ = np.flatnonzero(np.nan_to_num(variance) > 0)
    if not len(open_):
        return Stratified(difference, 0.0, 1.0, 1.0, 1.0)
    excess = float((first_correct - mean)[open_].sum())
    chances = _total(first_samples[open_], right[open_], total[open_])
    observed = int(first_correct[open_].sum())
    at_most, at_least = (min(1.0, float(part.sum())) for part in (chances[: observed + 1], chances[observed:]))
    z = excess / float(np.sqrt(variance[open_].sum()))
    return Stratified(difference, z, at_most, at_least, float(chances[observed]))


def _total(drawn: Counts, right: Counts, total: Counts) -> Floats:
    """Chances of the sum of independent hypergeometric draws, from 0 to the sum of `drawn`."""
    counts = np.arange(int(drawn.max()) + 1)
    with np.errstate(invalid="ignore"):
        logs = (
            _log_choose(right[:, None], counts)
            + _log_choose((total - right)[:, None], drawn[:, None] - counts)
            - _log_choose(total, drawn)[:, None]
        )
    chances = np.where(np.isfinite(logs), np.exp(np.where(np.isfinite(logs), logs, 0.0)), 0.0)
    size = int(drawn.sum()) + 1
    result = np.ones(1)
    for row in chances:
        result = np.convolve(result, row)
    return result[:size]


def _log_choose(n: Counts, k: Counts) -> Floats:
    """Logarithm of the binomial coefficient; −∞ where it is 0."""
    inside = (k >= 0) & (k <= n)
    n, k = np.where(inside, n, 0), np.where(inside, k, 0)
    value = special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1)
    return np.where(inside, value, -np.inf)


def non_inferiority(difference: Interval, margin: float) -> float | None:
    """One-sided p-value that a method loses margin or more: small means «not worse by margin».

    difference: method − reference, from `intervals.paired_difference`, whose t statistic is used, so that p is below
    2.5 % exactly where the lower end of its 95 % interval lies above −margin. None where there is no interval.
    """
    if difference.low is None or difference.high is None or not difference.standard_error or not difference.degrees:
        return None
    return float(special.stdtr(difference.degrees, -(difference.centre + margin) / difference.standard_error))
