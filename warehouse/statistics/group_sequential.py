"""Several looks at one comparison while its samples grow, with the error rate of one look.

A comparison of two methods on the same problems is looked at after each wave of samples. Whoever tests at 2.5 % at each
of four looks is wrong in more than 2.5 %. Instead a spending function says how much of the error rate may be used up to
a look, and the level of each look follows from those before it (Lan and DeMets, Discrete sequential boundaries for
clinical trials, Biometrika 70, 1983; the recursion is that of Armitage, McPherson and Rowe, Repeated significance tests
on accumulating data, JRSS A 132, 1969).

The problems stay the same over all looks, so that only what is due to drawing samples gets smaller: with b² the
variance of problem means and w² that of single samples, the means at k and at K samples per problem are correlated with
the root of (b² + w²/K)/(b² + w²/k), which is at least the root of k/K. The levels are those for b = 0. Two looks that
depend on each other more are wrong at one of them less often (Slepian, The one-sided barrier problem for Gaussian
noise, Bell System Tech. J. 41, 1962), so that they hold for every b, which need not be known or estimated. With the
different numbers of samples that the waves give to problems they hold nearly: README.md has the bound.

The interval at a look is that of `bounded.py` at the look's level, a repeated confidence interval (Jennison and
Turnbull, Interim analyses: the repeated confidence interval approach, JRSS B 51, 1989): the intervals of all looks
together cover the true difference in at least 95 %, whatever made the run stop. README.md has the simulation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
from scipy import optimize, special

from warehouse.statistics import bounded
from warehouse.statistics.intervals import Floats, Interval

KIND = f"group-sequential {bounded.KIND}"
ERROR_RATE = 0.025
"""Error rate of each of the two decisions, over all looks."""
USUAL_LEVEL = 0.95
"""Confidence level of the interval where a comparison is looked at once."""
_POWER = 2.0
"""Exponent of the share of the samples in the spending function (Kim and DeMets, Design and analysis of group
sequential tests, Biometrika 74, 1987)."""
_FARTHEST = 12.0
"""Standard deviations beyond which no bound lies."""
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(128)


@lru_cache(maxsize=64)
def levels(shares: tuple[float, ...], spent: tuple[float, ...] | None = None) -> tuple[float, ...]:
    """Return the one-sided level of each look, at these shares of all samples; the last share is 1.

    spent: error rate that may be used up to each look; by default what `spending` says. A bound is crossed at any look
    in at most the last of these, `ERROR_RATE`.
    """
    spent = spent or tuple(spending(share) for share in shares)
    found: list[float] = []
    points, density = np.zeros(1), np.ones(1)
    for number, share in enumerate(shares):
        step = (share - (shares[number - 1] if number else 0.0)) ** 0.5
        now = spent[number] - (spent[number - 1] if number else 0.0)
        bound = optimize.brentq(_excess, 0.0, _FARTHEST, args=(points, density, step, now))
        found.append(float(special.ndtr(-bound / share**0.5)))
        points, density = _going_on(points, density, step, bound, share)
    return tuple(found)


def interval_level(sizes: Sequence[int], look: int) -> float:
    """Return the level of the interval at a look, from 1; sizes: samples at each look, the last one being all."""
    return 1 - 2 * levels(tuple(size / sizes[-1] for size in sizes))[look - 1]


def named(interval: Interval, level: float) -> Interval:
    """Return an interval of this level with the kind that says whether it is one of several looks."""
    is_one_of_several = level > USUAL_LEVEL and interval.kind == bounded.KIND
    return replace(interval, kind=KIND) if is_one_of_several else interval


def adjusted_p(p: float, level: float) -> float:
    """Return a two-sided p-value that is below 5 % exactly if the interval of this level does not contain 0."""
    return min(1.0, p * (1 - USUAL_LEVEL) / (1 - level)) if level > USUAL_LEVEL else p


def spending(share: float) -> float:
    """Return how much of the error rate may be used up when this share of all samples is drawn."""
    return float(ERROR_RATE * share**_POWER)


def _excess(bound: float, points: Floats, density: Floats, step: float, spent: float) -> float:
    """Return by how much the chance to cross a bound now, and not before, is above what is spent on this look.

    points, density (m,): sums at the look before, with the chance of each. step: standard deviation since then.
    """
    return float(density @ special.ndtr((points - bound) / step)) - spent


def _going_on(points: Floats, density: Floats, step: float, bound: float, share: float) -> tuple[Floats, Floats]:
    """Return the sums below a bound (m,) and the chance of each, by Gauss and Legendre's rule."""
    lowest = -_FARTHEST * share**0.5
    half = (bound - lowest) / 2
    sums = lowest + half * (1 + _NODES)
    steps = (sums[:, None] - points[None, :]) / step
    chances = np.exp(-(steps**2) / 2) @ density / (step * (2 * np.pi) ** 0.5)
    return sums, np.asarray(chances * _WEIGHTS * half, dtype=np.float64)
