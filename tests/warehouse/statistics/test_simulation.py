"""A small piece of tools/simulate/intervals.py; its whole table is in warehouse/statistics/README.md."""

from __future__ import annotations

import pytest

from tools.simulate.accuracy import covers, draw, truth
from tools.simulate.intervals import SHARES, ratio_covers, ratio_of_means_covers, share

REPETITIONS = 400
CASES = {
    **SHARES,
    "accuracy covers": (lambda rng, n, k, level: covers(draw(rng, level, n, k), truth(level)), 0.95),
    "ratio covers": (ratio_covers, 0.95),
    "ratio of means covers": (ratio_of_means_covers, 0.95),
}


@pytest.mark.parametrize("what", CASES)
def test_what_should_happen_so_often_does(what: str) -> None:
    """Within a point of the nominal share, and four standard errors of so few repetitions."""
    once, nominal = CASES[what]
    rate = share(once, (40, 4, 0.0), REPETITIONS)
    assert rate == pytest.approx(nominal, abs=0.01 + 4 * (nominal * (1 - nominal) / REPETITIONS) ** 0.5)
