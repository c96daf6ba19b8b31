"""Tests and corrections against scipy, statsmodels and counting every case."""

from __future__ import annotations

import itertools
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats
from statsmodels.stats.contingency_tables import StratifiedTable, mcnemar
from statsmodels.stats.multitest import multipletests

from warehouse.statistics.intervals import rerun_standard_error
from warehouse.statistics.paired import _convolved, holm, on_these, paired, sign_flip, stratified, tango

SIXTEENTHS = st.lists(st.integers(-16, 16), min_size=2, max_size=10)


@given(SIXTEENTHS)
@settings(max_examples=50)
def test_the_sign_flip_distribution_is_that_of_all_flips(steps: list[int]) -> None:
    flips = np.array(list(itertools.product([1, -1], repeat=len(steps))))
    sums, observed = np.abs(flips @ np.array(steps)), abs(sum(steps))
    expected = np.mean(sums > observed) + 0.5 * np.mean(sums == observed) if observed else 1.0
    assert sign_flip(np.array(steps) / 16, 16) == pytest.approx(expected)


@pytest.mark.parametrize(("gained", "lost"), [(9, 2), (3, 3), (0, 6), (1, 0)])
def test_with_one_sample_the_sign_flip_is_mcnemars_mid_p_test(gained: int, lost: int) -> None:
    differences = np.array([1] * gained + [-1] * lost + [0] * 20, dtype=float)
    n, fewer = gained + lost, min(gained, lost)
    expected = 2 * stats.binom.cdf(fewer, n, 0.5) - stats.binom.pmf(fewer, n, 0.5)
    assert sign_flip(differences, 1) == pytest.approx(min(1.0, expected))


def test_no_difference_at_all_has_p_one() -> None:
    assert sign_flip(np.zeros(10), 16) == 1.0


def test_a_difference_off_the_grid_is_refused() -> None:
    with pytest.raises(ValueError, match="multiple of 1/4"):
        sign_flip(np.array([0.25, 0.3]), 4)


@pytest.mark.parametrize("table", [((7, 9), (2, 14)), ((0, 16), (5, 11)), ((16, 0), (12, 4))])
def test_with_one_problem_the_stratified_test_is_fishers(table: tuple[tuple[int, int], tuple[int, int]]) -> None:
    (a, b), (c, d) = table
    test = stratified(np.array([a]), np.array([a + b]), np.array([c]), np.array([c + d]))
    assert test.p_less == pytest.approx(stats.fisher_exact(table, "less").pvalue)
    assert test.p_greater == pytest.approx(stats.fisher_exact(table, "greater").pvalue)


def test_the_stratified_statistic_is_mantel_and_haenszels() -> None:
    rng = np.random.default_rng(5)
    p = rng.uniform(0.1, 0.9, 25)
    first, second = rng.binomial(16, p), rng.binomial(48, p)
    tables = [np.array([[a, 16 - a], [b, 48 - b]]) for a, b in zip(first, second, strict=True)]
    expected = StratifiedTable(tables).test_null_odds(correction=False)
    test = stratified(first, np.full(25, 16), second, np.full(25, 48))
    assert test.z**2 == pytest.approx(expected.statistic)
    assert test.p == pytest.approx(expected.pvalue, abs=0.01)
    assert test.difference == pytest.approx(float(np.mean(first / 16 - second / 48)))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=3))
@settings(max_examples=40)
def test_the_stratified_p_values_count_every_assignment_of_the_samples(correct: list[tuple[int, int]]) -> None:
    """3 samples on one side and 4 on the other: all ways to choose which 3 of a problem's 7 are the first side's."""
    assignments = []
    for a, b in correct:
        answers = [1] * (a + b) + [0] * (7 - a - b)
        assignments.append([sum(chosen) for chosen in itertools.combinations(answers, 3)])
    totals = np.array([sum(sums) for sums in itertools.product(*assignments)])
    first, second = np.array([a for a, _ in correct]), np.array([b for _, b in correct])
    test = stratified(first, np.full(len(first), 3), second, np.full(len(first), 4))
    assert test.p_less == pytest.approx(np.mean(totals <= first.sum()))
    assert test.p_greater == pytest.approx(np.mean(totals >= first.sum()))
    assert test.p_observed == pytest.approx(np.mean(totals == first.sum()))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_is_statsmodels(p_values: list[float]) -> None:
    with mock.patch("gc.collect"):  # multipletests collects all garbage each time, which takes a quarter of a second
        assert holm(p_values) == pytest.approx(multipletests(p_values, method="holm")[1])


def test_nothing_tested_needs_no_correction() -> None:
    assert holm([]) == []


def test_a_long_distribution_is_the_same_by_fourier_transforms() -> None:
    rng = np.random.default_rng(3)
    rows = rng.dirichlet(np.ones(17), size=23)
    direct = np.ones(1)
    for row in rows:
        direct = np.convolve(direct, row)
    assert _convolved(rows)[: len(direct)] == pytest.approx(direct, abs=1e-14)


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
    for end in (found.low, found.high):
        assert end is not None
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
    assert found.p is not None
    assert found.low is not None
    assert found.high is not None
    assert (found.p < 0.05) == (not found.low <= 0 <= found.high)


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
    assert on_these(once, once, once, once).kind == "none: one sample of a problem"
    assert on_these(samples, samples, samples, samples).low is None
