"""Intervals, tests and shares against scipy, statsmodels, closed forms, drawn weights and counting."""

from __future__ import annotations

import itertools
from collections import Counter
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import optimize, stats
from statsmodels.api import OLS
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint

from tests.shared import known
from tools.simulate.populations import Verdicts
from warehouse.statistics.bounded import SMALLEST_P, chance_below, worst_case
from warehouse.statistics.intervals import clustered, mean, mean_on_these, mean_t, rerun_standard_error
from warehouse.statistics.paired import holm, on_these, paired, tango
from warehouse.statistics.samples import maj_at_k, pass_at_k
from warehouse.statistics.shares import auroc, correlation, on_logit, rate


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
    found = known(mean_on_these(samples.sum(axis=1), np.full(3, 4)))
    assert (found.low, found.high) == pytest.approx((2 / 3 - 1.959964 * expected, 2 / 3 + 1.959964 * expected))
    assert mean_on_these(np.array([1, 0]), np.array([1, 1])) is None
    assert known(mean_on_these(np.array([4, 0]), np.array([4, 4]))).low is None, "0 is no measured variation"


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
    assert known(interval.low) < found.estimate < known(interval.high)


def test_problems_without_a_family_stand_alone_and_few_families_have_no_interval() -> None:
    values = np.random.default_rng(3).uniform(0, 1, 40)
    assert mean(values, [None] * 40) == mean(values, list("abcdefghijklmnopqrstuvwxyz0123456789ABCD")) == mean(values)
    assert clustered(values, np.ones(40), ["a", "a", *[None] * 38]).families == 39
    found = mean_t(values, ["a", "b", "c", "d"] * 10)
    assert found.estimate == pytest.approx(values.mean())
    assert (found.low, found.families) == (None, 4)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_is_statsmodels(p_values: list[float]) -> None:
    with mock.patch("gc.collect"):  # multipletests collects all garbage each time, which takes a quarter of a second
        assert holm(p_values) == pytest.approx(multipletests(p_values, method="holm")[1])


def test_tangos_interval_is_the_published_one() -> None:
    """Airway hyper-responsiveness in Fagerland, Lydersen and Laake, Stat. Med. 33, 2014."""
    found = tango(1, 7, 21)
    assert (found.low, found.high) == pytest.approx((-0.517, -0.026), abs=5e-4)


@pytest.mark.parametrize(
    ("gained", "lost", "n"), [(9, 2, 30), (3, 3, 30), (0, 6, 40), (1, 0, 198), (0, 0, 30), (4, 0, 4)]
)
def test_tangos_ends_are_where_the_score_under_the_likeliest_share_is_the_quantile(
    gained: int, lost: int, n: int
) -> None:
    found, z = tango(gained, lost, n), stats.norm.ppf(0.975)
    for end in (known(found.low), known(found.high)):
        if abs(end) < 1 - 1e-9:
            most = optimize.minimize_scalar(  # the share of lost problems, of gained ones it is more by the difference
                lambda share, end=end: (
                    -(
                        stats.multinomial.logpmf(
                            [gained, lost, n - gained - lost], n, [share + end, share, max(0.0, 1 - 2 * share - end)]
                        )
                    )
                ),
                bounds=(max(0, -end), (1 - end) / 2),
                method="bounded",
                options={"xatol": 1e-12},
            )
            score = (gained - lost - n * end) / (n * (2 * most.x + end - end**2)) ** 0.5
            assert abs(score) == pytest.approx(z, abs=1e-3)
    expected = mcnemar([[0, gained], [lost, 0]], exact=False, correction=False).pvalue if gained + lost else 1.0
    assert found.p == pytest.approx(expected)
    assert (known(found.p) < 0.05) == (not known(found.low) <= 0 <= known(found.high))


def test_a_difference_of_several_samples_is_the_paired_t_test_and_of_one_tangos() -> None:
    rng = np.random.default_rng(4)
    first, second = rng.binomial(16, 0.8, 30) / 16, rng.binomial(16, 0.7, 30) / 16
    found, expected = paired(first, second), stats.ttest_rel(first, second)
    ends = expected.confidence_interval(0.95)
    assert (found.low, found.high, found.p) == pytest.approx((ends.low, ends.high, expected.pvalue))
    once = paired(np.array([1.0, 1.0, 0.0, 0.0, 1.0]), np.array([1.0, 0.0, 0.0, 1.0, 0.0]))
    assert once == tango(2, 1, 5)
    assert paired(first, first).p == 1.0
    assert paired(first, first).low == pytest.approx(-(stats.norm.ppf(0.975) ** 2) / (30 + stats.norm.ppf(0.975) ** 2))


def test_a_difference_of_families_is_the_t_test_of_their_means_where_they_are_equal() -> None:
    rng, family = np.random.default_rng(5), [str(place // 3) for place in range(36)]
    first, second = rng.binomial(1, 0.8, 36).astype(float), rng.binomial(1, 0.7, 36).astype(float)
    found = paired(first, second, family)
    expected = stats.ttest_1samp((first - second).reshape(12, 3).mean(axis=1), 0)
    assert found.p == pytest.approx(expected.pvalue)
    assert found.families == 12
    assert paired(first, second, ["a", "b"] * 18).low is None


def test_a_difference_on_these_problems_has_the_noise_of_both_runs_samples() -> None:
    first, second, samples = np.array([3, 8, 5]), np.array([2, 8, 1]), np.full(3, 8)
    found = on_these(first, samples, second, samples)
    error = float(np.linalg.norm([rerun_standard_error(correct, samples) or 0 for correct in (first, second)]))
    assert found.estimate == pytest.approx(5 / 24)
    assert found.high == pytest.approx(5 / 24 + stats.norm.ppf(0.975) * error)
    assert found.p == pytest.approx(2 * stats.norm.sf(5 / 24 / error))
    once = np.ones(3, dtype=int)
    assert on_these(once, once, once, once).low is on_these(samples, samples, samples, samples).low is None


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
    low, high = known(found.low), known(found.high)
    assert turned.low == pytest.approx(-high, abs=1e-7)
    assert low <= found.estimate <= high
    if abs(low + margin) > 1e-7:
        assert (known(found.p) < 0.025) == (low > -margin)


def test_few_problems_without_any_difference_do_not_show_that_a_method_is_not_worse() -> None:
    """Of 30 problems so many may be lost entirely without one of them being drawn."""
    for n, is_shown in ((30, False), (124, False), (125, True)):
        assert (known(worst_case(np.zeros(n), np.zeros(n), 0.02).p) < 0.025) is is_shown


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


@given(st.lists(st.booleans(), min_size=1, max_size=9), st.data())
def test_pass_at_k_is_the_share_of_sets_with_a_right_sample(answers: list[bool], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(answers)))
    expected = np.mean([any(chosen) for chosen in itertools.combinations(answers, k)])
    assert pass_at_k(np.array([sum(answers)]), np.array([len(answers)]), k) == pytest.approx([expected])


def majority(chosen: tuple[str, ...]) -> float:
    """Share of the leading answers that are right; `R` is right, a blank is no answer."""
    counted = Counter(answer for answer in chosen if answer != " ").most_common()
    leaders = [answer for answer, number in counted if number == counted[0][1]]
    return leaders.count("R") / len(leaders) if leaders else 0.0


@given(st.text("RRWXY ", min_size=1, max_size=8), st.data())
@settings(max_examples=150)
def test_maj_at_k_is_the_mean_over_all_sets_and_ties(answers: str, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(answers)))
    expected = np.mean([majority(chosen) for chosen in itertools.combinations(answers, k)])
    counts = Counter(answers.replace(" ", ""))
    chance = maj_at_k(list(counts.values()), [name == "R" for name in counts], answers.count(" "), k)
    assert chance == pytest.approx(expected)


@pytest.mark.parametrize("k", [0, 5])
def test_k_above_the_number_of_samples_is_an_error(k: int) -> None:
    with pytest.raises(ValueError, match=f"pass@{k} requires 1 ≤ k"):
        pass_at_k(np.array([1, 2]), np.array([4, 8]), k)
    with pytest.raises(ValueError, match=f"maj@{k} requires 1 ≤ k"):
        maj_at_k([2, 1], [True, False], 1, k)


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
    found = known(correlation(sums))
    assert found.estimate == pytest.approx(np.corrcoef(np.concatenate(steps, axis=1))[0, 1])
    parts = [np.corrcoef(np.concatenate(steps[:i] + steps[i + 1 :], axis=1))[0, 1] for i in range(9)]
    assert found.standard_error == pytest.approx(np.sqrt(8 * np.var(parts)))
    assert correlation(np.ones((3, 6))) is None


def test_steps_of_a_family_are_left_out_together() -> None:
    sums = np.random.default_rng(2).uniform(1, 2, (40, 6)) * [4, 1, 1, 1, 9, 9]
    family = [str(place // 2) for place in range(40)]
    found, joined = known(correlation(sums, family)), known(correlation(sums[::2] + sums[1::2]))
    assert (found.low, found.high, found.families) == pytest.approx((joined.low, joined.high, 20))
    assert known(correlation(sums, [str(place % 9) for place in range(40)])).low is None


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
