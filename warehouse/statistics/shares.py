"""Intervals of ratios of sums: rates over steps, shares of time, words per token. One problem is one observation.

A problem contributes Σx and Σy over its samples, and the estimate is Σx/Σy over problems, with the jackknife of
`intervals.clustered`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from warehouse.statistics.intervals import (
    FEWEST_FAMILIES,
    TAIL,
    Counts,
    Families,
    Floats,
    Interval,
    clustered,
    family_numbers,
    too_few,
)

LARGEST_SHARE = 0.1
"""Maximum share of decisions in one problem or family; above it, the rate has no interval."""
FEWEST_WRONG, FEWEST_PROBLEMS = 10, 5
"""Minimum number of wrong samples, and of problems with a wrong sample, for an AUROC; the same holds for right samples.
"""
_ROUNDING = 1e-12
"""Rounding tolerance for sums of shares."""


def rate(x: Floats, y: Floats, family: Families | None = None, *, is_part: bool = True) -> Interval:
    """Return Σx/Σy over problems, as papers define a rate over decisions, with its interval; x, y (n,).

    The standard error is a jackknife that leaves out one problem, or one family, at a time. If `is_part` (x is part of
    y), the interval is Wilson's with the effective number of observations; no interval is given if a single problem, or
    family, holds more than LARGEST_SHARE of y. Otherwise, the interval is Student's t. Problems with y = 0 are left
    out; if none remains, the estimate is NaN.
    """
    kept = y > 0
    if not np.any(kept):
        return Interval(float("nan"), None, None, None, "none: no problem")
    own = None if family is None else [name for name, is_kept in zip(family, kept, strict=True) if is_kept]
    found = clustered(x[kept], y[kept], own)
    if is_part and found.largest > LARGEST_SHARE:
        subject = "family" if found.has_families else "problem"
        return found.without_interval(f"none: one {subject} holds {100 * found.largest:.0f} %")
    return found.score() if is_part else found.student()


def auroc(
    rating: Floats, is_right: NDArray[np.bool_], sample: Counts, problem: Counts, family: NDArray[Any] | None = None
) -> Interval:
    """Return the probability that a decision of a correct sample has a higher score than one of an incorrect sample.

    All arguments have one element per decision; ties count half. family: by default, each problem is its own family.
    The standard error is the delete-one-family jackknife. The interval is Student's t on the logit scale, with the
    degrees of freedom of the families' contributions (Satterthwaite), because a few families may dominate. The value is
    NaN if the decisions of correct samples, or those of incorrect samples, come from fewer than FEWEST_WRONG samples or
    FEWEST_PROBLEMS families, or if problems share families and there are fewer than FEWEST_FAMILIES.
    """
    names, numbers = np.unique(problem if family is None else family, return_inverse=True)
    n = len(names)
    families, kind = (n, "families") if n < len(np.unique(problem)) else (None, "problems")
    reason = too_few(n) if families and families < FEWEST_FAMILIES else ""
    for which, has in (("right", is_right), ("wrong", ~is_right)):
        if len(np.unique(sample[has])) < FEWEST_WRONG or len(np.unique(numbers[has])) < FEWEST_PROBLEMS:
            reason = reason or f"none: fewer than {FEWEST_WRONG} {which} samples or {FEWEST_PROBLEMS} {kind} with one"
    if reason:
        return Interval(float("nan"), None, None, None, reason, families=families)
    right, wrong = rating[is_right], rating[~is_right]
    # Pairs won by the decision of the correct sample: by that sample's family, by the other's family, within a family.
    of_right = np.bincount(numbers[is_right], _below(right, wrong), n)
    of_wrong = np.bincount(numbers[~is_right], len(right) - _below(wrong, right), n)
    num_right, num_wrong = np.bincount(numbers[is_right], minlength=n), np.bincount(numbers[~is_right], minlength=n)
    by_problem = np.split(np.argsort(numbers, kind="stable"), np.cumsum(np.bincount(numbers))[:-1])
    of_both = np.array([_below(rating[own][is_right[own]], rating[own][~is_right[own]]).sum() for own in by_problem])
    area = float(of_right.sum()) / (len(right) * len(wrong))
    left = (of_right.sum() - of_right - of_wrong + of_both) / ((len(right) - num_right) * (len(wrong) - num_wrong))
    squares = (left - area) ** 2
    degrees = float(squares.sum() ** 2 / (squares**2).sum()) if squares.any() else 0.0
    return replace(on_logit(area, float(np.sqrt((n - 1) / n * squares.sum())), degrees), families=families)


def _below(ratings: Floats, others: Floats) -> Floats:
    """Return for each of `ratings` the number of lower ratings among `others`; ties count half."""
    ordered = np.sort(others)
    below = np.searchsorted(ordered, ratings, "left") + np.searchsorted(ordered, ratings, "right")
    return np.asarray(below / 2)


def on_logit(estimate: float, standard_error: float, degrees: float) -> Interval:
    """Return Student's t interval of a probability, computed on the logit scale, for example of an area under a ROC
    curve.

    degrees: degrees of freedom of the standard error. There is no interval without spread, with less than one degree of
    freedom, or at 0 and 1, where the logit is infinite.
    """
    if not (_ROUNDING < estimate < 1 - _ROUNDING and standard_error > _ROUNDING and degrees >= 1):
        error = standard_error if standard_error >= 0 else None
        return Interval(estimate, None, None, error, "none: no spread between problems")
    half = float(special.stdtrit(degrees, TAIL)) * standard_error / (estimate * (1 - estimate))
    low, high = (float(special.expit(special.logit(estimate) + side * half)) for side in (-1, 1))
    return Interval(estimate, low, high, standard_error, "t on the logit", int(degrees))


def correlation(sums: Floats, family: Families | None = None) -> Interval | None:
    """Return the correlation of two step values with its interval from the jackknife over problems (families).

    sums (n, 6): each problem's number of steps and its sums of x, y, xy, x² and y². Steps of a problem are not
    independent, so whole problems are left out (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter
    11). None if x or y is constant.
    """
    numbers = family_numbers(family)
    if numbers is not None:
        sums = np.stack([np.bincount(numbers, column) for column in sums.T], axis=1)
    n, whole, kind = len(sums), sums.sum(axis=0), "problems" if numbers is None else "families"
    families = None if numbers is None else n
    [estimate] = _correlations(whole[None, :])
    if not np.isfinite(estimate):
        return None
    parts = _correlations(whole - sums)
    reason = None if n > 1 and np.all(np.isfinite(parts)) else f"none: it depends on single {kind}"
    if families and families < FEWEST_FAMILIES:
        reason = too_few(families)
    if reason:
        return Interval(float(estimate), None, None, None, reason, families=families)
    error = float(np.sqrt((n - 1) * parts.var()))
    half = float(special.stdtrit(n - 1, TAIL)) * error
    low, high = max(-1.0, float(estimate) - half), min(1.0, float(estimate) + half)
    return Interval(float(estimate), low, high, error, f"jackknife over {kind}", n - 1, families=families)


def _correlations(sums: Floats) -> Floats:
    """Return each row's correlation (m,) from sums (m, 6), as in `correlation`; NaN if x or y is constant."""
    n, x, y, xy, xx, yy = sums.T
    variances = np.maximum(n * xx - x * x, 0.0) * np.maximum(n * yy - y * y, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((n * xy - x * y) / np.where(variances > 0, np.sqrt(variances), np.nan))
