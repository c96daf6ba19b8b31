"""A small piece of tests/warehouse/simulate_intervals.py; its whole table is in warehouse/statistics/README.md."""

from __future__ import annotations

import pytest

from tests.warehouse.simulate_accuracy import covers, draw, truth
from tests.warehouse.simulate_accuracy import table as accuracy_table
from tests.warehouse.simulate_intervals import SHARES, ratio_covers, ratio_of_means_covers, share, table

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


def test_the_table_has_a_line_for_everything_counted() -> None:
    lines = list(table(4, [(5, 2)]))
    assert len(lines) == 2 + len(SHARES) + 2
    assert {line.count("|") for line in lines} == {3}


def test_the_table_of_accuracies_has_a_line_for_every_set_and_number_of_samples() -> None:
    lines = list(accuracy_table(2, [5], [1, 2]))
    assert len(lines) == 2 + 4 * 2
    assert {line.count("|") for line in lines} == {4}
