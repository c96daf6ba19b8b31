"""Simulated comparisons that are looked at after every wave of samples: how often a look is wrong, and what is saved.

    python -m tests.warehouse.simulate_waves --repetitions 1000 > waves.md

The problems of a repetition are drawn once and stay the same over all looks; samples are added to them. The populations
are those of simulate_skew.py: differences that are symmetric, and differences that a few problems carry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from scipy import special

from tests.warehouse.simulate_intervals import SPREAD
from tests.warehouse.simulate_skew import MARGIN, POPULATIONS, SAMPLES, Population, gain
from warehouse.statistics.allocation import allocated, variances
from warehouse.statistics.bounded import chance_below
from warehouse.statistics.group_sequential import ERROR_RATE, levels

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Allocation = Callable[[int, Sequence[Counts], Sequence[Counts], int], Floats]
"""Variances (n,) by which a run's samples are divided: its number, correct samples and samples of the first wave."""
SIZES = (4, 8, 12, 16)
PROBLEMS = (30, 100, 198, 500)
DIFFERENCES = (0.0, -0.01, -0.02, -0.04)
SEED = 25
SHARES = tuple(size / SAMPLES for size in SIZES)


def by_the_other(number: int, correct: Sequence[Counts], samples: Sequence[Counts], first: int) -> Floats:
    """What is used: the first wave of the other run."""
    return variances(correct[1 - number], samples[1 - number])


def by_its_own(number: int, correct: Sequence[Counts], samples: Sequence[Counts], first: int) -> Floats:
    """What would be biased: the first wave of the run itself."""
    return variances(correct[number], samples[number])


def equal(number: int, correct: Sequence[Counts], samples: Sequence[Counts], first: int) -> Floats:
    return np.full(len(correct[number]), 0.25)


@dataclass(frozen=True)
class Looks:
    """What the looks of r repetitions find; arrays are (r, looks)."""

    not_worse: Floats
    """One-sided p-values that the run loses the margin or more."""
    worse: Floats
    """That it loses at most the margin."""
    num_samples: Floats
    """Samples of both runs that are drawn by then."""
    bias: Floats
    """Error of the run's pass@1: estimate − mean chance of its problems."""
    spread: Floats
    """Variance of the differences over problems."""

    def stopped(self, bounds: Floats) -> tuple[NDArray[np.bool_], NDArray[np.bool_], Floats]:
        """Return which repetitions end as "not worse" and as "worse" by each look (r, looks), and the samples (r,)."""
        found = (self.not_worse < bounds) | (self.worse < bounds)
        last = np.where(found.any(axis=1), found.argmax(axis=1), found.shape[1] - 1)
        rows = np.arange(len(last))
        is_good = np.less(self.not_worse[rows, last], bounds[last])
        is_by_then = np.arange(found.shape[1])[None, :] >= last[:, None]
        decided = np.asarray(found.any(axis=1)).reshape(-1, 1) & is_by_then
        return decided & is_good.reshape(-1, 1), decided & ~is_good.reshape(-1, 1), self.num_samples[rows, last]


def chances(population: Population, rng: np.random.Generator, n: int, difference: float) -> list[Floats]:
    """Return the chances (n,) that the method and the baseline solve each problem."""
    level = rng.normal(population.level, SPREAD, n)
    surplus = gain(population, difference)
    own = special.expit(level + population.method_spread * rng.normal(0, 1, n) + surplus)
    base = special.expit(level + population.method_spread * rng.normal(0, 1, n))
    if population.kind == "loops":
        own = own * (1 - rng.beta(0.15, 0.15 * (1 - population.share) / population.share, n))
    elif population.share:
        own = np.where(rng.random(n) < population.share, float(population.kind == "gained"), own)
    return [own, base]


def looks(
    population: Population, n: int, difference: float, repetitions: int, allocation: Allocation = by_the_other
) -> Looks:
    """Simulate repetitions; the same seed for every allocation."""
    rng = np.random.default_rng([SEED, n, round(-1000 * difference), list(POPULATIONS.values()).index(population)])
    found = np.array([_once(population, rng, n, difference, allocation) for _ in range(repetitions)])
    return Looks(*(found[:, :, place] for place in range(found.shape[2])))


def _once(
    population: Population, rng: np.random.Generator, n: int, difference: float, allocation: Allocation
) -> list[tuple[float, ...]]:
    probabilities = chances(population, rng, n, difference)
    samples: list[Counts] = [np.full(n, SIZES[0])] * 2
    correct: list[Counts] = [rng.binomial(SIZES[0], p) for p in probabilities]
    first = list(correct), list(samples)
    looked: list[tuple[float, ...]] = []
    for size in SIZES:
        if size > SIZES[0]:
            for run, p in enumerate(probabilities):
                least = np.minimum(samples[run] + 1, SAMPLES)
                now = allocated(allocation(run, *first, SIZES[0]), least, size * n, SAMPLES)
                correct[run] = correct[run] + rng.binomial(now - samples[run], p)
                samples[run] = now
        scores = [c / k for c, k in zip(correct, samples, strict=True)]
        differences = np.round(scores[0] - scores[1], 12)
        looked.append(
            (
                chance_below(differences, -MARGIN, -1.0),
                1 - chance_below(differences, -MARGIN, 1.0),
                float(sum(k.sum() for k in samples)),
                float(np.mean(scores[0] - probabilities[0])),
                float(np.var(differences, ddof=1)),
            )
        )
    return looked


def used() -> Floats:
    """Return the levels of the looks."""
    return np.array(levels(SHARES))


def rules() -> Mapping[str, Floats]:
    """Return the levels of the looks by several rules; a rule without a look has level 0 there."""
    normal = special.ndtri(1 - ERROR_RATE / 2)
    shares = np.array(SHARES)
    mixed = np.sqrt(2 * (shares + 0.5) * np.log(np.sqrt((shares + 0.5) / 0.5) / (2 * ERROR_RATE) + 1) / shares)
    brien = tuple(float(2 * special.ndtr(-normal / share**0.5)) for share in SHARES)
    pocock = tuple(float(ERROR_RATE * np.log(1 + (np.e - 1) * share)) for share in SHARES)
    return {
        "fixed 16 samples": np.array([0.0, 0.0, 0.0, ERROR_RATE]),
        "2.5 % at every look": np.full(len(SIZES), ERROR_RATE),
        "spending, quadratic (used)": used(),
        "spending, like O'Brien and Fleming": np.array(levels(SHARES, brien)),
        "spending, like Pocock": np.array(levels(SHARES, pocock)),
        "anytime-valid: normal mixture": special.ndtr(-mixed),
    }


def by_rule(sizes: Sequence[int], repetitions: int) -> Iterator[str]:
    """Yield a table of rules: the worst errors of all populations at the margin, then decisions and samples."""
    columns = [f"n {n}: {name}" for n in sizes for name in ("errors", "0 points", "−4 points")]
    yield f"| rule | {' | '.join(columns)} |"
    yield "|---" * (len(columns) + 1) + "|"
    found = {
        (n, name, difference): looks(population, n, difference, repetitions)
        for n in sizes
        for name, population in POPULATIONS.items()
        for difference in (0.0, -MARGIN, -0.04)
        if difference == -MARGIN or name == "symmetric, easy"
    }
    for rule, bounds in rules().items():
        cells = []
        for n in sizes:
            wrong = [found[n, name, -MARGIN].stopped(bounds) for name in POPULATIONS]
            cells.append(percent(max(w[0][:, -1].mean() for w in wrong), max(w[1][:, -1].mean() for w in wrong)))
            for difference in (0.0, -0.04):
                good, bad, samples = found[n, "symmetric, easy", difference].stopped(bounds)
                decided = (good if difference == 0.0 else bad)[:, -1].mean()
                cells.append(percent(decided, samples.mean() / (2 * n * SAMPLES)))
        yield f"| {rule} | {' | '.join(cells)} |"


def by_population(sizes: Sequence[int], repetitions: int, names: Sequence[str] = tuple(POPULATIONS)) -> Iterator[str]:
    """Yield a table of the rule used: errors by look at the margin; decisions and saving by true difference."""
    differences = " | ".join(f"{100 * d:+.0f}" for d in DIFFERENCES)
    yield f"| problems | n | wrong by look, not worse | wrong by look, worse | {differences} |"
    yield "|---" * (4 + len(DIFFERENCES)) + "|"
    for name in names:
        population = POPULATIONS[name]
        for n in sizes:
            cells, wrong = [], ["", ""]
            for difference in DIFFERENCES:
                if not _is_possible(population, difference):
                    cells.append("–")
                    continue
                good, bad, samples = looks(population, n, difference, repetitions).stopped(used())
                if difference == -MARGIN:
                    wrong = [percent(*good.mean(axis=0)), percent(*bad.mean(axis=0))]
                saved = 1 - samples.mean() / (2 * n * SAMPLES)
                cells.append(f"{percent(good[:, -1].mean(), bad[:, -1].mean())}: {100 * saved:.0f}")
            yield f"| {name} | {n} | {wrong[0]} | {wrong[1]} | {' | '.join(cells)} |"


def _is_possible(population: Population, difference: float) -> bool:
    """Return whether a method that solves more problems of a hard set can lose this much on the others."""
    try:
        gain(population, difference)
    except ValueError:
        return False
    return True


def by_allocation(sizes: Sequence[int], repetitions: int) -> Iterator[str]:
    """Yield a table of the bias of pass@1 and of the spread of the differences at the second and third look."""
    yield "| problems | n | " + " | ".join(ALLOCATIONS) + " |"
    yield "|---" * (2 + len(ALLOCATIONS)) + "|"
    for name in ("symmetric, hard", "symmetric, middle", "symmetric, easy", "6 % lost", "6 % gained"):
        for n in sizes:
            cells = []
            for allocation in ALLOCATIONS.values():
                found = looks(POPULATIONS[name], n, 0.0, repetitions, allocation)
                bias, error = found.bias[:, 1:3].mean(axis=0), found.bias[:, 1:3].std(axis=0) / repetitions**0.5
                spread = found.spread[:, 1:3].mean(axis=0) ** 0.5
                shown = " / ".join(f"{100 * b:+.2f}" for b in bias)
                cells.append(f"{shown} ± {100 * error.max():.2f}; {percent(*spread)}")
            yield f"| {name} | {n} | {' | '.join(cells)} |"


ALLOCATIONS: Mapping[str, Allocation] = {
    "by the other run (used)": by_the_other,
    "equal": equal,
    "by its own samples (biased)": by_its_own,
}


def percent(*rates: Any) -> str:
    return " / ".join(f"{100 * rate:.1f}" for rate in rates)


@click.command()
@click.option("--repetitions", default=1000, show_default=True)
@click.option("--size", "sizes", multiple=True, type=int, default=PROBLEMS, help="Problems.")
@click.option("--population", "names", multiple=True, type=click.Choice(list(POPULATIONS)), default=list(POPULATIONS))
@click.option("--table", type=click.Choice(["populations", "rules", "allocations"]), default="populations")
def main(repetitions: int, sizes: tuple[int, ...], names: tuple[str, ...], table: str) -> None:
    """Simulate and print a Markdown table.

    Populations: for each true difference "not worse" / "worse" decided in percent, and the percentage of samples saved.
    """
    tables = {
        "populations": by_population(sizes, repetitions, names),
        "rules": by_rule(sizes, repetitions),
        "allocations": by_allocation(sizes, repetitions),
    }
    for line in tables[table]:
        click.echo(line)


if __name__ == "__main__":
    main()
