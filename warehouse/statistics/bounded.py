"""Worst-case intervals for a mean over problems: valid even if a few problems dominate the difference.

Suppose a method breaks 5 % of the problems and gains a little on all others. Then one in five draws of 30 problems
contains no broken problem. Student's t, permutation tests, the bootstrap and empirical likelihood cannot detect this:
no interval from the data alone is valid (Bahadur and Savage, The nonexistence of certain statistical procedures in
nonparametric problems, Ann. Math. Stat. 27, 1956). The known quantity is how much a single problem can lose or gain.

The interval is Gaffke's (Three test statistics for a nonparametric one-sided hypothesis on the mean of a nonnegative
variable, Math. Methods Stat. 14, 2005; Learned-Miller and Thomas, A New Confidence Interval for the Mean of a Bounded
Random Variable, arXiv 1905.06208). A pseudo-problem is added: the worst possible value for the lower end, the best for
the upper end. Then problems get random weights, uniform over all weights with sum 1. For values of 0 and 1, a whole
pseudo-problem gives Clopper and Pearson's exact interval, which is conservative. Half a pseudo-problem, used here,
gives about the mid-p interval. docs/statistics.md has the error rates.

The weights' distribution is computed, not sampled. Weights are gamma variables divided by their sum, so the weighted
mean is at most v if a weighted sum of independent gamma variables is at most 0 (Imhof, Computing the distribution of
quadratic forms in normal variables, Biometrika 48, 1961).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy import optimize

from warehouse.statistics.intervals import TAIL, Families, Floats, Interval, family_numbers

PSEUDO_WEIGHT = 0.5
"""Weight of the pseudo-problem with the worst or best possible value, in problems."""
KIND = "bounded mean"
SMALLEST_P = 1e-10
"""Minimum reported p-value. Smaller values are below the error of the numerical integration."""
_NEGLIGIBLE = 34.0
"""Integration stops where the integrand falls below exp(−34)."""
_POINTS = 64


def chance_below(values: Floats, value: float, bound: float, sizes: Floats | None = None) -> float:
    """Return the probability that the randomly weighted mean of values (n,) and the pseudo-problem is at most `value`.

    bound: value of the pseudo-problem. sizes (n,): family sizes divided by their mean; `values` are then family means,
    and the pseudo-problem is a family of mean size.
    """
    terms = np.append(values, bound) - value
    if sizes is not None:
        terms *= np.append(sizes, 1.0)
    distinct, counts = np.unique(terms, return_counts=True)
    weights = counts.astype(np.float64)
    weights[np.searchsorted(distinct, bound - value)] += PSEUDO_WEIGHT - 1
    if distinct[-1] <= 0 or distinct[0] >= 0:
        return float(distinct[-1] <= 0)
    points, shares = _nodes(distinct, weights)
    scaled = np.outer(points, distinct)
    angles, sizes = np.arctan(scaled) @ weights, 0.5 * np.log1p(scaled**2) @ weights
    below = 0.5 - float(np.sum(shares * np.sin(angles) * np.exp(-sizes) / points)) / np.pi
    return min(1.0, max(0.0, below))


def _nodes(terms: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Return points (m,) and weights (m,) to integrate the characteristic function of a sum of gamma variables.

    terms, weights (d,): factor and shape of each gamma variable. The rule is Gauss-Legendre on panels that double in
    length, from the scale of the largest term to where the integrand is negligible. The farther the sum's mean is from
    0, in standard deviations, the more the integrand oscillates, so the more points are used.
    """
    spread = float(np.sqrt(weights @ terms**2))
    end = 1 / spread
    while 0.5 * np.log1p((end * terms) ** 2) @ weights < _NEGLIGIBLE:
        end *= 2
    panels = max(0, int(np.ceil(np.log2(end * np.abs(terms).max()))))
    edges = end * np.append(0.0, 2.0 ** np.arange(-panels, 1))
    deviations = abs(float(weights @ terms)) / spread
    nodes, shares = _rule(_POINTS * (1 + int(deviations / 16)))
    halves = np.diff(edges)[:, None] / 2
    return (edges[:-1, None] + halves * (1 + nodes)).ravel(), (halves * shares).ravel()


@lru_cache(maxsize=32)
def _rule(points: int) -> tuple[Floats, Floats]:
    nodes, shares = np.polynomial.legendre.leggauss(points)
    return nodes, shares


def _quantile(
    values: Floats, bound: float, chance: float, lowest: float, highest: float, sizes: Floats | None = None
) -> float:
    """Return the value from `lowest` to `highest` that the weighted mean falls below with probability `chance`."""
    if highest - lowest < 1e-12:
        return lowest
    margin = 1e-12 * (highest - lowest)
    return float(
        optimize.brentq(
            lambda value: chance_below(values, value, bound, sizes=sizes) - chance,
            lowest + margin,
            highest - margin,
            xtol=1e-9,
        )
    )


def worst_case(a: Floats, b: Floats, margin: float, family: Families | None = None) -> Interval:
    """Return the interval of the mean of a − b if single problems, or families, may be lost or gained entirely.

    a, b (n,), from 0 to 1. p is one-sided, for the hypothesis that a loses `margin` or more. "Not worse" requires p
    below 2.5 %, which is equivalent to a lower end above −margin. A single problem has no interval and no p.
    """
    values, numbers = np.clip(np.round(a - b, 12), -1.0, 1.0), family_numbers(family)  # removes rounding errors
    estimate, sizes, families = float(np.mean(a - b)), None, None
    if numbers is not None:
        members = np.bincount(numbers)
        values, sizes, families = np.bincount(numbers, values) / members, members / members.mean(), len(members)
    if len(values) < 2:
        return Interval(estimate, None, None, None, "none: one problem", families=families)
    low = _quantile(values, -1.0, 1 - TAIL, -1.0, float(values.max()), sizes)
    high = _quantile(values, 1.0, TAIL, float(values.min()), 1.0, sizes)
    p = max(SMALLEST_P, chance_below(values, -margin, -1.0, sizes=sizes))
    return Interval(estimate, min(low, estimate), max(high, estimate), None, KIND, p=p, families=families)
