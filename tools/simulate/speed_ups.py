"""Simulated coverage of the interval of a speed-up, with one common factor per run and with outlying problems.

    python -m tools.simulate.speed_ups --repetitions 1000

All times of a run are multiplied by one factor, log-normal around 1. Its spread is estimated from runs that are
repeated, which have factors of their own. The interval of the project is compared with the one over problems alone that
was used before, the studentized bootstrap.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import click
import numpy as np
from numpy.typing import NDArray

from tools.simulate.skew_candidates import bootstrap_t
from warehouse.statistics.intervals import Interval
from warehouse.statistics.ratios import geometric_mean_ratio
from warehouse.statistics.run_factor import between_runs, run_factor

Floats = NDArray[np.float64]
SIZES = (30, 40, 198)
FACTORS = (0.0, 0.05, 0.12)
"""Standard deviations of the run factor in logarithms."""
REPEATED = (0, 3, 5, 8)
"""Repeated runs from which the run factor is estimated; 0: there are none."""
TOKEN_SPREAD = 0.05
"""Standard deviation of a problem's time per token from one run to the next, in logarithms."""
POPULATIONS: Mapping[str, tuple[float, float, float]] = {
    "ratios differ by 5 %": (0.05, 0.0, 1.0),
    "by 20 %": (0.2, 0.0, 1.0),
    "by 40 %": (0.4, 0.0, 1.0),
    "by 20 %, 5 % of problems 3 × as high": (0.2, 0.05, 3.0),
    "by 20 %, 5 % of problems 5 × as high": (0.2, 0.05, 5.0),
    "by 20 %, 5 % of problems 1/5 as high": (0.2, 0.05, 0.2),
    "by 20 %, 5 % of problems 10 × as high": (0.2, 0.05, 10.0),
}
"""Standard deviation of problems' ratios in logarithms, share of outlying problems, and their factor."""


def drawn(name: str, rng: np.random.Generator, repetitions: int, n: int) -> tuple[Floats, float]:
    """Return logarithms of ratios (repetitions, n) and their true mean."""
    spread, share, outlying = POPULATIONS[name]
    is_outlying = rng.random((repetitions, n)) < share
    logs = rng.normal(0, spread, (repetitions, n)) + is_outlying * np.log(outlying)
    return logs, share * float(np.log(outlying))


def contains(interval: Interval, truth: float) -> bool:
    """Return whether an interval of a ratio contains the ratio whose logarithm this is."""
    return interval.low is not None and interval.high is not None and interval.low <= np.exp(truth) <= interval.high


def coverage(name: str, n: int, factor: float, repetitions: int) -> Iterator[float]:
    """Yield how often an interval contains the truth: the one used before, then one for each of REPEATED."""
    rng = np.random.default_rng([n, int(1000 * factor), list(POPULATIONS).index(name)])
    logs, truth = drawn(name, rng, repetitions, n)
    logs = logs + factor * (rng.normal(0, 1, (repetitions, 1)) - rng.normal(0, 1, (repetitions, 1)))
    low, high = bootstrap_t(logs, truth)
    yield float(np.mean((low >= 0.025) & (high >= 0.025)))
    ratios = [geometric_mean_ratio(np.exp(row), np.ones(n)) for row in logs]
    for runs in REPEATED:
        hits = 0
        for ratio in ratios:
            repeats = factor * rng.normal(0, 1, (runs, 1)) + TOKEN_SPREAD * rng.normal(0, 1, (runs, n))
            hits += contains(between_runs(ratio, run_factor([repeats])), truth)
        yield hits / repetitions


def table(sizes: Sequence[int], repetitions: int, names: Sequence[str] = tuple(POPULATIONS)) -> Iterator[str]:
    """Yield the lines of a Markdown table."""
    yield "| ratios | run factor | " + " | ".join(f"n {n}" for n in sizes) + " |"
    yield "|---" * (len(sizes) + 2) + "|"
    for name in names:
        for factor in FACTORS:
            cells = []
            for n in sizes:
                before, *rates = (f"{100 * rate:.1f}" for rate in coverage(name, n, factor, repetitions))
                cells.append(f"{' / '.join(rates)} ({before})")
            yield f"| {name} | {100 * factor:g} % | {' | '.join(cells)} |"


@click.command()
@click.option("--repetitions", default=1000, show_default=True)
@click.option("--size", "sizes", multiple=True, type=int, default=SIZES, help="Problems.")
def main(repetitions: int, sizes: tuple[int, ...]) -> None:
    """Simulate and print coverage with 0 / 3 / 5 / 8 repeated runs (in parentheses: the interval used before)."""
    for line in table(sizes, repetitions):
        click.echo(line)


if __name__ == "__main__":
    main()
