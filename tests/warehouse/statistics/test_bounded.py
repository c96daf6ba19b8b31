"""The mean of bounded values against beta quantiles and drawn weights."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from warehouse.statistics.bounded import (
    SMALLEST_P,
    bounded_mean,
    chance_below,
    non_inferiority,
    paired_difference,
    problems_needed,
    smallest_margin,
    which_is_better,
    worst_case,
)
from warehouse.statistics.planning import minimum_detectable_effect

SIXTEENTHS = st.lists(st.integers(-16, 16), min_size=2, max_size=60).map(lambda steps: np.array(steps) / 16)


@pytest.mark.parametrize(("lost", "n"), [(0, 5), (3, 30), (1, 198), (250, 500)])
def test_where_problems_are_lost_entirely_or_not_at_all_the_lower_end_is_a_beta_quantile(lost: int, n: int) -> None:
    interval = paired_difference(np.zeros(n), np.array([1.0] * lost + [0.0] * (n - lost)))
    assert interval.low == pytest.approx(-stats.beta.ppf(0.975, lost + 0.5, n - lost), abs=1e-8)


def test_with_a_whole_pseudo_problem_it_is_clopper_and_pearsons_interval() -> None:
    values = np.array([1.0] * 4 + [0.0] * 26)
    expected = stats.binomtest(4, 30).proportion_ci(0.95, "exact")
    assert chance_below(values, expected.low, 0.0, weight=1.0) == pytest.approx(0.025, abs=1e-9)
    assert 1 - chance_below(values, expected.high, 1.0, weight=1.0) == pytest.approx(0.025, abs=1e-9)


@pytest.mark.parametrize("n", [2, 30, 300])
def test_the_computed_chance_is_that_of_drawn_weights(n: int) -> None:
    rng = np.random.default_rng(n)
    values = np.clip(rng.normal(0.02, 0.2, n), -1, 1)
    weights = np.column_stack([rng.standard_gamma(1, (20_000, n)), rng.standard_gamma(0.5, 20_000)])
    means = weights @ np.append(values, -1.0) / weights.sum(axis=1)
    for value in np.quantile(means, [0.02, 0.3, 0.9]):
        assert chance_below(values, float(value), -1.0) == pytest.approx(np.mean(means <= value), abs=0.015)


@given(SIXTEENTHS, st.floats(0.005, 0.5))
@settings(max_examples=60, deadline=None)
def test_interval_and_tests_agree_and_turn_with_the_order_of_the_methods(
    differences: np.ndarray[tuple[int], np.dtype[np.float64]], margin: float
) -> None:
    zeros = np.zeros(len(differences))
    interval, turned = paired_difference(differences, zeros), paired_difference(zeros, differences)
    assert interval.low is not None
    assert interval.high is not None
    assert turned.low == pytest.approx(-interval.high, abs=1e-7)
    assert interval.low <= interval.estimate <= interval.high
    p = non_inferiority(differences, margin)
    assert p is not None
    if abs(interval.low + margin) > 1e-7:
        assert (p < 0.025) == (interval.low > -margin)
    if min(abs(interval.low), abs(interval.high)) > 1e-7:
        assert (which_is_better(differences) < 0.05) == (not interval.low < 0 < interval.high)


def test_scores_that_rounding_moved_are_still_within_bounds() -> None:
    first = np.array([1.0 + 1e-15, 0.3, 0.1 + 0.2])
    interval = paired_difference(first, np.array([0.0, 0.3, 0.3]))
    assert interval.estimate == pytest.approx(1 / 3)
    assert interval.high is not None
    assert interval.high < 1
    with pytest.raises(ValueError, match="not between -1 and 1"):
        bounded_mean(np.array([1.5, 0.0]), -1, 1)


def test_few_problems_without_any_difference_do_not_show_non_inferiority() -> None:
    assert smallest_margin(30) == pytest.approx(0.081, abs=0.001)
    needed = problems_needed(0.02)
    for n, is_shown in ((30, False), (needed - 1, False), (needed, True)):
        p = non_inferiority(np.zeros(n), 0.02)
        assert p is not None
        assert (p < 0.025, smallest_margin(n) < 0.02) == (is_shown, is_shown)


def test_a_single_problem_shows_nothing_and_no_p_value_is_zero() -> None:
    assert (non_inferiority(np.array([0.5]), 0.02), which_is_better(np.array([0.5]))) == (None, 1.0)
    assert paired_difference(np.array([1.0]), np.array([0.5])).low is None
    assert which_is_better(np.full(500, 0.9)) == SMALLEST_P
    assert which_is_better(np.zeros(500)) == 1.0


def test_without_spread_or_with_one_problem_there_is_no_detectable_effect() -> None:
    assert minimum_detectable_effect(paired_difference(np.ones(30), np.ones(30)), 30) is None
    assert minimum_detectable_effect(paired_difference(np.ones(1), np.ones(1)), 1) is None


def test_the_worst_case_is_the_bounded_interval_of_problems_and_of_equal_families() -> None:
    rng = np.random.default_rng(6)
    first, second = rng.binomial(16, 0.8, 60) / 16, rng.binomial(16, 0.7, 60) / 16
    found, expected = worst_case(first, second, 0.02), paired_difference(first, second)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert found.p == pytest.approx(non_inferiority(first - second, 0.02))
    of_families = worst_case(first, second, 0.02, [str(place // 3) for place in range(60)])
    means = (first.reshape(20, 3).mean(axis=1), second.reshape(20, 3).mean(axis=1))
    expected = paired_difference(*means)
    assert (of_families.low, of_families.high) == pytest.approx((expected.low, expected.high))
    assert of_families.families == 20
    assert worst_case(first[:1], second[:1], 0.02).p is None


def test_the_worst_case_of_unequal_families_is_that_of_drawn_weights() -> None:
    rng, numbers = np.random.default_rng(7), np.repeat(np.arange(12), np.arange(1, 13))
    values = rng.uniform(-0.2, 0.3, 78)
    found = worst_case(values, np.zeros(78), 0.02, [str(number) for number in numbers])
    sizes = np.arange(1, 13) / 6.5
    means = np.array([values[numbers == number].mean() for number in range(12)])
    weights = np.column_stack([rng.standard_gamma(1, (40_000, 12)) * sizes, rng.standard_gamma(0.5, 40_000)])
    drawn = weights @ np.append(means, -1.0) / weights.sum(axis=1)
    assert found.low == pytest.approx(float(np.quantile(drawn, 0.025)), abs=0.01)
    assert found.p == pytest.approx(float(np.mean(drawn <= -0.02)), abs=0.01)
