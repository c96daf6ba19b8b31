"""Confidence intervals for means over problems. One problem is one observation: its samples are averaged first.

Problems of one family (a template, a passage, parts of a question) share difficulty. The estimate remains the mean over
problems. Its standard error is the delete-one-family jackknife (Efron and Tibshirani, An Introduction to the Bootstrap,
1993, chapter 11). The degrees of freedom are Kish's effective number of families less 1, or the number of families less
1 if they are equally large. Reference for clustered errors in evaluations: Miller, Adding Error Bars to Evals (arXiv
2411.00640), section 3. docs/statistics.md has the error rates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Families = Sequence[str | None]
"""Family of each problem. None: the problem is its own family."""
LEVEL = 0.95
"""Confidence level of every interval."""
TAIL = (1 + LEVEL) / 2
"""Probability below the upper end of a two-sided interval."""
FEWEST_FAMILIES = 10
"""Minimum number of families for an interval."""
_LEAST_ERROR = 1e-12


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its confidence interval, in the unit of the values."""

    estimate: float
    low: float | None
    """None: there is no interval; `kind` gives the reason."""
    high: float | None
    standard_error: float | None
    """Standard error over problems; includes the sampling of problems."""
    kind: str
    """Name of the method as printed in tables, or "none: " with the reason for no interval."""
    degrees: float | None = None
    """Degrees of freedom if the interval uses Student's t."""
    p: float | None = None
    """Unadjusted p-value; the function that returns the interval states the hypothesis."""
    families: int | None = None
    """Number of families, which are the independent observations; None if no problems share a family."""


@dataclass(frozen=True, slots=True)
class Clustered:
    """Σx/Σy over problems, with its jackknife over families."""

    estimate: float
    error: float
    """Standard error; 0 for one family."""
    degrees: float
    num_clusters: int
    """Number of families; a problem without a family counts as one."""
    largest: float
    """Largest family's share of Σy."""
    has_families: bool

    @property
    def families(self) -> int | None:
        return self.num_clusters if self.has_families else None

    @property
    def why_none(self) -> str | None:
        """Why there is no interval, as an interval kind; None if there is one."""
        if self.has_families and self.num_clusters < FEWEST_FAMILIES:
            return too_few(self.num_clusters)
        return "none: one problem" if self.num_clusters < 2 else None

    def without_interval(self, reason: str) -> Interval:
        error = self.error if self.num_clusters > 1 else None
        return Interval(self.estimate, None, None, error, reason, families=self.families)

    def student(self) -> Interval:
        """Return Student's t interval; its p is two-sided for the hypothesis that the value is 0."""
        if reason := self.why_none:
            return self.without_interval(reason)
        half = float(special.stdtrit(self.degrees, TAIL)) * self.error
        t = abs(self.estimate) / self.error if self.error > _LEAST_ERROR else np.inf if self.estimate else 0.0
        p = 2 * float(special.stdtr(self.degrees, -t))
        low, high = self.estimate - half, self.estimate + half
        kind = "t, clustered" if self.has_families else "t"
        return Interval(self.estimate, low, high, self.error, kind, self.degrees, p, self.families)

    def score(self) -> Interval:
        """Return Wilson's score interval of a share from 0 to 1 with its effective number of observations.

        That number is p(1 − p)/standard error² (Korn and Graubard, Survey Methodology 24, 1998). The quantile is
        Student's t. The variance includes one more observation of the largest possible variance, p(1 − p), because few
        families often show no variance near 0 or 1. At 0 and 1, the effective number of families is used instead.
        """
        if reason := self.why_none:
            return self.without_interval(reason)
        p, number = min(1.0, max(0.0, self.estimate)), self.degrees + 1
        most = p * (1 - p)
        square = (self.degrees * self.error**2 + most / number) / number
        low, high = wilson(p, most / square if most else number, float(special.stdtrit(self.degrees, TAIL)))
        kind = f"Wilson, {'clustered' if self.has_families else 'effective number'}"
        return Interval(self.estimate, low, high, self.error, kind, self.degrees, None, self.families)


def too_few(families: int) -> str:
    """Return the `Interval.kind` that explains why there is no interval: too few families."""
    return f"none: {families} families, fewer than {FEWEST_FAMILIES}"


def family_numbers(family: Families | None) -> Counts | None:
    """Return each problem's family number (n,), from 0; None if no problems share a family."""
    if family is None:
        return None
    names = [place if name is None else name for place, name in enumerate(family)]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return np.array([numbers[name] for name in names]) if len(numbers) < len(names) else None


def clustered(x: Floats, y: Floats, family: Families | None = None) -> Clustered:
    """Return Σx/Σy over problems with its jackknife over families. x, y (n,); no single family may have all of Σy."""
    numbers = family_numbers(family)
    if numbers is not None:
        x, y = np.bincount(numbers, x).astype(float), np.bincount(numbers, y).astype(float)
    count, sum_x, sum_y = len(x), float(x.sum()), float(y.sum())
    estimate, sizes = sum_x / sum_y, y / sum_y
    if count < 2:
        error, degrees = 0.0, 0.0
    elif np.all(y == y[0]):  # the jackknife equals the standard error of the family means
        error, degrees = float(np.std(x / y[0], ddof=1)) / count**0.5, count - 1.0
    else:
        left = (sum_x - x) / (sum_y - y)
        error = float(np.sqrt((count - 1) / count * ((left - estimate) ** 2).sum()))
        degrees = 1 / float((sizes**2).sum()) - 1
    return Clustered(estimate, error, degrees, count, float(sizes.max()), numbers is not None)


def wilson(share: float, size: float, quantile: float) -> tuple[float, float]:
    """Return the ends of Wilson's score interval (J. Am. Stat. Assoc. 22, 1927) for a share of `size` observations."""
    square = quantile**2
    centre = (share + square / 2 / size) / (1 + square / size)
    half = quantile / (1 + square / size) * float(np.sqrt(share * (1 - share) / size + square / 4 / size**2))
    return (max(0.0, centre - half) if share > 0 else 0.0), (min(1.0, centre + half) if share < 1 else 1.0)


def mean(values: Floats, family: Families | None = None) -> Interval:
    """Return the interval of an accuracy, pass@k or maj@k; values (n,) from 0 to 1, one per problem.

    If every value is 0 or 1 and no problems share a family, this is Wilson's interval, even for a single problem;
    otherwise, Wilson's interval with the effective number of problems. Raises ValueError if a value is out of bounds.
    """
    values = np.round(values, 12)
    if values.min() < 0 or values.max() > 1:
        raise ValueError("a value is not between 0 and 1")
    found = clustered(values, np.ones(len(values)), family)
    if found.has_families or np.any((values > 0) & (values < 1)):
        return found.score()
    low, high = wilson(found.estimate, len(values), float(special.ndtri(TAIL)))
    return Interval(found.estimate, low, high, found.error if len(values) > 1 else None, "Wilson")


def mean_t(values: Floats, family: Families | None = None) -> Interval:
    """Return Student's t interval of an unbounded mean; values (n,), one per problem. One problem has no interval."""
    return clustered(values, np.ones(len(values)), family).student()


def rerun_standard_error(correct: Counts, samples: Counts) -> float | None:
    """Return the standard error of pass@1 over reruns of the same problems: √(Σ p(1 − p)/(k − 1))/n.

    `correct` and `samples`, both (n,): each problem's number of correct samples and of all samples, k; p is their
    ratio. None if any k is 1. The standard error over problems is larger.
    """
    if np.any(samples < 2):
        return None
    p = correct / samples
    return float(np.sqrt(np.sum(p * (1 - p) / (samples - 1)))) / len(p)


def mean_on_these(correct: Counts, samples: Counts) -> Interval | None:
    """Return the normal interval of pass@1 over reruns of the same problems; arguments as for `rerun_standard_error`.

    It covers only the randomness of samples. None if any problem has one sample; without bounds if no answers vary.
    """
    error, estimate = rerun_standard_error(correct, samples), float(np.mean(correct / samples))
    if error is None:
        return None
    if not error:
        return Interval(estimate, None, None, error, "none: no problem's answers vary")
    half = float(special.ndtri(TAIL)) * error
    return Interval(estimate, max(0.0, estimate - half), min(1.0, estimate + half), error, "on these problems")
