"""Simulated coverage of latencies estimated from M timed samples, and the M from which this coverage equals that of the
full measurement.

    python -m tools.simulate.two_phase --repetitions 1000

Problems have log-normal lengths, the lengths of their samples vary around these, and a timed sample is a new chain of
the same problem. `jobs.run.timing` draws the samples, and `warehouse.statistics.two_phase` estimates the mean latency
of one run and the ratio of two runs over the same problems. Every interval is compared with the interval of the full
measurement, in which all samples run one at a time (`bootstrap_t`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import click
import numpy as np
from numpy.typing import NDArray

from jobs.run.timing import Ended, draw
from warehouse.statistics.intervals import Interval
from warehouse.statistics.ratios import bootstrap_t
from warehouse.statistics.two_phase import (
    Measured,
    Predicted,
    TwoPhaseMean,
    mean_interval,
    two_phase_mean,
    two_phase_ratio,
)

Floats = NDArray[np.float64]
FOLDS = 5
RESAMPLES = 499
LEVELS = 5
DESIGNS: Mapping[str, tuple[int, int]] = {
    "30 × 16": (30, 16),
    "40 × 2": (40, 2),
    "198 × 4": (198, 4),
    "500 × 1": (500, 1),
}
"""Numbers of problems and of samples per problem, by name."""
TIMED = (12, 24, 50, 100, 200)
MODELS = ("good", "rough", "useless", "wrong")
"""Latency models. `good`: knows a chain's length, from which its time deviates by 3 % per problem and by 3 % per chain;
`rough`: the same with 18 % each; `useless`: knows only a quantity that is unrelated to the time; `wrong`: not fitted,
and predicts twice the time.
"""


@dataclass(frozen=True)
class Chains:
    """Chains of a run: their times, and the quantities that the latency model may know; all (N,)."""

    seconds: Floats
    length: Floats
    noise: Floats


@dataclass(frozen=True)
class Method:
    """A method's chain lengths and times per token; both are logarithms per problem."""

    log_lengths: Floats
    log_speeds: Floats

    def chains(self, problems: NDArray[np.int64], spread: float, model: str, rng: np.random.Generator) -> Chains:
        """Draw one chain for each entry of `problems`."""
        length = np.exp(self.log_lengths[problems] + rng.normal(0, spread, len(problems)))
        beside = 0.18 if model == "rough" else 0.03
        seconds = (0.02 + length * np.exp(self.log_speeds[problems])) * np.exp(rng.normal(0, beside, len(problems)))
        return Chains(seconds, length, rng.exponential(1, len(problems)))


def causes(chains: Chains, model: str) -> Floats:
    """Return the quantities that the model knows of each chain, (N, causes)."""
    if model == "useless":
        return chains.noise[:, None]
    return np.stack([np.ones(len(chains.length)), chains.length], axis=1)


def estimate(
    problems: NDArray[np.int64],
    first: Chains,
    timed: Chains,
    drawn: NDArray[np.int64],
    strata: NDArray[np.int64],
    model: str,
) -> TwoPhaseMean:
    """Return the estimate from the chains of all samples (`first`) and from the timed chains of the samples `drawn`."""
    folds = (problems[drawn] * 7919) % FOLDS  # all samples of a problem are in one fold
    _, folds = np.unique(folds, return_inverse=True)
    known, of_all = causes(timed, model), causes(first, model)
    predicted, own = [], np.zeros(len(drawn))
    for fold in range(int(folds.max()) + 1):
        others = folds != fold if (folds != fold).any() else folds == fold
        if model == "wrong":
            everything, here = 2 * first.length, 2 * timed.length[folds == fold]
        else:
            speeds = np.linalg.lstsq(known[others], timed.seconds[others], rcond=None)[0]
            everything, here = of_all @ speeds, known[folds == fold] @ speeds
        predicted.append(everything)
        own[folds == fold] = here
    return two_phase_mean(
        Predicted(np.array(predicted), problems, strata),
        Measured(timed.seconds, own, folds.astype(np.int64), problems[drawn], strata[drawn]),
    )


def choose(
    problems: NDArray[np.int64], chains: Chains, number: int, seed: str
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the indices of the samples to time, and the stratum of every sample."""
    ended = [
        Ended(str(i), str(problem % LEVELS), int(1000 * length))
        for i, (problem, length) in enumerate(zip(problems, chains.length, strict=True))
    ]
    found = draw(ended, number, seed)
    strata = np.zeros(len(problems), dtype=np.int64)
    for one in found:
        strata[int(one.sample_id)] = one.stratum
    return np.array([int(one.sample_id) for one in found if one.is_timed]), strata


def full(problems: NDArray[np.int64], chains: Chains) -> Floats:
    """Return the mean time of each problem's chains (n,)."""
    return np.asarray(np.bincount(problems, chains.seconds) / np.bincount(problems))


def log_width(interval: Interval) -> float:
    """Return the width of an interval on the log scale; NaN without an interval."""
    return (
        float("nan") if interval.low is None or interval.high is None else float(np.log(interval.high / interval.low))
    )


def repetition(
    n: int, k: int, number: int, model: str, skew: float, rng: np.random.Generator
) -> tuple[list[Interval], list[Interval], list[float]]:
    """Return the estimated intervals of mean and ratio, those of the full measurement, and the two estimates."""
    problems = np.tile(np.arange(n), k)
    lengths = rng.normal(0, skew * 0.75, n)
    between = 0.18 if model == "rough" else 0.03
    plain = Method(lengths, rng.normal(0, between, n))
    fast = Method(lengths - 0.7 + rng.normal(0, 0.3, n), rng.normal(0, between, n))
    found, measured = [], []
    for name, method in (("plain", plain), ("fast", fast)):
        first = method.chains(problems, skew * 0.66, model, rng)
        drawn, strata = choose(problems, first, number, f"{name} {rng.integers(1 << 62)}")
        found.append(
            estimate(problems, first, method.chains(problems[drawn], skew * 0.66, model, rng), drawn, strata, model)
        )
        measured.append(full(problems, method.chains(problems, skew * 0.66, model, rng)))
    own = [mean_interval(found[0], resamples=RESAMPLES), two_phase_ratio(found[0], found[1], resamples=RESAMPLES)]
    whole = [bootstrap_t(measured[0], other, resamples=RESAMPLES, is_log=True) for other in (np.ones(n), measured[1])]
    return own, whole, [interval.estimate for interval in own]


def truth(model: str, skew: float) -> tuple[float, float]:
    """Return the true mean and the true ratio, from the moments of the log-normal distribution."""
    beside, lengths = (0.18 if model == "rough" else 0.03), (skew * 0.75) ** 2 + (skew * 0.66) ** 2
    noise = float(np.exp(beside**2 / 2))
    plain = (0.02 + np.exp(lengths / 2) * noise) * noise
    fast = (0.02 + np.exp(-0.7 + (lengths + 0.3**2) / 2) * noise) * noise
    return float(plain), float(plain / fast)


def cell(design: str, number: int, model: str, skew: float, repetitions: int) -> tuple[str, list[float], list[float]]:
    """Return a cell of the table, the coverage of mean and ratio, and their median widths relative to the full
    measurement's.
    """
    n, k = DESIGNS[design]
    rng = np.random.default_rng([n, k, number, MODELS.index(model), int(10 * skew)])
    true = truth(model, skew)
    hits, whole_hits, widths, estimates = np.zeros(2), np.zeros(2), [], []
    for _ in range(repetitions):
        own, whole, values = repetition(n, k, number, model, skew, rng)
        hits += [is_in(interval, value) for interval, value in zip(own, true, strict=True)]
        whole_hits += [is_in(interval, value) for interval, value in zip(whole, true, strict=True)]
        widths.append([log_width(a) / log_width(b) for a, b in zip(own, whole, strict=True)])
        estimates.append(values)
    rates, wide = hits / repetitions, np.nanmedian(np.array(widths), axis=0)
    bias = np.nanmean(np.array(estimates), axis=0) / true - 1
    text = " / ".join(
        f"{100 * r:.1f} ({100 * w:.1f}), × {x:.2f}, {100 * b:+.1f} %"
        for r, w, x, b in zip(rates, whole_hits / repetitions, wide, bias, strict=True)
    )
    return text, list(rates), list(wide)


def is_in(interval: Interval, value: float) -> bool:
    """Return whether an interval contains a value."""
    return interval.low is not None and interval.high is not None and interval.low <= value <= interval.high


def table(designs: Sequence[str], skew: float, repetitions: int, numbers: Sequence[int] = TIMED) -> Iterator[str]:
    """Yield the lines of a Markdown table."""
    yield "| samples, model | " + " | ".join(f"M {number}" for number in numbers) + " |"
    yield "|---" * (len(numbers) + 1) + "|"
    for design in designs:
        n, k = DESIGNS[design]
        for model in MODELS:
            cells = [cell(design, m, model, skew, repetitions)[0] if m <= n * k else "" for m in numbers]
            yield f"| {design}, {model} | " + " | ".join(cells) + " |"


@click.command()
@click.option("--repetitions", type=click.IntRange(10), default=1000, show_default=True)
@click.option(
    "--skew",
    type=float,
    multiple=True,
    default=(0.7, 1.0),
    show_default=True,
    help="Standard deviation of a chain's log-length; can be repeated.",
)
@click.option("--design", type=click.Choice(list(DESIGNS)), multiple=True, default=tuple(DESIGNS))
def main(repetitions: int, skew: tuple[float, ...], design: tuple[str, ...]) -> None:
    """Print the tables of tools/simulate/README.md for the mean and the ratio: coverage (that of the full measurement
    in parentheses), median width relative to the full measurement, and relative bias."""
    for spread in skew:
        click.echo(f"\nStandard deviation of a chain's log-length {spread}:\n")
        for line in table(design, spread, repetitions):
            click.echo(line)


if __name__ == "__main__":
    main()
