"""Confidence intervals for the mean over problems: one problem is one observation, its samples are averaged first.

Sources: Miller, Adding Error Bars to Evals (arXiv 2411.00640), section 3; Bowyer, Aitchison and Ivanova, Don't Use the
CLT in LLM Evals (arXiv 2503.01747), for few problems; Agresti and Coull, Approximate Is Better than Exact (Am. Stat.
52, 1998), and Bonett and Price, Adjusted Wald Confidence Interval for a Difference of Binomial Proportions Based on
Paired Data (J. Educ. Behav. Stat. 37, 2012), for adding pseudo-observations. README.md has the simulation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
ADDED_WEIGHT = 0.25
"""Weight of each of the two pseudo-problems that `accuracy` adds: one always solved, one never."""
FEW_DIFFER = 5
"""With fewer problems that differ than this, the spread of the differences is too poorly estimated."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its confidence interval, in the unit of the values."""

    estimate: float
    low: float | None
    """None if there are too few observations for an interval."""
    high: float | None
    standard_error: float | None
    """Standard error over problems, which covers the choice of problems."""
    kind: str
    """Name of the method, as tables print it."""
    degrees: int | None = None
    """Degrees of freedom of Student's t, if the interval uses it."""
    shift: float = 0.0
    """How far an adjustment moved the center of the interval from the estimate."""

    @property
    def centre(self) -> float:
        """The value at which the interval's t statistic is 0."""
        return self.estimate + self.shift


def mean_t(values: Floats, level: float = 0.95) -> Interval:
    """Return Student's t interval of a mean; values (n,), one per problem. A single value has no interval."""
    n, mean = len(values), float(np.mean(values))
    if n < 2:
        return Interval(mean, None, None, None, "none: one problem")
    error = float(np.std(values, ddof=1)) / n**0.5
    half = _t_quantile(n - 1, level) * error
    return Interval(mean, mean - half, mean + half, error, "t", n - 1)


def accuracy(values: Floats, level: float = 0.95) -> Interval:
    """Return the interval of an accuracy; values (n,) from 0 to 1, one per problem.

    If every value is 0 or 1, this is the equal-tailed interval of the Beta posterior under a flat prior, widened to
    contain the estimate. Otherwise it is t with two pseudo-problems of weight ADDED_WEIGHT each, one solved and one
    not, because plain t is too narrow near 0 and 1. The standard error is the plain one.
    """
    plain = mean_t(values, level)
    n, mean = len(values), plain.estimate
    tails = np.array([(1 - level) / 2, (1 + level) / 2])
    if np.all((values == 0) | (values == 1)):
        right = round(float(values.sum()))
        low, high = (float(bound) for bound in special.betaincinv(1 + right, 1 + n - right, tails))
        return Interval(mean, min(low, mean), max(high, mean), plain.standard_error, "Beta")
    if plain.standard_error is None:
        return plain
    added, total = np.array([0.0, 1.0]), n + 2 * ADDED_WEIGHT
    centre = (float(values.sum()) + ADDED_WEIGHT) / total
    squares = float(((values - centre) ** 2).sum() + ADDED_WEIGHT * ((added - centre) ** 2).sum())
    half = _t_quantile(total - 1, level) * (squares / (total - 1) / total) ** 0.5
    return Interval(mean, max(0.0, centre - half), min(1.0, centre + half), plain.standard_error, "adjusted t")


def paired_difference(first: Floats, second: Floats, unit: float, level: float = 0.95) -> Interval:
    """Return the interval of the mean of first − second, paired by problem; first, second (n,).

    Student's t. If fewer than FEW_DIFFER problems differ, two pseudo-problems are added, one that differs by +unit and
    one by −unit, because equal results on a few problems do not prove equality. unit: the smallest difference that a
    single problem can show, 1/k for pass@1; with unit 1 this is Bonett and Price's adjustment.
    """
    differences = first - second
    plain = mean_t(differences, level)
    if plain.low is None or plain.high is None:
        return plain
    if np.count_nonzero(differences) >= FEW_DIFFER:
        return Interval(
            plain.estimate, max(-1.0, plain.low), min(1.0, plain.high), plain.standard_error, "t", plain.degrees
        )
    padded = mean_t(np.concatenate([differences, [unit, -unit]]), level)
    assert padded.low is not None
    assert padded.high is not None
    kind = "Bonett–Price with t" if unit == 1 else "adjusted t"
    low, high = max(-1.0, padded.low), min(1.0, padded.high)
    shift = padded.estimate - plain.estimate
    return Interval(plain.estimate, low, high, padded.standard_error, kind, padded.degrees, shift)


def _t_quantile(degrees: float, level: float) -> float:
    """Return the half-width of a two-sided interval in standard errors."""
    return float(special.stdtrit(degrees, (1 + level) / 2))


def rerun_standard_error(correct: Counts, samples: Counts) -> float | None:
    """Return the standard error of pass@1 over re-runs of the same problems: √(Σ p(1 − p)/(k − 1))/n.

    correct, samples (n,). None if any k is 1. The standard error over problems, which `mean_t` returns, is larger.
    """
    if np.any(samples < 2):
        return None
    p = correct / samples
    return float(np.sqrt(np.sum(p * (1 - p) / (samples - 1)))) / len(p)
