"""The levels of several looks, and the allocation of samples, against full integration and enumeration."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import special, stats

from tests.warehouse.simulate_skew import MARGIN, POPULATIONS
from tests.warehouse.simulate_waves import ALLOCATIONS, by_its_own, by_population, by_rule, by_the_other, looks, used
from warehouse.statistics import bounded
from warehouse.statistics.allocation import allocated, variances
from warehouse.statistics.group_sequential import (
    ERROR_RATE,
    KIND,
    USUAL_LEVEL,
    adjusted_p,
    interval_level,
    levels,
    named,
    spending,
)

SHARES = (0.25, 0.5, 0.75, 1.0)


def crossed(shares: tuple[float, ...], correlation: np.ndarray) -> float:
    """Chance that a bound is crossed at any look, by integration of the joint distribution."""
    bounds = -special.ndtri(np.array(levels(shares)))
    return 1 - float(stats.multivariate_normal(cov=correlation, seed=1, abseps=1e-6, maxpts=400_000).cdf(bounds))


def correlations(variances_of_means: np.ndarray) -> np.ndarray:
    """Correlation of means that grow: the later one's variance over the earlier one's, as a root."""
    both = variances_of_means, variances_of_means
    return np.asarray(np.sqrt(np.minimum.outer(*both) / np.maximum.outer(*both)))


@pytest.mark.parametrize("shares", [SHARES, (1.0,), (0.5, 1.0), (0.1, 0.9, 1.0)])
def test_a_bound_is_crossed_at_any_look_in_the_error_rate(shares: tuple[float, ...]) -> None:
    assert crossed(shares, correlations(1 / np.array(shares))) == pytest.approx(ERROR_RATE, abs=2e-5)


@pytest.mark.parametrize("between", [0.05, 0.5, 5.0])
def test_problems_that_differ_make_it_rarer(between: float) -> None:
    assert crossed(SHARES, correlations(between + 1 / np.array(SHARES))) < ERROR_RATE


def test_every_look_spends_what_the_spending_function_says() -> None:
    for number in range(1, len(SHARES) + 1):
        bounds = -special.ndtri(np.array(levels(SHARES)[:number]))
        shares = np.array(SHARES[:number])
        joint = stats.multivariate_normal(cov=correlations(1 / shares), seed=1, abseps=1e-6, maxpts=400_000)
        assert 1 - joint.cdf(bounds) == pytest.approx(spending(SHARES[number - 1]), abs=2e-5)


def test_a_single_look_has_the_usual_interval() -> None:
    assert interval_level((16,), 1) == pytest.approx(USUAL_LEVEL)


def test_an_interval_of_several_looks_is_wider_and_says_so() -> None:
    values = np.array([0.0, 0.25, 0.5, 1.0, 1.0, 0.75, 0.5])
    level = interval_level((4, 8, 12, 16), 1)
    usual, of_look = bounded.accuracy(values), named(bounded.accuracy(values, level), level)
    assert of_look.low is not None
    assert usual.low is not None
    assert of_look.low < usual.low
    assert (usual.kind, of_look.kind) == (bounded.KIND, KIND)
    assert named(usual, USUAL_LEVEL) == usual


def test_an_adjusted_p_value_agrees_with_its_interval() -> None:
    rng = np.random.default_rng(3)
    level = interval_level((4, 8, 12, 16), 2)
    for shift in (0.0, 0.1, 0.2, 0.3):
        differences = np.clip(rng.normal(shift, 0.3, 40), -1, 1)
        interval = bounded.paired_difference(differences, np.zeros(40), level)
        assert interval.low is not None
        assert interval.high is not None
        has_zero = interval.low <= 0 <= interval.high
        assert (adjusted_p(bounded.which_is_better(differences), level) >= 0.05) == has_zero


def test_samples_are_allocated_as_well_as_any_numbers_can_be() -> None:
    variance, least, total, most = np.array([0.25, 0.05, 0.16, 0.01]), np.array([2, 2, 3, 2]), 16, 7
    found = allocated(variance, least, total, most)
    every = [
        numbers
        for numbers in itertools.product(range(most + 1), repeat=4)
        if sum(numbers) == total and (np.array(numbers) >= least).all()
    ]
    best = min(float(np.sum(variance / np.array(numbers))) for numbers in every)
    assert found.sum() == total
    assert (found >= least).all()
    assert (found <= most).all()
    assert float(np.sum(variance / found)) == pytest.approx(best)


def test_an_allocation_keeps_its_bounds_where_the_total_does_not() -> None:
    variance, least = np.full(3, 0.25), np.array([4, 4, 4])
    assert allocated(variance, least, 10, 16).tolist() == [4, 4, 4]
    assert allocated(variance, least, 100, 5).tolist() == [5, 5, 5]


def test_a_problem_that_was_always_solved_may_still_differ() -> None:
    assert (variances(np.array([0, 4, 2]), np.array([4, 4, 4])) > 0).all()


def test_the_rule_keeps_its_error_rate_and_only_a_run_s_own_samples_bias_its_allocation() -> None:
    """A small piece of simulate_waves.py, whose tables are in warehouse/statistics/README.md."""
    repetitions = 300
    found = looks(POPULATIONS["symmetric, easy"], 100, -MARGIN, repetitions)
    for wrong in found.stopped(used())[:2]:
        assert wrong[:, -1].mean() <= ERROR_RATE + 3 * (ERROR_RATE / repetitions) ** 0.5
    bias = {
        allocation: looks(POPULATIONS["symmetric, easy"], 100, 0.0, repetitions, allocation).bias[:, 1]
        for allocation in (by_the_other, by_its_own)
    }
    error = bias[by_its_own].std() / repetitions**0.5
    assert abs(bias[by_the_other].mean()) < 3 * error
    assert (bias[by_its_own] - bias[by_the_other]).mean() > 0.0005


def test_every_table_has_a_line_for_everything_simulated() -> None:
    lines = list(by_population([5], 2))
    assert len(lines) == 2 + len(POPULATIONS)
    assert len({line.count("|") for line in lines}) == 1
    assert len({line.count("|") for line in by_rule([5], 2)}) == 1
    assert len(ALLOCATIONS) == 3
