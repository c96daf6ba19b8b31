"""Differences between two runs, paired by problem; intervals for similar problems or for reruns of the same problems.

Sources: Miller, Adding Error Bars to Evals (arXiv 2411.00640), section 4; Tango (Stat. Med. 17, 1998).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy import optimize, special

from warehouse.statistics.intervals import TAIL, Counts, Families, Floats, Interval, clustered, rerun_standard_error

ON_THESE = "on these problems"
_LEAST_SPREAD = 1e-12


def paired(a: Floats, b: Floats, family: Families | None = None) -> Interval:
    """Return the interval of the mean of a − b for similar problems, with its two-sided p; a, b (n,), from 0 to 1.

    If every value is 0 or 1 and no problems share a family: Tango's score interval with McNemar's p. If all differences
    are 0: Tango's interval for as many observations as problems (families). Otherwise: Student's t of the differences,
    clustered by family. Problems that are lost entirely but are not in the data are not covered; see
    `bounded.worst_case`.
    """
    differences = np.round(a - b, 12)
    found = clustered(differences, np.ones(len(a)), family)
    is_yes_or_no = np.all(np.isin(a, (0, 1))) and np.all(np.isin(b, (0, 1))) and not found.has_families
    if found.why_none is None and (is_yes_or_no or not np.any(differences)):
        gained, lost = int(np.sum(differences > 0)), int(np.sum(differences < 0))
        return replace(tango(gained, lost, found.num_clusters), families=found.families)
    if found.why_none is None and found.error < _LEAST_SPREAD:
        return found.without_interval("none: equal differences")
    return found.student()


def tango(gained: int, lost: int, n: int) -> Interval:
    """Return the score interval of a difference of paired proportions, (gained − lost)/n, and McNemar's p.

    Source: Tango, Equivalence test and confidence interval for the difference in proportions for the paired-sample
    design (Stat. Med. 17, 1998). The p has no continuity correction: it is below 5 % if and only if the interval
    excludes 0.
    """
    quantile = float(special.ndtri(TAIL))
    estimate = (gained - lost) / n

    def score(difference: float) -> float:
        """Return the z statistic of a hypothetical difference, given its most likely share of lost problems."""
        b = (2 * n - gained + lost) * difference - gained - lost
        c = -lost * difference * (1 - difference)
        share = (np.sqrt(max(0.0, b * b - 8 * n * c)) - b) / (4 * n)
        variance = n * (2 * share + difference * (1 - difference))
        return float((gained - lost - n * difference) / np.sqrt(variance)) if variance > 0 else 0.0

    def end(edge: float, z: float) -> float:
        """Return an interval end: the difference, between the estimate and `edge` (−1 or 1), whose score is `z`."""
        if estimate == edge:
            return edge
        return float(optimize.brentq(lambda at: score(at) - z, estimate, edge * (1 - 1e-12), xtol=1e-10))

    low, high = end(-1.0, quantile), end(1.0, -quantile)
    error = float(np.sqrt(gained + lost - (gained - lost) ** 2 / n)) / n
    p = 2 * float(special.ndtr(-abs(gained - lost) / np.sqrt(gained + lost))) if gained + lost else 1.0
    return Interval(estimate, low, high, error, "Tango", p=p)


def on_these(first_correct: Counts, first_samples: Counts, second_correct: Counts, second_samples: Counts) -> Interval:
    """Return the interval of first − second for the same problems, with its two-sided p; all arguments (n,).

    It accounts only for the randomness of the samples. The standard error is the root of the sum of squares of both
    runs' `rerun_standard_error`. No interval if a problem has a single sample, which shows no variation, or if no
    problem's answers vary.
    """
    estimate = float(np.mean(first_correct / first_samples - second_correct / second_samples))
    own = rerun_standard_error(first_correct, first_samples)
    other = rerun_standard_error(second_correct, second_samples)
    if own is None or other is None:
        return Interval(estimate, None, None, None, "none: one sample of a problem")
    error = float(np.hypot(own, other))
    if not error:
        return Interval(estimate, None, None, error, "none: no problem's answers vary")
    half = float(special.ndtri(TAIL)) * error
    p = 2 * float(special.ndtr(-abs(estimate) / error))
    return Interval(estimate, estimate - half, estimate + half, error, ON_THESE, p=p)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p-values in input order. Rejecting every hypothesis with an adjusted p ≤ α bounds the
    family-wise error rate by α.
    """
    p = np.asarray(p_values, dtype=float)
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1.0, stepped)
    return [float(value) for value in adjusted]
