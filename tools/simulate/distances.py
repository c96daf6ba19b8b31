"""How often the interval of the distance from the target covers it: `python -m tools.simulate.distances`.

Chains of made-up problems with known nats per token, through warehouse.statistics.intervals.mean_t on the paired
differences of problem means, as warehouse/estimates.py computes them.
"""

from __future__ import annotations

import numpy as np

from warehouse.statistics.intervals import Floats, mean_t

_REPETITIONS = 4000
_SIZES = ((10, 1), (30, 1), (30, 16), (40, 4), (100, 1), (100, 4), (500, 4))
"""Problems and samples per problem."""
_LEVEL, _PROBLEM_SD, _SAMPLE_SD = 0.5, 0.4, 0.3
"""Median nats per token of the target's own chains; standard deviations of logarithms over problems and samples."""
_CASES = ("no difference", "30 % more, log-normal", "3 nats more on 5 % of problems", "3 nats more on 1 % of chains")


def chains(rng: np.random.Generator, n: int, k: int, case: str) -> tuple[Floats, Floats]:
    """Return the nats per token of the run's and the baseline's chains, shapes (n, k)."""
    level = np.log(_LEVEL) + _PROBLEM_SD * rng.standard_normal((n, 1))
    own, base = (np.exp(level + _SAMPLE_SD * rng.standard_normal((n, k))) for _ in range(2))
    if case == _CASES[1]:
        own *= np.exp(np.log(1.3) + 0.3 * rng.standard_normal((n, 1)))
    elif case == _CASES[2]:
        own += 3.0 * (rng.random((n, 1)) < 0.05)
    elif case == _CASES[3]:
        own += 3.0 * (rng.random((n, k)) < 0.01)
    return own, base


def truth(case: str) -> float:
    """Return the true distance."""
    mean = _LEVEL * np.exp((_PROBLEM_SD**2 + _SAMPLE_SD**2) / 2)
    return float(
        {_CASES[0]: 0.0, _CASES[1]: mean * (1.3 * np.exp(0.3**2 / 2) - 1), _CASES[2]: 0.15, _CASES[3]: 0.03}[case]
    )


def coverage(n: int, k: int, case: str, repetitions: int = _REPETITIONS) -> tuple[float, float]:
    """Return the shares of intervals that cover the true distance, and that lie wholly below it."""
    rng, covered, below = np.random.default_rng([n, k, _CASES.index(case)]), 0, 0
    for _ in range(repetitions):
        own, base = chains(rng, n, k, case)
        interval = mean_t(own.mean(axis=1) - base.mean(axis=1))
        assert interval.low is not None
        assert interval.high is not None
        covered += interval.low <= truth(case) <= interval.high
        below += interval.high < truth(case)
    return covered / repetitions, below / repetitions


def main() -> None:
    """Print a table."""
    print("| distance: nominal 95 % | " + " | ".join(f"n {n}, k {k}" for n, k in _SIZES) + " |")
    print("|---" * (len(_SIZES) + 1) + "|")
    for case in _CASES:
        cells = [coverage(n, k, case) for n, k in _SIZES]
        print(f"| {case} | " + " | ".join(f"{100 * c:.1f} ({100 * b:.1f})" for c, b in cells) + " |", flush=True)


if __name__ == "__main__":
    main()
