"""Simulated coverage of intervals and rejection rates of tests, on synthetic problems; accuracy: accuracy.py.

    python -m tools.simulate.intervals --repetitions 3000

A problem's difficulty is normal in logits with a large spread, so that most problems are nearly always or nearly never
solved; two methods differ on every problem, also where both are equally good on average. Every cell of the table is
a seeded simulation of the project's own estimators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache

import click
import numpy as np
from scipy import special

from warehouse.statistics.bounded import non_inferiority, paired_difference, which_is_better
from warehouse.statistics.intervals import Floats, Interval
from warehouse.statistics.paired import sign_flip, stratified
from warehouse.statistics.ratios import geometric_mean_ratio, mean_of, ratio_of_means

Rng = np.random.Generator
Once = Callable[[Rng, int, int, float], bool]
"""A simulated experiment with n problems, k samples and a mean ability; returns whether the event happened."""

DESIGNS = ((30, 1), (30, 16), (40, 4), (100, 1), (100, 4), (500, 4))
"""Problems (n) and samples (k)."""
ABILITIES: Mapping[str, float] = {"hard (28 %)": -2.0, "middle (50 %)": 0.0, "easy (87 %)": 4.0}
"""In logits."""
SPREAD = 3.0
"""Standard deviation of problems' difficulty, in logits."""
METHOD_SPREAD = 1.0
"""Standard deviation of what a method adds to each problem, in logits."""
BETTER = 0.5
"""What the better method adds to every problem, in logits."""
TIME_SPREAD, TIME_RATIO = 0.6, 1.5
"""Standard deviation of a problem's latency ratio in logarithms; its geometric mean."""
CHAIN_SPREAD = 0.7
"""Standard deviation of problems' latencies in logarithms; 0.3 to 0.7 in the demo's runs."""


@lru_cache(maxsize=64)
def population_mean(level: float, spread: float) -> float:
    """Return the mean probability of a correct answer over all problems, by Gauss–Hermite quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(200)
    return float(special.expit(level + spread * nodes) @ weights / weights.sum())


def two_methods(rng: Rng, n: int, k: int, level: float, better: float) -> tuple[Floats, Floats]:
    """Return problem means of two methods on the same problems; the first is better by `better` logits."""
    difficulty = rng.normal(level, SPREAD, n)
    first = special.expit(difficulty + rng.normal(0, METHOD_SPREAD, n) + better)
    second = special.expit(difficulty + rng.normal(0, METHOD_SPREAD, n))
    return rng.binomial(k, first) / k, rng.binomial(k, second) / k


def holds(interval: Interval, truth: float) -> bool:
    """Return whether an interval contains the truth."""
    assert interval.low is not None
    assert interval.high is not None
    return interval.low <= truth <= interval.high


def difference_covers(rng: Rng, n: int, k: int, level: float) -> bool:
    """Return whether the interval of two methods' difference holds the true one."""
    spread = float(np.hypot(SPREAD, METHOD_SPREAD))
    truth = population_mean(level + BETTER, spread) - population_mean(level, spread)
    return holds(paired_difference(*two_methods(rng, n, k, level, BETTER)), truth)


def equal_methods_differ(rng: Rng, n: int, k: int, level: float) -> bool:
    """Return True if the test rejects without a difference: McNemar's for a single sample, as in a comparison."""
    first, second = two_methods(rng, n, k, level, 0.0)
    p = sign_flip(first - second, 1) if k == 1 else which_is_better(first - second)
    return p <= 0.05


def stratified_rejects(rng: Rng, n: int, k: int, level: float) -> bool:
    """Return True if the test rejects without a change: the same problems, run once now and five times before."""
    p, samples = special.expit(rng.normal(level, SPREAD, n)), np.full(n, k)
    return stratified(rng.binomial(k, p), samples, rng.binomial(5 * k, p), 5 * samples).p <= 0.05


def inferior_passes(rng: Rng, n: int, k: int, level: float) -> bool:
    """Return True if a method that is worse by exactly the margin is called non-inferior; one-sided at 2.5 %."""
    spread = float(np.hypot(SPREAD, METHOD_SPREAD))
    margin = population_mean(level + BETTER, spread) - population_mean(level, spread)
    better, worse = two_methods(rng, n, k, level, BETTER)
    p = non_inferiority(worse - better, margin)
    return p is not None and p <= 0.025


def ratio_covers(rng: Rng, n: int, k: int, level: float) -> bool:
    """Return True if the interval of a latency ratio covers the truth, for skewed ratios: exponential in logarithms."""
    logs = np.log(TIME_RATIO) + TIME_SPREAD * (rng.exponential(1, n) - 1)
    times = np.exp(rng.normal(2, 1, n))
    return holds(geometric_mean_ratio(times * np.exp(logs), times), TIME_RATIO)


def ratio_of_means_covers(rng: Rng, n: int, k: int, level: float) -> bool:
    """Return True if the interval of a ratio of mean latencies covers the truth, for log-normal times and ratios."""
    logs = np.log(TIME_RATIO) + TIME_SPREAD * rng.normal(0, 1, n)
    times = np.exp(rng.normal(2, CHAIN_SPREAD, n))
    interval = ratio_of_means(mean_of(times * np.exp(logs)), mean_of(times), resamples=999)
    return holds(interval, TIME_RATIO * float(np.exp(TIME_SPREAD**2 / 2)))


SHARES: Mapping[str, tuple[Once, float]] = {
    "difference: coverage of the interval": (difference_covers, 0.95),
    "test of two methods, rejections without a difference": (equal_methods_differ, 0.05),
    "stratified test, rejections without a change": (stratified_rejects, 0.05),
    "non-inferiority claimed, truly worse by the margin": (inferior_passes, 0.025),
}
"""Simulated events by name, with their nominal rates."""


def share(once: Once, design: tuple[int, int, float], repetitions: int, seed: int = 0) -> float:
    """Return how often an event happens."""
    rng = np.random.default_rng([seed, design[0], design[1], int(10 * design[2]) + 100])
    return sum(once(rng, *design) for _ in range(repetitions)) / repetitions


def table(repetitions: int, designs: Sequence[tuple[int, int]] = DESIGNS) -> Iterator[str]:
    """Yield the lines of a Markdown table: rates in percent, one column per design, cells hard / middle / easy."""
    yield "| statistic: nominal value | " + " | ".join(f"n {n}, k {k}" for n, k in designs) + " |"
    yield "|---" * (len(designs) + 1) + "|"
    for what, (once, nominal) in SHARES.items():
        cells = [
            " / ".join(f"{100 * share(once, (n, k, level), repetitions):.1f}" for level in ABILITIES.values())
            for n, k in designs
        ]
        yield f"| {what}: {100 * nominal:g} % | " + " | ".join(cells) + " |"
    for name, covers in (("latency ratio", ratio_covers), ("ratio of mean latencies", ratio_of_means_covers)):
        times = [f"{100 * share(covers, (n, 1, 0.0), max(1, repetitions // 2)):.1f}" for n, _ in designs]
        yield f"| {name}: coverage of the interval: 95 % | " + " | ".join(times) + " |"


@click.command()
@click.option("--repetitions", default=3000, show_default=True)
@click.option("--design", "designs", multiple=True, type=(int, int), default=DESIGNS, help="Problems and samples.")
def main(repetitions: int, designs: tuple[tuple[int, int], ...]) -> None:
    """Simulate and print a Markdown table."""
    for line in table(repetitions, designs):
        click.echo(line)


if __name__ == "__main__":
    main()
