"""Exact paired tests for two questions, which need two different tests.

`sign_flip`: which of two methods is better on problems like these, with one answer for each problem? Problems are the
observations. With several answers `bounded.which_is_better` tests this.
`stratified`: did the same method change on these same problems? Samples are exchanged within each problem.
Sources: Miller (arXiv 2411.00640), section 4; Fagerland, Lydersen and Laake, The McNemar test for binary matched-pairs
data (BMC Med. Res. Methodol. 13, 2013), for mid-p; Mantel and Haenszel (1959) for the stratified statistic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import fft, optimize, special

from warehouse.statistics.intervals import Counts, Families, Floats, Interval, clustered, rerun_standard_error

ON_THESE = "on these problems"
_MOST_PRODUCTS = 20_000_000
"""Products of a convolution above which it goes through Fourier transforms."""


def paired(a: Floats, b: Floats, family: Families | None = None, level: float = 0.95) -> Interval:
    """Return the interval of the mean of a − b on problems like these, with its two-sided p; a, b (n,), from 0 to 1.

    Where every value is 0 or 1 and no problems share a family it is Tango's score interval, whose p is McNemar's; else
    Student's t of the differences, clustered by family. Differences that are all 0 have Tango's interval of as many
    independent observations. It does not cover problems that are lost entirely and of which none was drawn: that is
    `bounded.worst_case`.
    """
    differences = np.round(a - b, 12)
    found = clustered(differences, np.ones(len(a)), family)
    is_yes_or_no = np.all(np.isin(a, (0, 1))) and np.all(np.isin(b, (0, 1))) and not found.has_families
    if found.why_none is None and (is_yes_or_no or not np.any(differences)):
        gained, lost = int(np.sum(differences > 0)), int(np.sum(differences < 0))
        return replace(tango(gained, lost, found.num_clusters, level), families=found.families)
    return found.student(level)


def tango(gained: int, lost: int, n: int, level: float = 0.95) -> Interval:
    """Return the score interval of a difference of paired proportions, (gained − lost)/n, and McNemar's p.

    Source: Tango, Equivalence test and confidence interval for the difference in proportions for the paired-sample
    design (Stat. Med. 17, 1998). The p is without continuity correction: below 1 − level exactly if the interval
    excludes 0.
    """
    quantile = float(special.ndtri((1 + level) / 2))
    estimate = (gained - lost) / n

    def score(difference: float) -> float:
        """Return z of this difference; `share` is the share of lost problems that is likeliest under it."""
        b = (2 * n - gained + lost) * difference - gained - lost
        c = -lost * difference * (1 - difference)
        share = (np.sqrt(max(0.0, b * b - 8 * n * c)) - b) / (4 * n)
        variance = n * (2 * share + difference * (1 - difference))
        return float((gained - lost - n * difference) / np.sqrt(variance)) if variance > 0 else 0.0

    def end(edge: float, z: float) -> float:
        """Return where z is reached between the estimate and an edge, −1 or 1."""
        if estimate == edge:
            return edge
        return float(optimize.brentq(lambda at: score(at) - z, estimate, edge * (1 - 1e-12), xtol=1e-10))

    low, high = end(-1.0, quantile), end(1.0, -quantile)
    error = float(np.sqrt(gained + lost - (gained - lost) ** 2 / n)) / n
    p = 2 * float(special.ndtr(-abs(gained - lost) / np.sqrt(gained + lost))) if gained + lost else 1.0
    return Interval(estimate, low, high, error, "Tango", p=p)


def on_these(
    first_correct: Counts, first_samples: Counts, second_correct: Counts, second_samples: Counts, level: float = 0.95
) -> Interval:
    """Return the interval of first − second on these very problems, with its two-sided p; all arguments (n,).

    It covers the choice of the samples alone, as if the benchmark were all there is: its standard error is the root of
    the sum of squares of both runs' `rerun_standard_error`. None with a single sample of a problem, which does not show
    how much its answers vary, and where no problem's answers vary.
    """
    estimate = float(np.mean(first_correct / first_samples - second_correct / second_samples))
    own = rerun_standard_error(first_correct, first_samples)
    other = rerun_standard_error(second_correct, second_samples)
    if own is None or other is None:
        return Interval(estimate, None, None, None, "none: one sample of a problem")
    error = float(np.hypot(own, other))
    if not error:
        return Interval(estimate, None, None, error, "none: no problem's answers vary")
    half = float(special.ndtri((1 + level) / 2)) * error
    p = 2 * float(special.ndtr(-abs(estimate) / error))
    return Interval(estimate, estimate - half, estimate + half, error, ON_THESE, p=p)


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


def sign_flip(differences: Floats, units: int) -> float:
    """Return the two-sided p-value of the sign-flip permutation test that differences (n,) are symmetric about 0.

    units: every difference is a multiple of 1/units, so the distribution of the sum over all 2^n flips is computed
    exactly and p is the mid-p value; with units 1 this is McNemar's mid-p test, where a mean of 0 and symmetry are the
    same. With larger units they are not: a method that breaks a few problems and gains a little on the others has
    asymmetric differences of mean 0, and bounded.py has the test of their mean. Raises ValueError if a difference is
    not a multiple of 1/units.
    """
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
    excess, variance = _excess(first_correct, first_samples, second_correct, second_samples)
    informative = np.flatnonzero(variance > 0)
    if not len(informative):
        return Stratified(difference, 0.0, 1.0, 1.0, 1.0)
    chances = _total(first_samples[informative], right[informative], total[informative])
    observed = int(first_correct[informative].sum())
    at_most, at_least = (min(1.0, float(tail.sum())) for tail in (chances[: observed + 1], chances[observed:]))
    z = float(excess[informative].sum()) / float(np.sqrt(variance[informative].sum()))
    return Stratified(difference, z, at_most, at_least, float(chances[observed]))


def _excess(
    first_correct: Counts, first_samples: Counts, second_correct: Counts, second_samples: Counts
) -> tuple[Floats, Floats]:
    """Return by problem the first side's right answers beyond their conditional mean, and the conditional variance."""
    total, right = first_samples + second_samples, first_correct + second_correct
    mean = first_samples * right / total
    variance = mean * (total - right) * second_samples / (total * np.maximum(total - 1, 1))
    return first_correct - mean, variance


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
    if chances.size * size > _MOST_PRODUCTS:
        return _convolved(chances)[:size]
    result = np.ones(1)
    for row in chances:
        result = np.convolve(result, row)
    return result[:size]


def _convolved(rows: Floats) -> Floats:
    """Return the convolution of all rows, pairs of them at a time, by Fourier transforms; error about 1e-15."""
    while len(rows) > 1:
        odd = rows[-1:] if len(rows) % 2 else None
        length = 2 * rows.shape[1] - 1
        padded = fft.next_fast_len(length, real=True)
        first, second = (fft.rfft(half, padded, axis=1) for half in (rows[: len(rows) // 2 * 2 : 2], rows[1::2]))
        rows = np.maximum(fft.irfft(first * second, padded, axis=1)[:, :length], 0.0)
        if odd is not None:
            rows = np.vstack([rows, np.pad(odd, ((0, 0), (0, length - odd.shape[1])))])
    return np.asarray(rows[0])


def _log_choose(n: Counts, k: Counts) -> Floats:
    """Return the logarithm of the binomial coefficient; −∞ where the coefficient is 0."""
    inside = (k >= 0) & (k <= n)
    n, k = np.where(inside, n, 0), np.where(inside, k, 0)
    value = special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1)
    return np.where(inside, value, -np.inf)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the adjusted p-values in input order; rejecting those at most α bounds the family-wise error rate by α."""
    p = np.asarray(p_values, dtype=float)
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1.0, stepped)
    return [float(value) for value in adjusted]
