"""Intervals against scipy, closed forms and counting."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from warehouse.statistics.intervals import accuracy, mean_t, paired_difference, rerun_standard_error
from warehouse.statistics.paired import non_inferiority
from warehouse.statistics.ratios import geometric_mean_ratio

ANSWERS = st.lists(st.integers(0, 1), min_size=3, max_size=40)


def test_the_t_interval_is_scipys() -> None:
    values = np.array([0.0, 0.25, 0.5, 1.0, 1.0, 0.75])
    interval = mean_t(values)
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high))
    assert interval.standard_error == pytest.approx(stats.sem(values))


def test_one_problem_has_no_interval() -> None:
    interval = mean_t(np.array([0.5]))
    assert (interval.estimate, interval.low, interval.standard_error) == (0.5, None, None)
    assert paired_difference(np.array([1.0]), np.array([0.5]), 0.5).low is None
    assert geometric_mean_ratio(np.array([2.0]), np.array([1.0])).low is None


@pytest.mark.parametrize(("correct", "n"), [(3, 10), (12, 12), (0, 30), (29, 30)])
def test_yes_or_no_answers_get_the_interval_of_a_beta_posterior(correct: int, n: int) -> None:
    """Counted on a grid: the posterior under a flat prior is the likelihood itself."""
    interval = accuracy(np.array([1.0] * correct + [0.0] * (n - correct)))
    grid = (np.arange(100_000) + 0.5) / 100_000
    cumulative = np.cumsum(stats.binom.pmf(correct, n, grid))
    low, high = np.interp([0.025, 0.975], cumulative / cumulative[-1], grid)
    assert (interval.low, interval.high) == pytest.approx((min(low, correct / n), max(high, correct / n)), abs=1e-4)


def test_an_accuracy_interval_stays_within_0_and_1_and_is_nearly_t_far_from_them() -> None:
    near_one = accuracy(np.array([1.0] * 30 + [0.5]))
    assert near_one.low is not None
    assert near_one.low < near_one.estimate < 1
    assert near_one.high == 1
    values = np.random.default_rng(2).uniform(0, 1, 400)
    interval, t = accuracy(values), mean_t(values)
    assert (interval.low, interval.high) == pytest.approx((t.low, t.high), abs=0.002)
    assert interval.standard_error == t.standard_error


def test_where_enough_problems_differ_the_paired_interval_is_t() -> None:
    first, second = np.random.default_rng(3).uniform(0, 1, (2, 30))
    interval, t = paired_difference(first, second, 1 / 16), mean_t(first - second)
    assert (interval.low, interval.high, interval.kind) == (t.low, t.high, "t")


def test_equal_results_on_few_problems_do_not_prove_equality() -> None:
    interval = paired_difference(np.ones(30), np.ones(30), 1.0)
    assert interval.estimate == 0
    assert interval.low is not None
    assert interval.low < -0.05
    p = non_inferiority(interval, 0.02)
    assert p is not None
    assert p > 0.025


@given(st.integers(0, 2), st.integers(0, 2), st.integers(2, 60))
def test_where_few_answers_differ_the_paired_interval_is_bonett_and_prices(gained: int, lost: int, same: int) -> None:
    n = gained + lost + same
    a, b = np.array([1.0] * gained + [0.0] * (lost + same)), np.array([0.0] * gained + [1.0] * lost + [0.0] * same)
    up, down = (gained + 1) / (n + 2), (lost + 1) / (n + 2)
    variance = (up + down - (up - down) ** 2) / (n + 1)  # theirs has z and n + 2; this one t with n + 1 degrees
    half = stats.t.ppf(0.975, n + 1) * variance**0.5
    interval = paired_difference(a, b, 1.0)
    assert (interval.low, interval.high) == pytest.approx((max(-1, up - down - half), min(1, up - down + half)))


@given(ANSWERS, ANSWERS, st.floats(0.001, 0.5))
def test_non_inferior_means_that_the_interval_lies_above_the_margin(
    first: list[int], second: list[int], margin: float
) -> None:
    n = min(len(first), len(second))
    interval = paired_difference(np.array(first[:n]) / 2, np.array(second[:n]) / 2, 0.5)
    p = non_inferiority(interval, margin)
    assert p is not None
    assert interval.low is not None
    if abs(interval.low + margin) > 1e-9 and interval.low > -1:
        assert (p < 0.025) == (interval.low > -margin)


def test_rerun_noise_is_the_noise_of_the_samples_within_problems() -> None:
    samples = np.array([[1, 0, 1, 1], [0, 0, 0, 1], [1, 1, 1, 1]])
    within = [np.var(row, ddof=1) / 4 for row in samples]
    expected = float(np.sqrt(np.sum(within))) / 3
    assert rerun_standard_error(samples.sum(axis=1), np.full(3, 4)) == pytest.approx(expected)
    assert rerun_standard_error(np.array([1, 0]), np.array([1, 1])) is None


def test_a_ratio_of_times_is_the_geometric_mean_and_its_interval_turns_with_it() -> None:
    rng = np.random.default_rng(3)
    slow, fast = np.exp(rng.normal(2.0, 0.6, 60)), np.exp(rng.normal(1.5, 0.6, 60))
    interval, turned = geometric_mean_ratio(slow, fast), geometric_mean_ratio(fast, slow)
    assert interval.estimate == pytest.approx(stats.gmean(slow / fast))
    assert turned.estimate == pytest.approx(1 / interval.estimate)
    assert turned.low == pytest.approx(1 / (interval.high or 0), rel=0.01)
    assert geometric_mean_ratio(slow, fast) == interval


def test_on_normal_logarithms_the_bootstrap_agrees_with_scipys_and_with_t() -> None:
    rng = np.random.default_rng(4)
    logs = rng.normal(0.3, 0.5, 200)
    interval = geometric_mean_ratio(np.exp(logs), np.ones(200))
    bca = stats.bootstrap((logs,), np.mean, rng=np.random.default_rng(0)).confidence_interval
    t = mean_t(logs)
    assert (interval.low, interval.high) == pytest.approx((np.exp(bca.low), np.exp(bca.high)), rel=0.01)
    assert (interval.low, interval.high) == pytest.approx((np.exp(t.low or 0), np.exp(t.high or 0)), rel=0.01)


def test_a_ratio_needs_positive_times() -> None:
    with pytest.raises(ValueError, match="positive times"):
        geometric_mean_ratio(np.array([1.0, 0.0]), np.array([1.0, 1.0]))


def test_equal_ratios_have_an_interval_of_no_width() -> None:
    interval = geometric_mean_ratio(np.full(8, 3.0), np.full(8, 2.0))
    assert (interval.low, interval.high) == pytest.approx((1.5, 1.5))


def test_ratios_that_differ_by_rounding_alone_have_an_interval_of_no_width() -> None:
    times = 1 + np.arange(12) / 10
    interval = geometric_mean_ratio(20 * times, 13 * times)
    assert interval.standard_error != 0
    assert (interval.low, interval.high) == pytest.approx((20 / 13, 20 / 13))
