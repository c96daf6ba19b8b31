"""Error rates of a judge: wrong steps accepted and right steps rejected, from continuations of sampled decisions.

At each point the target continues several times after the draft's proposal, and several times from the start of the
step. The proposal's loss is the share of correct target-only continuations minus the share of correct continuations
after the proposal. It is an unbiased estimate of how much the proposal lowers the chance of a correct answer. A
proposal counts as wrong in proportion to its loss and as right for the remainder. For any number of continuations, a
rate over wrong or over right steps is then a ratio of unbiased sums. Counting the points whose observed loss exceeds a
margin would be biased (tools/simulate/probes.py), because single losses are imprecise.

At each decision, the oracle takes the step with the higher value (Arbitrage, arXiv 2512.05033, whose oracle uses a
reward model). Ties go to the draft's step, which is cheaper. Choosing with the same continuations that measure the
value would overestimate it. So one half of the continuations chooses and the other half measures, and vice versa. With
few continuations the choice is noisy, so the oracle's value is a lower bound for that of an oracle with exact
probabilities.

The points are a stratified random sample, so each is weighted by the inverse of its inclusion probability (Horvitz and
Thompson, J. Am. Stat. Assoc. 47, 1952).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from warehouse.statistics import shares
from warehouse.statistics.intervals import Floats, Interval, clustered

FEWEST_POINTS, FEWEST_PROBLEMS = 30, 10
"""Minimum numbers of points, and of problems (families), for a probe's results."""
_ROUNDING = 1e-9
_FIELLER = 1.96
"""Number of standard errors by which a denominator must exceed 0."""
Flags = NDArray[np.bool_]
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Points:
    """Points of a probe; all arrays are (n,)."""

    problem: Numbers
    """Problem number. Points of one problem are not independent."""
    family: Numbers
    """Family number. A problem without a family is its own family."""
    weight: Floats
    accepted: Flags
    third: Numbers
    """Third of the chain, 1 to 3."""
    rating: Floats
    """Score that the decision used, negated if low scores are accepted; NaN if there is none."""
    draft_right: Numbers
    draft_total: Numbers
    own_right: Numbers
    own_total: Numbers
    draft_even: Floats
    """Share of correct continuations with even index; NaN if there are none."""
    draft_odd: Floats
    own_even: Floats
    own_odd: Floats

    def __len__(self) -> int:
        return len(self.weight)

    def where(self, chosen: Flags) -> Points:
        return Points(**{name: values[chosen] for name, values in vars(self).items()})

    @property
    def halved(self) -> Points:
        """The points with continuations in both halves, with and without the proposal."""
        return self.where(~np.isnan(self.draft_even + self.draft_odd + self.own_even + self.own_odd))

    @property
    def families(self) -> int | None:
        """Number of families if problems share families."""
        number = len(np.unique(self.family))
        return number if number < len(np.unique(self.problem)) else None

    @property
    def loss(self) -> Floats:
        """Observed loss: share correct of target-only continuations minus share correct after the proposal, −1 to 1."""
        return np.asarray(self.own_right / self.own_total - self.draft_right / self.draft_total)


@dataclass(frozen=True)
class Rates:
    """The judge's rates over a set of decisions."""

    false_acceptance: Interval
    """Share of wrong steps that were accepted: the accepted proposals' loss divided by the loss of all proposals."""
    false_rejection: Interval
    """Share of right steps that were rejected."""
    loss_of_accepted: Interval
    """Mean loss of an accepted proposal, −1 to 1: how much it lowers the chance of a correct answer."""
    loss_of_refused: Interval
    """Mean loss prevented by a rejection; near 0 if rejections are unnecessary."""


@dataclass(frozen=True)
class Oracle:
    """Results of an oracle that always takes the better step. A step's worth: chance of a correct answer after it."""

    escalated: Interval
    """Share of decisions in which the oracle takes the target's step."""
    worth: Interval
    """Mean worth of the oracle's steps."""
    worth_of_drafts: Interval
    """Mean worth if every draft is kept."""
    worth_of_judge: Interval
    """Mean worth with the judge's decisions."""
    worth_of_target: Interval
    """Mean worth if every step is the target's."""
    over_judge: Interval
    """The oracle's worth minus the judge's, over the same decisions, −1 to 1."""


def oracle(points: Points) -> Oracle:
    """Return the oracle over the halved points, with 95 % intervals over problems (families)."""
    none, points = _too_few(points), points.halved
    if none := none or _too_few(points, " with 2 continuations each way"):
        return Oracle(none, none, none, none, none, none)
    drafts, targets = (points.draft_even + points.draft_odd) / 2.0, (points.own_even + points.own_odd) / 2.0
    by_even, by_odd = points.own_even > points.draft_even, points.own_odd > points.draft_odd
    best = np.where(by_even, points.own_odd, points.draft_odd) + np.where(by_odd, points.own_even, points.draft_even)
    judged = np.where(points.accepted, drafts, targets)
    return Oracle(
        _mean(points, points.weight, (by_even + by_odd.astype(float)) / 2.0, lowest=0.0),
        _mean(points, points.weight, best / 2.0, lowest=0.0),
        _mean(points, points.weight, drafts, lowest=0.0),
        _mean(points, points.weight, judged, lowest=0.0),
        _mean(points, points.weight, targets, lowest=0.0),
        # Student's t of the differences is too narrow: most are 0, and a few decisions account for the difference.
        _mean(points, points.weight, best / 2.0 - judged),
    )


def rates(points: Points, accepted: Flags | None = None) -> Rates:
    """Return the rates with 95 % Wilson intervals for the effective number of problems (families).

    accepted (n,): decisions at another threshold. None: the recorded decisions.
    """
    if none := _too_few(points):
        return Rates(none, none, none, none)
    accepted = points.accepted if accepted is None else accepted
    wrong, right = points.weight * points.loss, points.weight * (1.0 - points.loss)
    return Rates(
        _share(points, accepted * wrong, wrong),
        _share(points, ~accepted * right, right),
        _mean(points, accepted * points.weight, points.loss),
        _mean(points, ~accepted * points.weight, points.loss),
    )


def area(points: Points) -> Interval:
    """Return the probability that a right step has a higher score than a wrong one; ties count half.

    The interval is Student's t on the logit scale, with the jackknife over families (Efron and Tibshirani, An
    Introduction to the Bootstrap, 1993, chapter 11). The estimate is NaN if there are no scores, if the proposals have
    no loss, or if the losses are too imprecise to give a value from 0 to 1.
    """
    points = points.where(~np.isnan(points.rating))
    if none := _too_few(points):
        return none
    rating, family, loss = points.rating, points.family, points.loss
    wrong, right = points.weight * loss, points.weight * (1.0 - loss)
    wins = (rating[:, None] > rating[None, :]) + 0.5 * (rating[:, None] == rating[None, :])
    np.fill_diagonal(wins, 0.0)
    pairs = 1.0 - np.eye(len(rating))

    def of(kept: Flags) -> float:
        own = np.ix_(kept, kept)
        total = float(right[kept] @ pairs[own] @ wrong[kept])
        return float(right[kept] @ wins[own] @ wrong[kept]) / total if total > _ROUNDING else float("nan")

    estimate = of(np.ones(len(rating), dtype=bool))
    if not 0.0 <= estimate <= 1.0:  # losses are estimates, so few points may give a value outside 0 to 1
        return _none(points, "no loss, or losses too imprecise")
    parts = np.array([of(family != one) for one in np.unique(family)])
    n = len(parts)
    if not np.all(np.isfinite(parts)):
        return replace(_none(points, f"it depends on single {_unit(points)}"), estimate=estimate)
    error = float(np.sqrt((n - 1) * parts.var()))
    return replace(shares.on_logit(estimate, error, n - 1), families=points.families)


def _too_few(points: Points, such: str = "") -> Interval | None:
    """Return an `Interval` with the reason that there are too few points; None if there are enough.

    such: restriction on the points, appended to the reason, e.g. ` with 2 continuations each way`.
    """
    if len(points) >= FEWEST_POINTS and len(np.unique(points.family)) >= FEWEST_PROBLEMS:
        return None
    return _none(points, f"fewer than {FEWEST_POINTS} points or {FEWEST_PROBLEMS} {_unit(points)}{such}")


def _unit(points: Points) -> str:
    return "problems" if points.families is None else "families"


def _none(points: Points, reason: str) -> Interval:
    return Interval(float("nan"), None, None, None, f"none: {reason}", families=points.families)


def _share(points: Points, x: Floats, y: Floats) -> Interval:
    """Return the interval of Σx/Σy, clipped to 0–1. Single problems may lie outside, because losses are estimates."""
    part, whole = _by_family(points, x, y)
    # A ratio whose denominator may be 0 has no bounded interval (Fieller, J. R. Stat. Soc. B 16, 1954).
    if whole.sum() <= max(_ROUNDING, _FIELLER * np.sqrt(len(whole)) * whole.std(ddof=1)):
        return _none(points, "denominator too close to 0")
    found = clustered(part, whole).score()
    return replace(found, estimate=min(1.0, max(0.0, found.estimate)), families=points.families)


def _mean(points: Points, weight: Floats, values: Floats, lowest: float = -1.0) -> Interval:
    """Return the interval of a weighted mean of values that lie between `lowest` and 1. The values are rescaled to 0 to
    1 for Wilson's interval, whose ends are then converted back.
    """
    way = 1.0 - lowest
    part, whole = _by_family(points, weight * (values - lowest) / way, weight)
    if np.sum(whole > 0) < FEWEST_PROBLEMS:
        return _none(points, f"fewer than {FEWEST_PROBLEMS} {_unit(points)}")
    share = clustered(part[whole > 0], whole[whole > 0]).score()
    low, high = (None if end is None else way * end + lowest for end in (share.low, share.high))
    error = None if share.standard_error is None else way * share.standard_error
    return Interval(way * share.estimate + lowest, low, high, error, share.kind, families=points.families)


def _by_family(points: Points, x: Floats, y: Floats) -> tuple[Floats, Floats]:
    _, places = np.unique(points.family, return_inverse=True)
    return (
        np.asarray(np.bincount(places, weights=x), dtype=np.float64),
        np.asarray(np.bincount(places, weights=y), dtype=np.float64),
    )
