"""Simulated comparisons whose size comes from a plan, and simulated pilots.

The populations are those of populations.py; the methods are equally accurate.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from tools.simulate.populations import POPULATIONS, Population
from warehouse.statistics import bounded
from warehouse.statistics.planning import Components, Pilot

SEED = 25
_MANY = 400_000


@lru_cache(maxsize=32)
def truth(name: str) -> Components:
    """Return the true variance components of a population."""
    [own], [base] = POPULATIONS[name].chances(np.random.default_rng(SEED), 1, _MANY)
    single = own * (1 - own) + base * (1 - base)
    deviations = own - base - np.mean(own - base)
    thirds = float(np.mean(deviations**3)), 3 * float(np.mean(deviations * single))
    return Components(float(np.var(own - base)), float(np.mean(single)), *thirds)


def decided(population: Population, n: int, k: int, margin: float, repetitions: int) -> float:
    """Return the share of simulated comparisons that show non-inferiority."""
    rng, found = np.random.default_rng([SEED, n, k]), 0
    for _ in range(repetitions):
        own, base = (rng.binomial(k, p[0]) / k for p in population.chances(rng, 1, n))
        p = bounded.worst_case(own, base, margin).p
        found += p is not None and p < 0.025
    return found / repetitions


def pilot(population: Population, n: int, k: int, rng: np.random.Generator) -> Pilot:
    """Draw a pilot of n problems with k samples per method."""
    correct, samples = [rng.binomial(k, p[0]) for p in population.chances(rng, 1, n)], np.full(n, k)
    return Pilot(correct[0], samples, correct[1], samples)
