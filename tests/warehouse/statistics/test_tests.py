"""Tests and corrections against scipy, statsmodels and counting every case."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests

from warehouse.statistics.intervals import rerun_standard_error
from warehouse.statistics.paired import holm, on_these, paired, tango


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
    assert on_these(once, once, once, once).low is on_these(samples, samples, samples, samples).low is None
