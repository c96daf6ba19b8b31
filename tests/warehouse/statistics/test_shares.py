"""Intervals of sums over sums: against an independent computation, at the ends, and by how often they hold."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from tools.simulate.populations import Verdicts
from warehouse.statistics.shares import auroc, correlation, on_logit, rate


def test_on_the_logit_an_interval_stays_between_0_and_1() -> None:
    found = on_logit(0.9, 0.1, 5)
    half = stats.t(5).ppf(0.975) * 0.1 / 0.09
    assert found.low == pytest.approx(1 / (1 + np.exp(half - np.log(9))))
    assert found.high == pytest.approx(1 / (1 + np.exp(-half - np.log(9))))
    almost_all = (1 - 2**-52, 1.3e-16, 5.0)  # 1, from the shares of ten problems
    unknown = ((0.7, float("nan"), 5.0), (0.7, 0.1, float("nan")))
    for area, error, degrees in ((1.0, 0.1, 5.0), (0.5, 0.0, 5.0), almost_all, *unknown):
        assert on_logit(area, error, degrees).low is None


def test_the_correlation_is_pearsons_and_its_error_the_jackknifes() -> None:
    rng = np.random.default_rng(1)
    steps = [rng.normal(size=(2, 6)) for _ in range(9)]
    sums = np.array([[6, *s.sum(axis=1), s[0] @ s[1], s[0] @ s[0], s[1] @ s[1]] for s in steps])
    found = correlation(sums)
    assert found is not None
    assert found.estimate == pytest.approx(np.corrcoef(np.concatenate(steps, axis=1))[0, 1])
    parts = [np.corrcoef(np.concatenate(steps[:i] + steps[i + 1 :], axis=1))[0, 1] for i in range(9)]
    assert found.standard_error == pytest.approx(np.sqrt(8 * np.var(parts)))
    assert correlation(np.ones((3, 6))) is None


def test_steps_of_a_family_are_left_out_together() -> None:
    sums = np.random.default_rng(2).uniform(1, 2, (40, 6)) * [4, 1, 1, 1, 9, 9]
    family = [str(place // 2) for place in range(40)]
    found, joined = correlation(sums, family), correlation(sums[::2] + sums[1::2])
    assert found is not None
    assert joined is not None
    assert (found.low, found.high, found.families) == pytest.approx((joined.low, joined.high, 20))
    few = correlation(sums, [str(place % 9) for place in range(40)])
    assert few is not None
    assert few.low is None


def test_a_rate_is_the_sum_over_the_sum_with_problems_left_out_one_at_a_time() -> None:
    rng = np.random.default_rng(1)
    y = rng.integers(0, 30, 60).astype(float)
    x = rng.binomial(y.astype(int), 0.3).astype(float)
    found = rate(x, y)
    kept = np.flatnonzero(y)
    left = np.array([(x.sum() - x[one]) / (y.sum() - y[one]) for one in kept])
    error = ((len(kept) - 1) / len(kept) * ((left - x.sum() / y.sum()) ** 2).sum()) ** 0.5
    assert (found.estimate, found.standard_error) == pytest.approx((x.sum() / y.sum(), error))
    tokens = rate(x, y, is_part=False)
    half = stats.t(y.sum() ** 2 / (y**2).sum() - 1).ppf(0.975) * error
    assert (tokens.low, tokens.high) == pytest.approx((found.estimate - half, found.estimate + half))


def test_a_rate_that_one_problem_or_family_decides_has_no_interval() -> None:
    x, y = np.full(30, 2.0), np.full(30, 10.0)
    assert "12 %" in rate(np.append(x, 39.0), np.append(y, 40.0)).kind
    assert "13 %" in rate(x, y, ["a"] * 4 + [None] * 26).kind
    assert rate(np.zeros(30), y).high == pytest.approx(stats.t(29).ppf(0.975) ** 2 / (30 + stats.t(29).ppf(0.975) ** 2))
    assert np.isnan(rate(x * 0, y * 0).estimate)


def test_an_auroc_leaves_problems_out_one_at_a_time() -> None:
    drawn = Verdicts(np.random.default_rng(3), 25, 3, 0.0, (0.0, 0.8))
    rating, right, problem = drawn.rating, drawn.is_correct, drawn.problem

    def area(kept: NDArray[np.bool_]) -> float:
        wins = rating[kept & right][:, None] - rating[kept & ~right][None, :]
        return float(np.mean((np.sign(wins) + 1) / 2))

    found = auroc(rating, right, drawn.sample, problem)
    left = np.array([area(problem != one) for one in range(25)])
    assert found.estimate == pytest.approx(area(problem >= 0))
    assert found.standard_error == pytest.approx((24 / 25 * ((left - found.estimate) ** 2).sum()) ** 0.5)


def test_an_auroc_needs_ten_wrong_samples_on_five_problems() -> None:
    drawn = Verdicts(np.random.default_rng(3), 25, 3, 0.0)
    rating, right, sample, problem = drawn.rating, drawn.is_correct, drawn.sample, drawn.problem
    few = right | ~np.isin(sample, np.unique(sample[~right])[:9])
    assert np.isnan(auroc(rating, few, sample, problem).estimate)
    clumped = np.where(right, problem, problem % 4)
    assert np.isnan(auroc(rating, right, sample, clumped).estimate)
    assert np.isnan(auroc(rating, right, sample, problem, problem % 9).estimate)
    found, alone = auroc(rating, right, sample, problem, problem % 12), auroc(rating, right, sample, problem % 12)
    assert (found.low, found.families) == pytest.approx((alone.low, 12))
