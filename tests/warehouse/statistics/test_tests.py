"""Tests and corrections against scipy, statsmodels and counting every case."""

from __future__ import annotations

import itertools
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.contingency_tables import StratifiedTable
from statsmodels.stats.multitest import multipletests

from warehouse.statistics.paired import _convolved, holm, sign_flip, stratified

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
