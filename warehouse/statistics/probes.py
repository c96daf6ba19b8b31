"""How often a judge accepts wrong steps and refuses right ones, from continuations of a sample of its decisions.

At each point the target continues several times behind the draft's proposal, and several times from where it began.
The share of right endings of the latter less that of the former is the proposal's loss: an unbiased estimate of how
much the proposal lowers the chance of a right answer. A proposal counts as wrong to the extent of its loss, and as
right to the rest, so a rate over wrong or over right steps is a ratio of sums that are unbiased, however few
continuations there are. Counting the points whose observed loss exceeds a margin is not
(tools/simulate/probes.py), because single losses are known only roughly.

The oracle takes at each decision the step that is worth more (Arbitrage, arXiv 2512.05033, whose oracle asks a reward
model), and the draft's, which is cheaper, where both are worth the same. A choice by the continuations that also value
it would make it look better than it is, so one half of them chooses and the other values, either way round. With few
continuations the choice is noisy, so the oracle's worth is a lower bound of that of one that knows the chances.

The points are a stratified random sample, so each one counts with the inverse of its probability of being drawn
(Horvitz and Thompson, J. Am. Stat. Assoc. 47, 1952).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from warehouse.statistics import shares
from warehouse.statistics.intervals import Floats, Interval, clustered

FEWEST_POINTS, FEWEST_PROBLEMS = 30, 10
"""Points, and problems (families), below which a probe says nothing."""
_ROUNDING = 1e-9
_FIELLER = 1.96
"""Standard errors that a denominator must lie above 0."""
Flags = NDArray[np.bool_]
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Points:
    """Points of a probe; every array is (n,)."""

    problem: Numbers
    """Number of the problem: points of one problem are not independent."""
    family: Numbers
    """Number of the problem's family; one that stands alone is a family."""
    weight: Floats
    accepted: Flags
    third: Numbers
    """Third of the chain, from 1."""
    rating: Floats
    """The number that was decided by, negated where low numbers are accepted; not a number where there is none."""
    draft_right: Numbers
    draft_total: Numbers
    own_right: Numbers
    own_total: Numbers
    draft_even: Floats
    """Share right of one half of the continuations, those of even index; not a number where there is none."""
    draft_odd: Floats
    own_even: Floats
    own_odd: Floats

    def __len__(self) -> int:
        return len(self.weight)

    def where(self, chosen: Flags) -> Points:
        """Return some of the points."""
        return Points(**{name: values[chosen] for name, values in vars(self).items()})

    @property
    def halved(self) -> Points:
        """The points with continuations in both halves, each way."""
        return self.where(~np.isnan(self.draft_even + self.draft_odd + self.own_even + self.own_odd))

    @property
    def families(self) -> int | None:
        """Number of families, where problems share one."""
        number = len(np.unique(self.family))
        return number if number < len(np.unique(self.problem)) else None

    @property
    def loss(self) -> Floats:
        """The observed share right of the target's own continuations less that behind the proposal, −1 to 1."""
        return np.asarray(self.own_right / self.own_total - self.draft_right / self.draft_total)


@dataclass(frozen=True)
class Rates:
    """The judge's rates over a set of decisions."""

    false_acceptance: Interval
    """Share of what all proposals would cost that the accepted ones cost: of wrong steps, those that were accepted."""
    false_rejection: Interval
    """Share of the right steps that were refused."""
    loss_of_accepted: Interval
    """Mean loss of an accepted proposal, −1 to 1: how much it lowers the chance of a right answer."""
    loss_of_refused: Interval
    """Mean loss that a refusal prevented; near 0 refusals are needless."""


@dataclass(frozen=True)
class Oracle:
    """What always taking the step that is worth more would bring; a worth is the chance of a right answer behind it."""

    escalated: Interval
    """Share of the decisions in which it takes the target's step."""
    worth: Interval
    """Mean worth of the steps that it takes."""
    worth_of_drafts: Interval
    """With every draft kept."""
    worth_of_judge: Interval
    """With the judge's decisions."""
    worth_of_target: Interval
    """With every step by the target."""
    over_judge: Interval
    """Its worth less that of the judge's decisions, at the same decisions, −1 to 1."""


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
        # Student's t of the differences is too narrow: most are 0, and few decisions hold the rest.
        _mean(points, points.weight, best / 2.0 - judged),
    )


def rates(points: Points, accepted: Flags | None = None) -> Rates:
    """Return the rates with 95 % intervals over problems (families): Wilson's with their effective number.

    accepted (n,): what another threshold would have accepted; None: what was accepted.
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
    """Return the probability that a right step has a higher rating than a wrong one; ties count half.

    The interval is t on the logit, with the jackknife over families (Efron and Tibshirani, An Introduction to the
    Bootstrap, 1993, chapter 11). Without ratings, where the proposals cost nothing, and where the losses are known too
    roughly for a value from 0 to 1, the estimate is not a number.
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
    if not 0.0 <= estimate <= 1.0:  # losses are estimates, so few of them may make a share of pairs that is none
        return _none(points, "nothing to be a share of")
    parts = np.array([of(family != one) for one in np.unique(family)])
    n = len(parts)
    if not np.all(np.isfinite(parts)):
        return replace(_none(points, f"it depends on single {_unit(points)}"), estimate=estimate)
    error = float(np.sqrt((n - 1) * parts.var()))
    return replace(shares.on_logit(estimate, error, n - 1), families=points.families)


def _too_few(points: Points, such: str = "") -> Interval | None:
    """Return why so few points, such as they must be, say nothing; None where they are enough."""
    if len(points) >= FEWEST_POINTS and len(np.unique(points.family)) >= FEWEST_PROBLEMS:
        return None
    return _none(points, f"fewer than {FEWEST_POINTS} points or {FEWEST_PROBLEMS} {_unit(points)}{such}")


def _unit(points: Points) -> str:
    return "problems" if points.families is None else "families"


def _none(points: Points, reason: str) -> Interval:
    return Interval(float("nan"), None, None, None, f"none: {reason}", families=points.families)


def _share(points: Points, x: Floats, y: Floats) -> Interval:
    """Return the interval of Σx/Σy, within 0 to 1; single problems may lie outside, because losses are estimates."""
    part, whole = _by_family(points, x, y)
    # A ratio whose denominator may be 0 has no bounded interval (Fieller, J. R. Stat. Soc. B 16, 1954).
    if whole.sum() <= max(_ROUNDING, _FIELLER * np.sqrt(len(whole)) * whole.std(ddof=1)):
        return _none(points, "too little to be a share of")
    found = clustered(part, whole).score()
    return replace(found, estimate=min(1.0, max(0.0, found.estimate)), families=points.families)


def _mean(points: Points, weight: Floats, values: Floats, lowest: float = -1.0) -> Interval:
    """Return the interval of the weighted mean of values from `lowest` to 1: that of the share of the way to 1."""
    way = 1.0 - lowest
    part, whole = _by_family(points, weight * (values - lowest) / way, weight)
    if np.sum(whole > 0) < FEWEST_PROBLEMS:
        return _none(points, f"fewer than {FEWEST_PROBLEMS} {_unit(points)}")
    share = clustered(part[whole > 0], whole[whole > 0]).score()
    low, high = (None if end is None else way * end + lowest for end in (share.low, share.high))
    error = None if share.standard_error is None else way * share.standard_error
    return Interval(way * share.estimate + lowest, low, high, error, share.kind, families=points.families)


def _by_family(points: Points, x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Return the sums of x and y of each family."""
    _, places = np.unique(points.family, return_inverse=True)
    return (
        np.asarray(np.bincount(places, weights=x), dtype=np.float64),
        np.asarray(np.bincount(places, weights=y), dtype=np.float64),
    )
