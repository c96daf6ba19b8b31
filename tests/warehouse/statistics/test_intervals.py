"""Intervals against scipy, closed forms and counting."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from statsmodels.api import OLS
from statsmodels.stats.proportion import proportion_confint

from warehouse.statistics.intervals import clustered, mean, mean_on_these, mean_t, rerun_standard_error


def test_the_t_interval_is_scipys() -> None:
    values = np.array([0.0, 0.25, 0.5, 1.0, 1.0, 0.75])
    interval = mean_t(values)
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high))
    assert interval.standard_error == pytest.approx(stats.sem(values))


def test_rerun_noise_is_the_noise_of_the_samples_within_problems() -> None:
    samples = np.array([[1, 0, 1, 1], [0, 0, 0, 1], [1, 1, 1, 1]])
    within = [np.var(row, ddof=1) / 4 for row in samples]
    expected = float(np.sqrt(np.sum(within))) / 3
    assert rerun_standard_error(samples.sum(axis=1), np.full(3, 4)) == pytest.approx(expected)
    found = mean_on_these(samples.sum(axis=1), np.full(3, 4))
    assert found is not None
    assert (found.low, found.high) == pytest.approx((2 / 3 - 1.959964 * expected, 2 / 3 + 1.959964 * expected))
    assert mean_on_these(np.array([1, 0]), np.array([1, 1])) is None


@pytest.mark.parametrize(("correct", "n"), [(1, 1), (3, 10), (12, 12), (0, 30), (29, 30)])
def test_an_accuracy_of_yes_or_no_answers_has_wilsons_interval(correct: int, n: int) -> None:
    found = mean(np.array([1.0] * correct + [0.0] * (n - correct)))
    assert (found.low, found.high) == pytest.approx(proportion_confint(correct, n, method="wilson"), abs=1e-12)
    assert found.kind == "Wilson"


def test_wilsons_interval_with_the_effective_number_is_nearly_t_far_from_0_and_1() -> None:
    values = np.random.default_rng(2).uniform(0, 1, 400)
    found, t = mean(values), mean_t(values)
    assert (found.low, found.high) == pytest.approx((t.low, t.high), abs=0.002)
    with pytest.raises(ValueError, match="not between 0 and 1"):
        mean(np.array([0.5, 1.5]))


def test_equal_families_have_the_clustered_error_of_statsmodels_and_one_degree_less_than_families() -> None:
    rng, numbers = np.random.default_rng(1), np.repeat(np.arange(12), 4)
    values = rng.normal(0, 1, 12)[numbers] + rng.normal(0, 1, 48)
    expected = OLS(values, np.ones(48)).fit(cov_type="cluster", cov_kwds={"groups": numbers}, use_t=True)
    found = mean_t(values, [f"family {number}" for number in numbers])
    assert found.standard_error == pytest.approx(expected.bse[0])
    assert (found.low, found.high) == pytest.approx(tuple(expected.conf_int()[0]))
    assert found.estimate == pytest.approx(values.mean())
    assert (found.families, found.degrees) == (12, 11)


def test_unequal_families_leave_the_estimate_and_are_left_out_one_at_a_time() -> None:
    rng, numbers = np.random.default_rng(2), np.repeat(np.arange(11), np.arange(1, 12))
    values = rng.uniform(0, 1, 66)
    found = clustered(values, np.ones(66), [str(number) for number in numbers])
    left = np.array([values[numbers != number].mean() for number in range(11)])
    assert found.estimate == pytest.approx(values.mean())
    assert found.error == pytest.approx((10 / 11 * ((left - values.mean()) ** 2).sum()) ** 0.5)
    assert found.degrees == pytest.approx(66**2 / (np.arange(1, 12) ** 2).sum() - 1)
    interval = mean(values, [str(number) for number in numbers])
    assert interval.low is not None
    assert interval.high is not None
    assert interval.low < found.estimate < interval.high


def test_problems_without_a_family_stand_alone_and_few_families_have_no_interval() -> None:
    values = np.random.default_rng(3).uniform(0, 1, 40)
    assert mean(values, [None] * 40) == mean(values, list("abcdefghijklmnopqrstuvwxyz0123456789ABCD")) == mean(values)
    assert clustered(values, np.ones(40), ["a", "a", *[None] * 38]).families == 39
    found = mean_t(values, ["a", "b", "c", "d"] * 10)
    assert found.estimate == pytest.approx(values.mean())
    assert (found.low, found.families) == (None, 4)
