"""How many problems and samples a comparison of two methods needs to show non-inferiority with a given power.

The difference of a problem's two means over k samples varies from problem to problem by V = τ² + σ²/k: τ² is the
variance of the problems' true differences, which no number of samples reduces, and σ² that of a single sample of each
method on one problem (one-way random effects; Searle, Casella and McCulloch, Variance Components, 1992, section 3.6;
for accuracies Miller, arXiv 2411.00640, section 5). Problems are a sample of problems like these, as in every interval
of `bounded.py`, so that τ² counts for a benchmark of fixed size too.

The power is that of the decision by `bounded.worst_case`. The randomly weighted sum of the problems that it is
made of is taken to be normal, given the weight of the pseudo-problem, and so is the mean difference over problems:

    critical mean m: E_g Φ((g(1 − δ) − n(m + δ))/√(n(V + (m + δ)²))) = 2.5 %,   power = Φ((μ − m)/√(V/n))

for n problems, margin δ and true difference μ, with g the gamma variable that weighs the pseudo-problem. Where a few
problems are lost, differences are skewed to the left and the power is lower: a mean below μ then comes with a larger
variance, V + (m − μ)κ/V with the third moment κ, and both distributions have Edgeworth's term for their skewness (Hall,
The Bootstrap and Edgeworth Expansion, 1992, section 2.3). A skewness to the right, which would raise the power, is not
relied on. tools/simulate/README.md has the power that a plan then has, from true variances and from a pilot's.
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
"""Above this a plan says that it cannot be had."""
ASSURANCE = 0.8
"""Chance with which the variance of problems like these is below the upper limit that a careful plan uses."""
FEWEST_CAREFUL = 10
"""Problems of a pilot that an upper limit needs. From 2, 3 and 5 problems it is above the variance in 40, 54 and 60 %
of simulated pilots only."""
LEAST_GAIN = 0.05
"""Of the standard error, by which twice as many samples per problem lower it while they still help."""
MOST_SAMPLES = 4096
"""Samples per problem above which a plan says that a set of problems is too small."""
_WEIGHTS = 1000
_LEAST_VARIANCE = 0.05
"""Share of V below which the variance that a skewed sample shows is not taken to fall."""
_TINY = 1e-12


POWER = 0.8


class CannotPlan(ValueError):
    """A pilot from which nothing can be planned; the message is one line."""


@dataclass(frozen=True, slots=True)
class Moments:
    """Of the differences of problem means with some number of samples: their variance V and third central moment."""

    variance: float
    third: float = 0.0

    def times(self, ratio: float) -> Moments:
        """Return the moments of differences whose variance is so many times as large."""
        return Moments(self.variance * ratio, self.third * ratio**1.5)


@dataclass(frozen=True, slots=True)
class Components:
    """Variance components of the differences of problem means, in units of accuracy squared, and of skewness."""

    between: float
    """τ²."""
    within: float
    """σ²."""
    third: float = 0.0
    """Third central moment of the true differences, in units of accuracy to the third power."""
    third_within: float = 0.0
    """What a single sample of each method adds to it: 3 times the covariance of true difference and variance."""

    def moments(self, k: float) -> Moments:
        """Return the moments with k samples of each method."""
        return Moments(self.variance(k), self.third + self.third_within / k)

    def variance(self, k: float) -> float:
        """Return the variance V of a problem's difference with k samples of each method."""
        return self.between + self.within / k

    def times(self, ratio: float) -> Components:
        """Return the components of differences whose variance is so many times as large."""
        thirds = (self.third * ratio**1.5, self.third_within * ratio**1.5)
        return Components(self.between * ratio, self.within * ratio, *thirds)

    def share_of_samples(self, k: float) -> float:
        """Return which share of it more samples per problem could remove at most."""
        variance = self.variance(k)
        return self.within / k / variance if variance else 0.0

    @property
    def enough_samples(self) -> int | None:
        """The samples per problem from which twice as many lower the standard error by less than LEAST_GAIN.

        From there on as many samples again do less than 11 % more problems would. None: they always lower it by more,
        as there is no variance between problems; 1 without any variance.
        """
        if not self.within:
            return 1
        kept = (1 - LEAST_GAIN) ** 2
        return max(1, ceil((kept - 0.5) / (1 - kept) * self.within / self.between)) if self.between else None


@dataclass(frozen=True, slots=True)
class Pilot:
    """A pilot: right answers and samples of two methods on the same n problems; arrays (n,), samples at least 2."""

    first_correct: Counts
    first_samples: Counts
    second_correct: Counts
    second_samples: Counts

    def __post_init__(self) -> None:
        if len(self.first_samples) < 2:
            raise CannotPlan("a pilot needs 2 problems or more: one does not show how much problems differ")
        if min(int(self.first_samples.min()), int(self.second_samples.min())) < 2:
            raise CannotPlan("a pilot needs 2 samples per problem or more: one does not tell noise from difference")

    @property
    def differences(self) -> Floats:
        """(n,). First − second."""
        found: Floats = self.first_correct / self.first_samples - self.second_correct / self.second_samples
        return found

    def _noise(self) -> tuple[Floats, Floats]:
        """Return σ² of each problem (n,), unbiased, and the part of it that its difference has (n,)."""
        single, noise = np.zeros(len(self.first_samples)), np.zeros(len(self.first_samples))
        for correct, samples in ((self.first_correct, self.first_samples), (self.second_correct, self.second_samples)):
            own = _single(correct, samples)
            single, noise = single + own, noise + own / samples
        return single, noise

    @property
    def components(self) -> Components:
        """Components by the method of moments; both variances are unbiased but for τ² being at least 0."""
        single, noise = self._noise()
        deviations = self.differences - self.differences.mean()
        between = max(0.0, float(np.var(self.differences, ddof=1) - np.mean(noise)))
        if not between:  # a skewness of differences that do not vary would be noise alone
            return Components(0.0, float(np.mean(single)))
        third = float(np.mean(deviations**3) - 3 * np.mean(deviations * noise))
        return Components(between, float(np.mean(single)), third, 3 * float(np.mean(deviations * single)))

    def relative_error(self, k: int) -> float:
        """Return the standard error of V with k samples, divided by V; infinite where V is 0.

        V is a mean over problems of squared deviations, less their noise, plus the noise of k samples.
        """
        single, noise = self._noise()
        n, differences = len(single), self.differences
        terms = (differences - differences.mean()) ** 2 * n / (n - 1) - noise + single / k
        variance = self.components.variance(k)
        return float(np.std(terms, ddof=1) / sqrt(n) / variance) if variance else inf

    def careful(self, k: int) -> Moments:
        """Return the moments with k samples and V at its upper limit: one-sided, normal on the logarithm.

        The limit for fewer samples counts where it is lower, because V does not rise with k.
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
    """Return the unbiased variance (n,) of a single answer to each problem."""
    rate = correct / samples
    found: Floats = rate * (1 - rate) * samples / (samples - 1)
    return found


def components_of_one(correct: Counts, samples: Counts, correlation: float) -> Components:
    """Return the components of one method, (n,) both, against another with rates like it.

    correlation: of the two methods' true rates over problems, which one method alone does not show. Raises CannotPlan.
    """
    pilot = Pilot(correct, samples, correct, samples)  # checks the counts
    single = _single(pilot.first_correct, pilot.first_samples)
    true = max(0.0, float(np.var(correct / samples, ddof=1) - np.mean(single / samples)))
    return Components(2 * (1 - correlation) * true, 2 * float(np.mean(single)))


@lru_cache(maxsize=1)
def _gamma() -> Floats:
    """Return equally probable values of the pseudo-problem's weight."""
    found: Floats = special.gammaincinv(PSEUDO_WEIGHT, (np.arange(_WEIGHTS) + 0.5) / _WEIGHTS)
    return found


def power(moments: Moments, n: int, margin: float, difference: float = 0.0) -> float:
    """Return how often n problems show non-inferiority at the margin if this is the true difference."""
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
        # The third moment of a sum of exponential weights times the problems' gains is twice the sum of their cubes.
        cubes = min(0.0, third + 3 * gained * seen + gained**3) if third else 0.0
        return float(np.mean(_chances(places, 2 * n * cubes / spread**3))) - (1 - TAIL)

    if excess(1.0) > 0:
        return 0.0
    critical = float(optimize.brentq(excess, -margin, 1.0, xtol=1e-9))
    place = np.array((critical - difference) / sqrt(variance / n))
    return 1 - float(np.clip(_chances(place, third / variance**1.5 / sqrt(n)), 0.0, 1.0))


def _chances(places: Floats, skewness: float) -> Floats:
    """Return Edgeworth's approximation, to the first order, of the chance that a standardized sum is below places."""
    term = skewness / 6 * (places**2 - 1) * np.exp(-(places**2) / 2) / sqrt(2 * pi)
    found: Floats = special.ndtr(places) - term
    return found


def problems_needed(moments: Moments, margin: float, target: float, difference: float = 0.0) -> int | None:
    """Return the smallest number of problems with this power; None where even MOST_PROBLEMS have less."""
    return _smallest(lambda n: power(moments, n, margin, difference) >= target, 2, MOST_PROBLEMS)


def samples_needed(
    moments: Callable[[int], Moments], n: int, margin: float, target: float, difference: float = 0.0
) -> int | None:
    """Return the smallest number of samples per problem, up to MOST_SAMPLES, with this power on n problems.

    moments: of the differences, by the number of samples.
    """
    return _smallest(lambda k: power(moments(k), n, margin, difference) >= target, 1, MOST_SAMPLES)


def _smallest(is_enough: Callable[[int], bool], first: int, most: int) -> int | None:
    """Return the smallest whole number from `first` to `most` that is enough, as all greater ones are; None: none."""
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
    """Return the smallest margin that n problems show with this power; None: none below 1."""
    low, high = max(0.0, -difference) + _TINY, 1 - 1e-6

    def excess(margin: float) -> float:
        return power(moments, n, margin, difference) - target

    if excess(high) < 0:
        return None
    return low if excess(low) >= 0 else float(optimize.brentq(excess, low, high, xtol=1e-6))


NOISY_PROBLEMS = 200
"""Problems of a pilot below which `plan` takes the upper limit of the variance."""


def planned(pilot: Pilot, family: Families | None = None) -> tuple[Callable[[int], Moments], float]:
    """Return the moments, by the number of samples, of what is drawn independently, and the problems that it holds.

    That is a problem like the pilot's, or a family; family (n,): of the pilot's problems. A pilot of FEWEST_CAREFUL to
    NOISY_PROBLEMS problems counts with the upper limit of its variance. Raises CannotPlan where both runs agree on
    every problem.
    """
    components = pilot.components
    if not components.variance(1):
        raise CannotPlan("both runs agree on every problem, which plans nothing")
    ratio, members = in_families(pilot.differences, family)
    is_noisy = FEWEST_CAREFUL <= len(pilot.first_samples) < NOISY_PROBLEMS
    return lambda k: (pilot.careful(k) if is_noisy else components.moments(k)).times(ratio), members


def in_families(values: Floats, family: Families | None) -> tuple[float, float]:
    """Return how many times the variance of a value that of a family's mean is, and the number of values of a family.

    values (n,), one per problem; family (n,). 1 and 1 without families.
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
    """Return how many problems with k samples show "not worse" with this power, for problems like the pilot's.

    None: more than MOST_PROBLEMS. Raises CannotPlan, as `planned` does.
    """
    moments, members = planned(pilot, family)
    needed = problems_needed(moments(k), margin, target, difference)
    return None if needed is None else ceil(needed * members)
