"""Paired tests for two questions, which need two different tests.

`sign_flip`: which of two methods is better on problems like these? Problems are the observations.
`stratified`: did the same method change on these same problems? Samples are exchanged within each problem.
Both are exact and deterministic, except that `sign_flip` draws random flips, with a fixed seed, if the differences have
no common unit that is coarse enough.
Sources: Miller (arXiv 2411.00640), section 4; Fagerland, Lydersen and Laake, The McNemar test for binary matched-pairs
data (BMC Med. Res. Methodol. 13, 2013), for mid-p; Mantel and Haenszel (1959) for the stratified statistic.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special, stats

from warehouse.statistics.intervals import Counts, Floats, Interval

RANDOM_FLIPS = 99_999
"""Random flips drawn if the exact distribution is too large; the smallest possible p-value is 1/(1 + RANDOM_FLIPS)."""


@dataclass(frozen=True, slots=True)
class Stratified:
    """Result of a stratified test."""

    difference: float
    """Mean over problems of first − second."""
    z: float
    """The Mantel–Haenszel statistic; 0 if no problem can show a difference."""
    p_less: float
    """Exact one-sided p-value against the alternative that the first side is worse; includes the observed value."""
    p_greater: float
    """Exact one-sided p-value against the alternative that the first side is better; includes the observed value."""
    p_observed: float
    """Probability of exactly the observed value."""

    @property
    def p(self) -> float:
        """Two-sided mid-p: twice the smaller side, in which the observed value counts half."""
        return min(1.0, 2 * min(self.p_less, self.p_greater) - self.p_observed)


def sign_flip(differences: Floats, units: int | None = None) -> float:
    """Return the two-sided p-value of the sign-flip permutation test that differences (n,) are symmetric about 0.

    units: every difference is a multiple of 1/units, so the distribution of the sum over all 2^n flips is computed
    exactly and p is the mid-p value; with units 1 this is McNemar's mid-p test. None: flips are drawn with a fixed
    seed. Raises ValueError if a difference is not a multiple of 1/units.
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
    test = stats.permutation_test(
        (differences,),
        np.mean,
        permutation_type="samples",
        n_resamples=RANDOM_FLIPS,
        vectorized=True,
        batch=max(1, 2_000_000 // len(differences)),
        rng=np.random.default_rng(0),
    )
    return float(test.pvalue)


def stratified(
    first_correct: Counts, first_samples: Counts, second_correct: Counts, second_samples: Counts
) -> Stratified:
    """Exact conditional test that each problem's success probability is equal on both sides; all arguments (n,).

    Conditional on a problem's total number of correct answers, its split between the two sides is hypergeometric. The
    p-values are those of the sum over problems, whose distribution is the convolution. Problems that are always or
    never answered correctly carry no information.
    """
    difference = float(np.mean(first_correct / first_samples - second_correct / second_samples))
    total, right = first_samples + second_samples, first_correct + second_correct
    mean = first_samples * right / total
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = mean * (1 - right / total) * second_samples / (total - 1)
    informative = np.flatnonzero(np.nan_to_num(variance) > 0)
    if not len(informative):
        return Stratified(difference, 0.0, 1.0, 1.0, 1.0)
    excess = float((first_correct - mean)[informative].sum())
    chances = _total(first_samples[informative], right[informative], total[informative])
    observed = int(first_correct[informative].sum())
    at_most, at_least = (min(1.0, float(tail.sum())) for tail in (chances[: observed + 1], chances[observed:]))
    z = excess / float(np.sqrt(variance[informative].sum()))
    return Stratified(difference, z, at_most, at_least, float(chances[observed]))


def _total(drawn: Counts, right: Counts, total: Counts) -> Floats:
    """Return the probabilities of the sum of independent hypergeometric draws, from 0 to the sum of `drawn`."""
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
    """Return the logarithm of the binomial coefficient; −∞ where the coefficient is 0."""
    inside = (k >= 0) & (k <= n)
    n, k = np.where(inside, n, 0), np.where(inside, k, 0)
    value = special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1)
    return np.where(inside, value, -np.inf)


def non_inferiority(difference: Interval, margin: float) -> float | None:
    """Return the one-sided p-value of the null hypothesis that a method loses `margin` or more; None without interval.

    A small p-value shows non-inferiority. difference: method − reference, from `intervals.paired_difference`, whose t
    statistic is used, so that p is below 2.5 % exactly if the lower end of its 95 % interval lies above −margin.
    """
    if difference.low is None or difference.high is None or not difference.standard_error or not difference.degrees:
        return None
    return float(special.stdtr(difference.degrees, -(difference.centre + margin) / difference.standard_error))
