"""Simulated intervals and tests of a difference that a few problems carry, for every candidate method.

    python -m tools.simulate.skew --repetitions 2000 > skew.md

A method breaks a share of the problems of an easy set entirely and gains a little on the others (lost), or some of its
samples loop (loops), or it solves a few problems of a hard set and loses a little on the others (gained). The gains are
such that the true mean difference is exactly 0 or exactly the margin of −2 points.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

import click
import numpy as np
from scipy import optimize, special

from tools.simulate.intervals import SPREAD, population_mean
from tools.simulate.skew_candidates import CANDIDATES, Floats, Method
from warehouse.statistics.bounded import paired_difference
from warehouse.statistics.planning import minimum_detectable_effect

SIZES = (30, 40, 100, 198, 500)
SAMPLES = 16
MARGIN = 0.02
USED, BEFORE, FLIPS = (
    "bounded mean: half a pseudo-problem (used)",
    "t (used before)",
    "sign-flip permutation (used before)",
)


@dataclass(frozen=True)
class Population:
    """Problems on which two methods differ by a known mean."""

    kind: Literal["symmetric", "lost", "loops", "gained"]
    level: float
    """Mean ability of the baseline, in logits: −4 is 13 % correct, −2 28 %, 0 50 %, 4 87 %."""
    share: float = 0.0
    """Of the problems that the method breaks, or solves; of the samples that loop."""
    method_spread: float = 0.0
    """Standard deviation of what each of the two methods adds to a problem, in logits."""

    @cached_property
    def spread(self) -> float:
        return float(np.hypot(SPREAD, self.method_spread))

    def draw(self, rng: np.random.Generator, repetitions: int, n: int, k: int, difference: float) -> Floats:
        """Return differences (repetitions, n) of the means over k samples, method − baseline."""
        size = (repetitions, n)
        difficulty = rng.normal(self.level, SPREAD, size)
        own = special.expit(difficulty + self.method_spread * rng.normal(0, 1, size) + gain(self, difference))
        base = special.expit(difficulty + self.method_spread * rng.normal(0, 1, size))
        if self.kind == "loops":  # most problems never loop, a few nearly always
            own *= 1 - rng.beta(0.15, 0.15 * (1 - self.share) / self.share, size)
        elif self.share:
            own = np.where(rng.random(size) < self.share, float(self.kind == "gained"), own)
        return np.asarray((rng.binomial(k, own) - rng.binomial(k, base)) / k, dtype=np.float64)


@lru_cache(maxsize=256)
def gain(population: Population, difference: float) -> float:
    """Return what the method adds to all other problems, in logits, so that the true mean difference is this."""
    level, spread, share = population.level, population.spread, population.share
    solved = share if population.kind == "gained" else 0.0
    base = population_mean(level, spread)

    def surplus(gain: float) -> float:
        return (1 - share) * population_mean(level + gain, spread) + solved - base - difference

    return float(optimize.brentq(surplus, -60, 60))


SYMMETRIC = {
    name: Population("symmetric", level, method_spread=1.0)
    for name, level in (("symmetric, hard", -2.0), ("symmetric, middle", 0.0), ("symmetric, easy", 4.0))
}
SKEWED = {
    **{f"{100 * share:.0f} % lost": Population("lost", 4.0, share) for share in (0.01, 0.03, 0.06, 0.08, 0.10)},
    **{f"{100 * share:.0f} % loop": Population("loops", 4.0, share) for share in (0.03, 0.06)},
    **{f"{100 * share:.0f} % gained": Population("gained", -4.0, share) for share in (0.03, 0.06, 0.10)},
}
POPULATIONS: Mapping[str, Population] = {**SYMMETRIC, **SKEWED}


def misses(
    method: Method, population: Population, n: int, repetitions: int, difference: float, k: int = SAMPLES
) -> tuple[float, float]:
    """Return how often a 95 % interval lies entirely above, and entirely below, the true difference."""
    rng = np.random.default_rng([n, k, int(1000 * population.share), int(population.level) + 10])
    low, high = method(population.draw(rng, repetitions, n, k, difference), difference)
    return float(np.mean(low < 0.025)), float(np.mean(high < 0.025))


def half_width(method: Method, population: Population, n: int, repetitions: int = 12) -> float:
    """Return the mean distance from the estimate to the interval's lower end."""
    rng = np.random.default_rng([n, 1])
    distances = []
    for row in population.draw(rng, repetitions, n, SAMPLES, 0.0):
        inside, outside = float(row.mean()), -1 + 1e-9
        for _ in range(16):
            middle = (inside + outside) / 2
            is_outside = method(row[None, :], middle)[0][0] < 0.025
            inside, outside = (inside, middle) if is_outside else (middle, outside)
        distances.append(float(row.mean()) - inside)
    return float(np.mean(distances))


def candidates(sizes: Sequence[int], repetitions: int) -> Iterator[str]:
    """Yield a table with the worst case of each method over all populations."""
    columns = " | ".join(f"n {n}" for n in sizes)
    yield f"| method | {columns} | half-width, symmetric and easy: " + ", ".join(f"n {n}" for n in sizes) + " | ms |"
    yield "|---" * (len(sizes) + 3) + "|"
    for name, method in CANDIDATES.items():
        started_at, cells = time.process_time(), []
        for n in sizes:
            at_margin = [misses(method, p, n, repetitions, -MARGIN) for p in POPULATIONS.values()]
            at_zero = [misses(method, p, n, repetitions, 0.0) for p in POPULATIONS.values()]
            covers = 1 - max(map(sum, [*at_margin, *at_zero]))
            cells.append(percent(covers, max(low for low, _ in at_margin), max(map(sum, at_zero))))
        spent = 1000 * (time.process_time() - started_at) / (2 * len(POPULATIONS) * len(sizes) * repetitions)
        widths = [half_width(method, SYMMETRIC["symmetric, easy"], n) for n in sizes]
        shown = ", ".join(f"{100 * width:.1f}" for width in widths)
        yield f"| {name} | {' | '.join(cells)} | {shown} | {spent:.2f} |"


def by_population(sizes: Sequence[int], repetitions: int, k: int) -> Iterator[str]:
    """Yield a table of the method used and of those used before, for each population."""
    yield f"| k {k} | " + " | ".join(f"n {n}" for n in sizes) + " |"
    yield "|---" * (len(sizes) + 1) + "|"
    for name, population in POPULATIONS.items():
        cells = []
        for n in sizes:
            rates = []
            for method, test in ((USED, USED), (BEFORE, FLIPS)):
                at_margin = misses(CANDIDATES[method], population, n, repetitions, -MARGIN, k)
                at_zero = misses(CANDIDATES[method], population, n, repetitions, 0.0, k)
                tested = at_zero if test == method else misses(CANDIDATES[test], population, n, repetitions, 0.0, k)
                rates.append(percent(1 - sum(at_zero), at_margin[0], sum(tested)))
            cells.append(f"{rates[0]} ({rates[1]})")
        yield f"| {name} | {' | '.join(cells)} |"


def detectable(sizes: Sequence[int], repetitions: int) -> Iterator[str]:
    """Yield a table of the minimum detectable effect and of the power at it."""
    yield "| MDE in points (power) | " + " | ".join(f"n {n}" for n in sizes) + " |"
    yield "|---" * (len(sizes) + 1) + "|"
    for name, population in {**SYMMETRIC, "6 % lost": SKEWED["6 % lost"]}.items():
        cells = []
        for n in sizes:
            rng, zeros = np.random.default_rng([n, 2]), np.zeros(n)
            rows = population.draw(rng, min(repetitions, 40), n, SAMPLES, 0.0)
            effects = [minimum_detectable_effect(paired_difference(row, zeros), n) or 0.0 for row in rows]
            effect = -float(np.mean(effects))
            drawn = population.draw(rng, repetitions, n, SAMPLES, effect)
            power = float(np.mean(CANDIDATES[USED](drawn, 0.0)[1] < 0.025))
            cells.append(f"{-100 * effect:.1f} ({100 * power:.0f} %)")
        yield f"| {name} | {' | '.join(cells)} |"


def percent(*rates: float) -> str:
    """Return rates as percentages."""
    return " / ".join(f"{100 * rate:.1f}" for rate in rates)


@click.command()
@click.option("--repetitions", default=2000, show_default=True)
@click.option("--size", "sizes", multiple=True, type=int, default=SIZES, help="Problems.")
@click.option("--table", type=click.Choice(["candidates", "populations", "detectable"]), default="populations")
@click.option("--samples", default=SAMPLES, show_default=True, help="Per problem, for --table populations.")
def main(repetitions: int, sizes: tuple[int, ...], table: str, samples: int) -> None:
    """Simulate and print a Markdown table; cells are coverage of the interval, 'not worse' shown, equal means rejected.

    Populations: in parentheses, the methods used before.
    """
    lines = {
        "candidates": candidates(sizes, repetitions),
        "populations": by_population(sizes, repetitions, samples),
        "detectable": detectable(sizes, repetitions),
    }
    for line in lines[table]:
        click.echo(line)


if __name__ == "__main__":
    main()
