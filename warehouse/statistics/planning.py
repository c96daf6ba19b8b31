"""Sample-size planning: problems and samples needed to show non-inferiority with a given power.

The difference of a problem's two means over k samples varies between problems by V = τ² + σ²/k. τ² is the variance of
the problems' true differences, which more samples do not reduce. σ² is the variance of a single sample of each method
on one problem (one-way random effects; Searle, Casella and McCulloch, Variance Components, 1992, section 3.6; for
accuracies Miller, arXiv 2411.00640, section 5). Problems are a sample of similar problems, as in every interval of
`bounded.py`, so τ² counts for a benchmark of fixed size too.

The power is that of the decision by `bounded.worst_case`. Two quantities are approximated as normal: the randomly
weighted sum over problems in that decision, given the pseudo-problem's weight, and the mean difference over problems:

    critical mean m: E_g Φ((g(1 − δ) − n(m + δ))/√(n(V + (m + δ)²))) = 2.5 %, power = Φ((μ − m)/√(V/n))

for n problems, margin δ and true difference μ, with g the gamma variable that weights the pseudo-problem. If a few
problems are lost, differences are skewed to the left and the power is lower. A mean below μ then comes with a larger
variance, V + (m − μ)κ/V with the third moment κ, and both distributions get Edgeworth's term for their skewness (Hall,
The Bootstrap and Edgeworth Expansion, 1992, section 2.3). Skewness to the right would raise the power and is ignored.
tools/simulate/README.md has the power of plans from true variances and from a pilot's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, exp, inf, pi, sqrt

import numpy as np
from scipy import optimize, special

from warehouse.statistics.bounded import PSEUDO_WEIGHT
from warehouse.statistics.intervals import TAIL, Counts, Families, Floats, clustered

MOST_PROBLEMS = 1_000_000
"""Upper limit on problems; larger plans are reported as infeasible."""
ASSURANCE = 0.8
"""Probability that the true variance is below the upper limit used by a careful plan."""
FEWEST_CAREFUL = 10
"""Minimum number of pilot problems for the upper limit. With 2, 3 and 5 problems, the limit exceeds the true variance
in only 40, 54 and 60 % of simulated pilots.
"""
LEAST_GAIN = 0.05
"""Doubling the samples per problem is worthwhile if it lowers the standard error by at least this share."""
MOST_SAMPLES = 4096
"""Upper limit on samples per problem; plans that would exceed it need more problems."""
_WEIGHTS = 1000
_LEAST_VARIANCE = 0.05
"""Minimum variance of a skewed sample, as a share of V."""
_TINY = 1e-12


POWER = 0.8


class CannotPlan(ValueError):
    """The pilot does not allow a plan. The message is one line."""


@dataclass(frozen=True, slots=True)
class Moments:
    """Variance V and third central moment of the differences of problem means, for some number of samples."""

    variance: float
    third: float = 0.0

    def times(self, ratio: float) -> Moments:
        """Return the moments scaled to `ratio` times the variance."""
        return Moments(self.variance * ratio, self.third * ratio**1.5)


@dataclass(frozen=True, slots=True)
class Components:
    """Variance components, in units of accuracy², and skewness components of the differences of problem means."""

    between: float
    """τ²."""
    within: float
    """σ²."""
    third: float = 0.0
    """Third central moment of the true differences, in accuracy to the third power."""
    third_within: float = 0.0
    """Single samples' contribution to the third moment: 3 times the covariance of true difference and variance."""

    def moments(self, k: float) -> Moments:
        return Moments(self.variance(k), self.third + self.third_within / k)

    def variance(self, k: float) -> float:
        """Return the variance V of a problem's difference with k samples of each method."""
        return self.between + self.within / k

    def times(self, ratio: float) -> Components:
        """Return the components scaled to `ratio` times the variance."""
        thirds = (self.third * ratio**1.5, self.third_within * ratio**1.5)
        return Components(self.between * ratio, self.within * ratio, *thirds)

    def share_of_samples(self, k: float) -> float:
        """Return the share of the variance that more samples per problem could remove."""
        variance = self.variance(k)
        return self.within / k / variance if variance else 0.0

    @property
    def enough_samples(self) -> int | None:
        """Least number of samples per problem whose doubling lowers the standard error by at most LEAST_GAIN.

        Doubling it helps at most as much as adding 11 % of problems. None: there is no variance between
        problems, so doubling always helps. 1: single samples do not vary.
        """
        if not self.within:
            return 1
        kept = (1 - LEAST_GAIN) ** 2
        return max(1, ceil((kept - 0.5) / (1 - kept) * self.within / self.between)) if self.between else None


@dataclass(frozen=True, slots=True)
class Pilot:
    """A pilot: correct answers and samples of two methods on the same n problems. Arrays (n,), samples at least 2."""

    first_correct: Counts
    first_samples: Counts
    second_correct: Counts
    second_samples: Counts

    def __post_init__(self) -> None:
        if len(self.first_samples) < 2:
            raise CannotPlan("a pilot needs at least 2 problems to estimate the variance between problems")
        if min(int(self.first_samples.min()), int(self.second_samples.min())) < 2:
            raise CannotPlan("a pilot needs at least 2 samples per problem to estimate the sampling noise")

    @property
    def differences(self) -> Floats:
        """First − second, (n,)."""
        found: Floats = self.first_correct / self.first_samples - self.second_correct / self.second_samples
        return found

    def _noise(self) -> tuple[Floats, Floats]:
        """Return each problem's σ² (n,), unbiased, and its contribution to the variance of the difference (n,)."""
        single, noise = np.zeros(len(self.first_samples)), np.zeros(len(self.first_samples))
        for correct, samples in ((self.first_correct, self.first_samples), (self.second_correct, self.second_samples)):
            own = _single(correct, samples)
            single, noise = single + own, noise + own / samples
        return single, noise

    @property
    def components(self) -> Components:
        """Components by the method of moments. Both variances are unbiased, except that τ² is at least 0."""
        single, noise = self._noise()
        deviations = self.differences - self.differences.mean()
        between = max(0.0, float(np.var(self.differences, ddof=1) - np.mean(noise)))
        if not between:  # without variation, the skewness would be pure noise
            return Components(0.0, float(np.mean(single)))
        third = float(np.mean(deviations**3) - 3 * np.mean(deviations * noise))
        return Components(between, float(np.mean(single)), third, 3 * float(np.mean(deviations * single)))

    def relative_error(self, k: int) -> float:
        """Return the standard error of V with k samples, divided by V; infinite if V is 0.

        V is a mean over problems: squared deviations minus their noise plus the noise of k samples.
        """
        single, noise = self._noise()
        n, differences = len(single), self.differences
        terms = (differences - differences.mean()) ** 2 * n / (n - 1) - noise + single / k
        variance = self.components.variance(k)
        return float(np.std(terms, ddof=1) / sqrt(n) / variance) if variance else inf

    def careful(self, k: int) -> Moments:
        """Return the moments with k samples and V at its upper limit (one-sided, normal on the log scale).

        If the limit for fewer samples is lower, that limit is used, because V does not increase with k.
        """
        components = self.components
        found = components.moments(k)
        if not found.variance:
            return found
        place = float(special.ndtri(ASSURANCE))
        fewer = [2**power for power in range(k.bit_length()) if 2**power < k]
        limit = min(exp(place * self.relative_error(j)) * components.variance(j) for j in (*fewer, k))
        factor = limit / found.variance
        return Moments(limit, factor**1.5 * found.third)


def _single(correct: Counts, samples: Counts) -> Floats:
    """Return the unbiased variance of a single sample of each problem, (n,)."""
    rate = correct / samples
    found: Floats = rate * (1 - rate) * samples / (samples - 1)
    return found


def components_of_one(correct: Counts, samples: Counts, correlation: float) -> Components:
    """Return the components from one method's pilot, for a comparison with a method whose true rates vary as much as
    this method's.

    correct, samples: both (n,). correlation: assumed correlation of the two methods' true rates over problems. Raises
    CannotPlan.
    """
    pilot = Pilot(correct, samples, correct, samples)  # checks the counts
    single = _single(pilot.first_correct, pilot.first_samples)
    true = max(0.0, float(np.var(correct / samples, ddof=1) - np.mean(single / samples)))
    return Components(2 * (1 - correlation) * true, 2 * float(np.mean(single)))


@lru_cache(maxsize=1)
def _gamma() -> Floats:
    """Return _WEIGHTS equally probable weights of the pseudo-problem of `bounded.worst_case` (gamma quantiles)."""
    found: Floats = special.gammaincinv(PSEUDO_WEIGHT, (np.arange(_WEIGHTS) + 0.5) / _WEIGHTS)
    return found


def power(moments: Moments, n: int, margin: float, difference: float = 0.0) -> float:
    """Return the probability that n problems show non-inferiority at this margin, given the true difference."""
    variance = max(moments.variance, _TINY)
    normal = _power(variance, 0.0, n, margin, difference)
    return min(normal, _power(variance, moments.third, n, margin, difference)) if moments.third < 0 else normal


def _power(variance: float, third: float, n: int, margin: float, difference: float) -> float:
    lost = _gamma() * (1 - margin)

    def excess(mean: float) -> float:
        gained = mean + margin
        seen = max(variance + third / variance * (mean - difference), _LEAST_VARIANCE * variance)
        spread = sqrt(n * (seen + gained**2))
        places = (lost - n * gained) / spread
        # The third moment of a sum of exponential weights times the problems' gains is twice the sum of the cubed
        # gains.
        cubes = min(0.0, third + 3 * gained * seen + gained**3) if third else 0.0
        return float(np.mean(_chances(places, 2 * n * cubes / spread**3))) - (1 - TAIL)

    if excess(1.0) > 0:
        return 0.0
    critical = float(optimize.brentq(excess, -margin, 1.0, xtol=1e-9))
    place = np.array((critical - difference) / sqrt(variance / n))
    return 1 - float(np.clip(_chances(place, third / variance**1.5 / sqrt(n)), 0.0, 1.0))


def _chances(places: Floats, skewness: float) -> Floats:
    """Return the probabilities that a standardized sum is below `places`, by Edgeworth's first-order approximation."""
    term = skewness / 6 * (places**2 - 1) * np.exp(-(places**2) / 2) / sqrt(2 * pi)
    found: Floats = special.ndtr(places) - term
    return found


def problems_needed(moments: Moments, margin: float, target: float, difference: float = 0.0) -> int | None:
    """Return the minimum number of problems for this power; None if it exceeds MOST_PROBLEMS."""
    return _smallest(lambda n: power(moments, n, margin, difference) >= target, 2, MOST_PROBLEMS)


def samples_needed(
    moments: Callable[[int], Moments], n: int, margin: float, target: float, difference: float = 0.0
) -> int | None:
    """Return the minimum number of samples per problem for this power on n problems; None if it exceeds MOST_SAMPLES.

    moments: returns the differences' moments for a number of samples.
    """
    return _smallest(lambda k: power(moments(k), n, margin, difference) >= target, 1, MOST_SAMPLES)


def _smallest(is_enough: Callable[[int], bool], first: int, most: int) -> int | None:
    """Return the smallest integer from `first` to `most` for which the monotone `is_enough` holds, or None."""
    too_few, enough = first - 1, first
    while not is_enough(enough):
        if enough == most:
            return None
        too_few, enough = enough, min(2 * enough, most)
    while enough - too_few > 1:
        middle = (enough + too_few) // 2
        too_few, enough = (too_few, middle) if is_enough(middle) else (middle, enough)
    return enough


def detectable_margin(moments: Moments, n: int, target: float, difference: float = 0.0) -> float | None:
    """Return the smallest margin at which n problems show non-inferiority with this power; None if it is 1 or more."""
    low, high = max(0.0, -difference) + _TINY, 1 - 1e-6

    def excess(margin: float) -> float:
        return power(moments, n, margin, difference) - target

    if excess(high) < 0:
        return None
    return low if excess(low) >= 0 else float(optimize.brentq(excess, low, high, xtol=1e-6))


NOISY_PROBLEMS = 200
"""Number of pilot problems from which `plan` uses the estimated variance instead of its upper limit."""


def planned(pilot: Pilot, family: Families | None = None) -> tuple[Callable[[int], Moments], float]:
    """Return a unit's moments as a function of samples per problem, and the mean number of problems in a unit.

    The sampling unit is a problem, or a family if problems share families; family (n,). Pilots of at least
    FEWEST_CAREFUL and fewer than NOISY_PROBLEMS problems use the upper limit of the variance. Raises CannotPlan if both
    runs agree on every problem.
    """
    components = pilot.components
    if not components.variance(1):
        raise CannotPlan("both runs agree on every problem, so the variance cannot be estimated")
    ratio, members = in_families(pilot.differences, family)
    is_noisy = FEWEST_CAREFUL <= len(pilot.first_samples) < NOISY_PROBLEMS
    return lambda k: (pilot.careful(k) if is_noisy else components.moments(k)).times(ratio), members


def in_families(values: Floats, family: Families | None) -> tuple[float, float]:
    """Return the variance of a family mean divided by that of a single value, and the mean family size.

    values (n,), one per problem; family (n,). Without families, both are 1.
    """
    n = len(values)
    alone, own = (clustered(values, np.ones(n), names) for names in (None, family))
    if not own.has_families or not alone.error:
        return 1.0, 1.0
    members = n / own.num_clusters
    return (own.error / alone.error) ** 2 / members, members


def plan(
    pilot: Pilot, margin: float, k: int, target: float = POWER, difference: float = 0.0, family: Families | None = None
) -> int | None:
    """Return the number of problems that show "not worse" with this power for k samples per problem.

    The plan is for problems like the pilot's. None: more than MOST_PROBLEMS. Raises CannotPlan, as `planned` does.
    """
    moments, members = planned(pilot, family)
    needed = problems_needed(moments(k), margin, target, difference)
    return None if needed is None else ceil(needed * members)
