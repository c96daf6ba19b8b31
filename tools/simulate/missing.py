"""How often a method that is worse by exactly the margin is shown to be "not worse" if its longest chains are missing.

    python -m tools.simulate.missing

The method loses the whole margin in a tenth of the problems, whose chains are the longest: they finish last and are
missing first. Each row is a share of missing samples. `there`: over the available samples, as if the missing ones were
missing at random. `worst`: with missing samples counted as wrong, as compare does if the completeness is at least
LEAST_COMPLETENESS. The goal is 2.5 %. `refused`: compare makes no statement.
"""

from __future__ import annotations

import click
import numpy as np

from warehouse.comparison.outcomes import LEAST_COMPLETENESS
from warehouse.statistics import bounded

N, K, MARGIN, REPETITIONS = 198, 16, 0.02, 400
HARD = N // 10
ALPHA = 0.025


def shown(missing_share: float, seed: int = 0) -> tuple[float, float]:
    """Return how often non-inferiority is shown over the available samples, and how often in the worst case."""
    random = np.random.default_rng(seed)
    num_missing = round(missing_share * N * K)
    counts = np.zeros(2)
    for _ in range(REPETITIONS):
        solved = random.beta(4, 1, N)
        lost = np.zeros(N)
        lost[:HARD] = MARGIN * N / HARD
        solved = np.clip(solved, lost, 1)
        base = random.random((N, K)) < solved[:, None]
        run = random.random((N, K)) < (solved - lost)[:, None]
        is_there = np.ones((N, K), dtype=bool)
        is_there.flat[:num_missing] = False  # samples of the hard problems, which come first
        there = [(run[i][is_there[i]].mean() - base[i][is_there[i]].mean()) for i in range(N) if is_there[i].any()]
        worst = (run & is_there).mean(axis=1) - base.mean(axis=1)
        for place, differences in enumerate((np.array(there), worst)):
            p = bounded.worst_case(differences, np.zeros(len(differences)), MARGIN).p
            counts[place] += p is not None and p < ALPHA
    return float(counts[0] / REPETITIONS), float(counts[1] / REPETITIONS)


@click.command()
def main() -> None:
    """Print how often a run with missing samples is wrongly shown to be not worse."""
    print("missing  there   worst   compare")
    for missing in (0.0, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1):
        there, worst = shown(missing)
        said = "refused" if 1 - missing < LEAST_COMPLETENESS else f"{100 * worst:.1f} %"
        print(f"{100 * missing:5.1f} %  {100 * there:5.1f} %  {100 * worst:4.1f} %  {said}")


if __name__ == "__main__":
    main()
