"""Simulated plans: the power that a comparison has, by the tool's own decision, if it is as large as the plan says.

    python -m tools.simulate.plans --repetitions 2000 > plans.md

The populations are those of populations.py; the methods are equally accurate. First, plans from the true variances.
Then plans from pilots, whose variances are noisy: the power that they really have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import click
import numpy as np
from numpy.typing import NDArray

from tools.simulate.populations import POPULATIONS, Population
from warehouse.statistics import bounded, planning
from warehouse.statistics.planning import Components, Pilot

Floats = NDArray[np.float64]
SEED = 25
TARGET = 0.8
CASES = tuple((margin, k) for margin in (0.02, 0.05) for k in (1, 4, 16))
PILOTS = ((15, 4), (30, 4), (60, 4), (100, 4), (198, 4), (30, 16), (60, 16))
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
    """Return the share of comparisons that show non-inferiority."""
    rng, found = np.random.default_rng([SEED, n, k]), 0
    for _ in range(repetitions):
        own, base = (rng.binomial(k, p[0]) / k for p in population.chances(rng, 1, n))
        p = bounded.worst_case(own, base, margin).p
        found += p is not None and p < 0.025
    return found / repetitions


def from_truth(repetitions: int, names: Sequence[str] = tuple(POPULATIONS)) -> Iterator[str]:
    """Yield the table of plans from true variances."""
    heading = " | ".join(f"{100 * margin:g} points, k {k}" for margin, k in CASES)
    yield f"| population: planned problems, power in percent | {heading} |"
    yield "|---" * (len(CASES) + 1) + "|"
    for name in names:
        cells = []
        for margin, k in CASES:
            n = planning.problems_needed(truth(name).moments(k), margin, TARGET)
            assert n is not None
            cells.append(f"{n:,}: {100 * decided(POPULATIONS[name], n, k, margin, repetitions):.1f}")
        yield f"| {name} | {' | '.join(cells)} |"


def pilot(population: Population, n: int, k: int, rng: np.random.Generator) -> Pilot:
    """Draw a pilot."""
    correct, samples = [rng.binomial(k, p[0]) for p in population.chances(rng, 1, n)], np.full(n, k)
    return Pilot(correct[0], samples, correct[1], samples)


@dataclass(frozen=True)
class Powers:
    """True powers (r,) of plans from r pilots, by the pilot's variance and by its upper limit."""

    plain: Floats
    careful: Floats


def powers(name: str, n: int, k: int, repetitions: int, margin: float = 0.02, planned_k: int = 4) -> Powers:
    """Return the powers of plans from pilots of n problems × k samples."""
    rng = np.random.default_rng([SEED, n, k, sorted(POPULATIONS).index(name)])
    moments = truth(name).moments(planned_k)
    grid = np.unique(np.geomspace(20, planning.MOST_PROBLEMS, 100).astype(int))
    curve = [planning.power(moments, int(size), margin) for size in grid]
    found = []
    for _ in range(repetitions):
        one = pilot(POPULATIONS[name], n, k, rng)
        sizes = [
            planning.problems_needed(planned, margin, TARGET) or planning.MOST_PROBLEMS
            for planned in (one.components.moments(planned_k), one.careful(planned_k))
        ]
        found.append([float(np.interp(size, grid, curve)) for size in sizes])
    return Powers(*np.array(found).T)


def _shown(values: Floats) -> str:
    return f"{100 * values.mean():.0f} ({100 * np.mean(values < 0.7):.0f}, {100 * np.mean(values < 0.5):.0f})"


def from_pilots(repetitions: int, names: Sequence[str] = tuple(POPULATIONS)) -> Iterator[str]:
    """Yield the table of plans from pilots."""
    heading = " | ".join(f"{n} × {k}" for n, k in PILOTS)
    yield f"| power: mean (of plans below 70 %, below 50 %) | plan | {heading} |"
    yield "|---" * (len(PILOTS) + 2) + "|"
    for name in names:
        found = [powers(name, n, k, repetitions) for n, k in PILOTS]
        for plan in ("plain", "careful"):
            yield f"| {name} | {plan} | {' | '.join(_shown(getattr(cell, plan)) for cell in found)} |"


@click.command()
@click.option("--repetitions", default=2000, show_default=True)
@click.option("--pilots", default=1000, show_default=True)
def main(repetitions: int, pilots: int) -> None:
    """Print both tables."""
    for table in (from_truth(repetitions), from_pilots(pilots)):
        for line in table:
            click.echo(line)
        click.echo()


if __name__ == "__main__":
    main()
