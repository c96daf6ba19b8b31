"""Simulated coverage and half-width of the interval of an accuracy, and of the interval that was used before.

    python -m tools.simulate.accuracy --repetitions 2000

Problems of a set are hard, middling or easy, or a share of them is never solved and all others nearly always are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import click
import numpy as np
from scipy import special

from tools.simulate.intervals import ABILITIES, SPREAD, holds, population_mean
from warehouse.statistics.bounded import accuracy, chance_below
from warehouse.statistics.intervals import Floats, Interval, mean_t

Rng = np.random.Generator
SIZES, SAMPLES = (30, 40, 100, 198, 500), (1, 4, 16)
LOST, OTHERS = 0.05, 0.98
"""Share of the problems that are never solved, and probability of a correct answer to the others."""
POPULATIONS: Mapping[str, float | None] = {**ABILITIES, "5 % lost": None}
"""Mean ability in logits; None: problems are lost."""
POPULATION_SEEDS = {population: seed for seed, population in enumerate(POPULATIONS.values())}
ADDED_WEIGHT = 0.25
"""Weight of each of the two pseudo-problems, one always solved and one never, of the interval used before."""


def used_before(values: Floats) -> Interval:
    """Return the interval used before: the Beta posterior where all values are 0 or 1, else t with pseudo-problems."""
    n, mean = len(values), float(values.mean())
    if np.all((values == 0) | (values == 1)):
        low, high = special.betaincinv(1 + n * mean, 1 + n - n * mean, [0.025, 0.975])
        return Interval(mean, min(float(low), mean), max(float(high), mean), mean_t(values).standard_error, "Beta")
    total = n + 2 * ADDED_WEIGHT
    centre = (float(values.sum()) + ADDED_WEIGHT) / total
    squares = float(((values - centre) ** 2).sum()) + ADDED_WEIGHT * (centre**2 + (1 - centre) ** 2)
    half = float(special.stdtrit(total - 1, 0.975)) * (squares / (total - 1) / total) ** 0.5
    return Interval(mean, max(0.0, centre - half), min(1.0, centre + half), mean_t(values).standard_error, "adjusted t")


def draw(rng: Rng, population: float | None, n: int, k: int) -> Floats:
    """Return the mean score (n,) of each problem of one run."""
    if population is None:
        return np.asarray(rng.binomial(k, np.where(rng.random(n) < LOST, 0.0, OTHERS)) / k)
    return np.asarray(rng.binomial(k, special.expit(rng.normal(population, SPREAD, n))) / k)


def truth(population: float | None) -> float:
    """Return the accuracy over all problems."""
    return (1 - LOST) * OTHERS if population is None else population_mean(population, SPREAD)


def covers(values: Floats, value: float) -> bool:
    """Return whether the interval of an accuracy contains a value strictly between 0 and 1, without computing it."""
    return chance_below(values, value, 0.0) >= 0.025 and chance_below(values, value, 1.0) <= 0.975


def coverage(how: Callable[[Floats, float], bool], population: float | None, n: int, k: int, repetitions: int) -> float:
    """Return how often an interval contains the accuracy over all problems."""
    rng, value = np.random.default_rng([n, k, POPULATION_SEEDS[population]]), truth(population)
    return float(np.mean([how(draw(rng, population, n, k), value) for _ in range(repetitions)]))


def half_width(how: Callable[[Floats], Interval], population: float | None, n: int, k: int, runs: int) -> float:
    """Return the mean of half the length of an interval."""
    rng, lengths = np.random.default_rng([n, k, POPULATION_SEEDS[population], 1]), []
    for _ in range(runs):
        interval = how(draw(rng, population, n, k))
        assert interval.low is not None
        assert interval.high is not None
        lengths.append((interval.high - interval.low) / 2)
    return float(np.mean(lengths))


def before_covers(values: Floats, value: float) -> bool:
    """Return whether the interval of former versions holds the value."""
    return holds(used_before(values), value)


def table(repetitions: int, sizes: Sequence[int], samples: Sequence[int]) -> Iterator[str]:
    """Yield the lines of a Markdown table: coverage and half-width; in parentheses, of the interval used before."""
    yield "| problems | k | " + " | ".join(f"n {n}" for n in sizes) + " |"
    yield "|---" * (len(sizes) + 2) + "|"
    for name, population in POPULATIONS.items():
        for k in samples:
            cells = []
            for n in sizes:
                rates = [100 * coverage(how, population, n, k, repetitions) for how in (covers, before_covers)]
                widths = [
                    100 * half_width(how, population, n, k, max(1, repetitions // 40))
                    for how in (accuracy, used_before)
                ]
                cells.append(f"{rates[0]:.1f}, ±{widths[0]:.1f} ({rates[1]:.1f}, ±{widths[1]:.1f})")
            yield f"| {name} | {k} | {' | '.join(cells)} |"


@click.command()
@click.option("--repetitions", default=2000, show_default=True)
@click.option("--size", "sizes", multiple=True, type=int, default=SIZES, help="Problems.")
@click.option("--samples", multiple=True, type=int, default=SAMPLES, help="Per problem.")
def main(repetitions: int, sizes: tuple[int, ...], samples: tuple[int, ...]) -> None:
    """Simulate and print a Markdown table."""
    for line in table(repetitions, sizes, samples):
        click.echo(line)


if __name__ == "__main__":
    main()
