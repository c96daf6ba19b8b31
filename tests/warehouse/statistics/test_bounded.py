"""The mean of bounded values against beta quantiles and drawn weights."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from warehouse.statistics.bounded import SMALLEST_P, chance_below, worst_case

SIXTEENTHS = st.lists(st.integers(-16, 16), min_size=2, max_size=60).map(lambda steps: np.array(steps) / 16)


@pytest.mark.parametrize(("lost", "n"), [(0, 5), (3, 30), (1, 198), (250, 500)])
def test_where_problems_are_lost_entirely_or_not_at_all_the_lower_end_is_a_beta_quantile(lost: int, n: int) -> None:
    interval = worst_case(np.zeros(n), np.array([1.0] * lost + [0.0] * (n - lost)), 0.02)
    assert interval.low == pytest.approx(-stats.beta.ppf(0.975, lost + 0.5, n - lost), abs=1e-8)


def test_with_a_whole_pseudo_problem_it_is_clopper_and_pearsons_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warehouse.statistics.bounded.PSEUDO_WEIGHT", 1.0)
    values = np.array([1.0] * 4 + [0.0] * 26)
    expected = stats.binomtest(4, 30).proportion_ci(0.95, "exact")
    assert chance_below(values, expected.low, 0.0) == pytest.approx(0.025, abs=1e-9)
    assert 1 - chance_below(values, expected.high, 1.0) == pytest.approx(0.025, abs=1e-9)


@pytest.mark.parametrize("n", [2, 30, 300])
def test_the_computed_chance_is_that_of_drawn_weights(n: int) -> None:
    rng = np.random.default_rng(n)
    values = np.clip(rng.normal(0.02, 0.2, n), -1, 1)
    weights = np.column_stack([rng.standard_gamma(1, (20_000, n)), rng.standard_gamma(0.5, 20_000)])
    means = weights @ np.append(values, -1.0) / weights.sum(axis=1)
    for value in np.quantile(means, [0.02, 0.3, 0.9]):
        assert chance_below(values, float(value), -1.0) == pytest.approx(np.mean(means <= value), abs=0.015)


@given(SIXTEENTHS, st.floats(0.005, 0.5))
@settings(max_examples=20, deadline=None)
def test_interval_and_p_agree_and_the_interval_turns_with_the_order_of_the_methods(
    differences: np.ndarray[tuple[int], np.dtype[np.float64]], margin: float
) -> None:
    zeros = np.zeros(len(differences))
    found, turned = worst_case(differences, zeros, margin), worst_case(zeros, differences, margin)
    assert found.low is not None
    assert found.high is not None
    assert found.p is not None
    assert turned.low == pytest.approx(-found.high, abs=1e-7)
    assert found.low <= found.estimate <= found.high
    if abs(found.low + margin) > 1e-7:
        assert (found.p < 0.025) == (found.low > -margin)


def test_few_problems_without_any_difference_do_not_show_that_a_method_is_not_worse() -> None:
    """Of 30 problems so many may be lost entirely without one of them being drawn."""
    for n, is_shown in ((30, False), (124, False), (125, True)):
        p = worst_case(np.zeros(n), np.zeros(n), 0.02).p
        assert p is not None
        assert (p < 0.025) is is_shown


def test_a_single_problem_shows_nothing_and_no_p_value_is_zero() -> None:
    alone = worst_case(np.array([0.5]), np.array([0.0]), 0.02)
    assert (alone.low, alone.p) == (None, None)
    assert worst_case(np.full(500, 0.9), np.zeros(500), 0.02).p == SMALLEST_P


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
