"""Synthetic problems, some in families, with known true values: answers of two methods, times, decisions, verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]
Rng = np.random.Generator
SPREAD = 3.0
"""Standard deviation of problems' difficulty, in logits: most problems are nearly always or nearly never solved."""
FAMILY_SHARE = 0.8
"""Share of the variance that the problems of a family have in common: of their difficulty, and of what a method adds.
"""
ABILITIES: Mapping[str, float] = {"hard (28 %)": -2.0, "middle (50 %)": 0.0, "easy (87 %)": 4.0}
"""Mean abilities, in logits."""
Sizes = Literal["equal", "unequal"]


@lru_cache(maxsize=64)
def population_mean(level: float, spread: float) -> float:
    """Return the mean probability of a correct answer over all problems, by Gauss–Hermite quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(200)
    return float(special.expit(level + spread * nodes) @ weights / weights.sum())


def family_numbers(num_families: int, n: int, sizes: Sizes) -> Numbers:
    """Return the number of each problem's family, for about n problems. Unequal sizes are proportional to 1, 2, 3, …"""
    shares = np.ones(num_families) if sizes == "equal" else np.arange(1, num_families + 1)
    members = np.maximum(1, np.rint(n * shares / shares.sum())).astype(int)
    return np.repeat(np.arange(num_families), members)


@dataclass(frozen=True)
class Population:
    """Problems on which two methods differ by a known mean."""

    level: float
    """Mean ability of the baseline, in logits: −4 is 13 % correct, −2 28 %, 0 50 %, 4 87 %."""
    kind: Literal["symmetric", "lost", "loops", "gained", "clusters"] = "symmetric"
    """What the method does to a share of the problems (families). lost: never solves them; gained: always solves them;
    clusters: adds −4 logits to them, and more to all others. loops: instead, a share of the method's samples loops
    without an answer, mostly in a few problems.
    """
    share: float = 0.0
    method_spread: float = 0.0
    """Standard deviation of what each of the two methods adds to a problem's logit."""

    @property
    def spread(self) -> float:
        return float(np.hypot(SPREAD, self.method_spread))

    def chances(
        self, rng: Rng, repetitions: int, n: int, difference: float = 0.0, family: Numbers | None = None
    ) -> tuple[Floats, Floats]:
        """Return the probabilities that the method and the baseline solve each problem, both (repetitions, n). family
        (n,): number of each problem's family.
        """

        def normal() -> Floats:
            alone = rng.normal(0, 1, (repetitions, n))
            if family is None:
                return alone
            common = rng.normal(0, 1, (repetitions, int(family.max()) + 1))[:, family]
            return np.asarray(FAMILY_SHARE**0.5 * common + (1 - FAMILY_SHARE) ** 0.5 * alone)

        difficulty, surplus = self.level + SPREAD * normal(), gain(self, difference)
        chosen = rng.random((repetitions, n if family is None else int(family.max()) + 1)) < self.share
        is_chosen = chosen if family is None else chosen[:, family]
        own_logits = difficulty + self.method_spread * normal() + surplus
        base = special.expit(difficulty + self.method_spread * normal())
        if self.kind == "clusters":
            own_logits = np.where(is_chosen, own_logits - surplus + CLUSTER_LOSS, own_logits)
        own = special.expit(own_logits)
        if self.kind == "loops":  # most problems never loop, a few nearly always
            own = own * (1 - rng.beta(0.15, 0.15 * (1 - self.share) / self.share, own.shape))
        elif self.kind in ("lost", "gained"):
            own = np.where(is_chosen, float(self.kind == "gained"), own)
        return own, base


CLUSTER_LOSS = -4.0
"""What the method adds to the smaller of two clusters, in logits."""


@lru_cache(maxsize=256)
def gain(population: Population, difference: float) -> float:
    """Return what the method must add to all other problems, in logits, for a true mean difference of `difference`."""
    level, spread, share = population.level, population.spread, population.share
    chosen = {"gained": 1.0, "clusters": population_mean(level + CLUSTER_LOSS, spread)}.get(population.kind, 0.0)
    base = population_mean(level, spread)

    def surplus(gain: float) -> float:
        return (1 - share) * population_mean(level + gain, spread) + share * chosen - base - difference

    return float(optimize.brentq(surplus, -60, 60))


SYMMETRIC = {f"symmetric, {name.split()[0]}": Population(level, method_spread=1.0) for name, level in ABILITIES.items()}
SKEWED = {
    **{f"{100 * share:.0f} % lost": Population(4.0, "lost", share) for share in (0.01, 0.03, 0.06, 0.08, 0.10)},
    **{f"{100 * share:.0f} % loop": Population(4.0, "loops", share) for share in (0.03, 0.06)},
    **{f"{100 * share:.0f} % gained": Population(-4.0, "gained", share) for share in (0.03, 0.06, 0.10)},
}
CLUSTERS = Population(2.0, "clusters", 0.15)
POPULATIONS: Mapping[str, Population] = {**SYMMETRIC, **SKEWED}


def in_families(population: Population) -> Population:
    """Return the population with a standard deviation of 1 logit in what a method adds; families share FAMILY_SHARE of
    its variance.
    """
    return replace(population, method_spread=1.0)


def times(rng: Rng, n: int, spread: float | None) -> tuple[Floats, Floats, float]:
    """Return the times of two settings, both (n,), and the true ratio of their means.

    spread: standard deviation of the logarithm of log-normal times; None: Pareto times, which have an infinite
    variance. The ratio of a problem's times has the geometric mean TIME_RATIO.
    """
    second = 1 + rng.pareto(2.0, n) if spread is None else np.exp(rng.normal(2, spread, n))
    first = second * TIME_RATIO * np.exp(rng.normal(0, RATIO_SPREAD, n))
    return first, second, TIME_RATIO * float(np.exp(RATIO_SPREAD**2 / 2))


TIME_RATIO, RATIO_SPREAD = 1.5, 0.6
RUN_SPREAD = 0.1
"""Standard deviation of the logarithm of a run's factor."""
RunNoise = Literal["normal", "t3", "one in ten 1.5 × as slow"]


def run_factors(rng: Rng, repeats: int, noise: RunNoise) -> Floats:
    """Return the logarithms (repeats,) of the runs' factors; a run's factor multiplies all its times."""
    if noise == "normal":
        return np.asarray(rng.normal(0, RUN_SPREAD, repeats))
    if noise == "t3":
        return np.asarray(rng.standard_t(3, repeats) * RUN_SPREAD / 3**0.5)
    return np.asarray(rng.normal(0, 0.02, repeats) + np.log(1.5) * (rng.random(repeats) < 0.1))


def decisions(rng: Rng, n: int, looping: float) -> tuple[Floats, Floats]:
    """Return the numbers of rejecting decisions and of all decisions, both (n,). A share `looping` of the problems
    loops: they have 15 × as many decisions, nearly all rejecting.
    """
    is_looping = rng.random(n) < looping
    count = (1 + rng.poisson(11, n)) * np.where(is_looping, 15, 1)
    refused = rng.binomial(count, np.where(is_looping, 0.98, rng.beta(1.0, 4.0, n)))
    return refused.astype(float), count.astype(float)


def true_rate(looping: float) -> float:
    """Return the share of rejecting decisions in the population of `decisions`."""
    return (0.2 * (1 - looping) + 0.98 * 15 * looping) / (1 - looping + 15 * looping)


class Verdicts:
    """Verdicts of a simulated run: rating, is_correct, sample and problem, each (number of verdicts,).

    A rating is 1 higher if the sample is correct. Problem, sample and verdict each add noise, and the problem's noise
    partly depends on its difficulty, so the verdicts of a problem are similar. A sample has 4 verdicts on average.
    """

    def __init__(self, rng: Rng, n: int, k: int, level: float, bounds: Sequence[float] = ()) -> None:
        """Draw n problems with k samples. level: mean ability in logits. bounds: if given, a rating is only the number
        of the interval between bounds in which it lies.
        """
        difficulty = rng.normal(0, 1, n)
        of_problem = 0.7 * difficulty + rng.normal(0, 1, n)
        problem = np.repeat(np.arange(n), k)
        is_correct = rng.random(len(problem)) < special.expit(level + SPREAD * difficulty[problem])
        of_sample = of_problem[problem] + is_correct + rng.normal(0, 1, len(problem))
        self.sample = np.repeat(np.arange(len(problem)), 1 + rng.poisson(3, len(problem)))
        rating = of_sample[self.sample] + rng.normal(0, 1, len(self.sample))
        self.rating: Floats = np.searchsorted(bounds, rating).astype(float) if len(bounds) else rating
        self.is_correct = is_correct[self.sample]
        self.problem = problem[self.sample]
