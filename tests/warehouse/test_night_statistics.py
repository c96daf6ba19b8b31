"""The statistics under the nightly verdict: moderated variances, the night factor, and a convolution."""

from __future__ import annotations

import numpy as np
import pytest

from warehouse.statistics.night_changes import NO_FACTOR, night_factor
from warehouse.statistics.paired import _convolved, stratified, stratified_z


def test_the_night_factor_is_that_of_what_nights_share() -> None:
    rng = np.random.default_rng(2)
    noise = np.full(200, 2 * 0.01**2)
    shared = 0.03 * rng.standard_normal(201)
    steps = np.diff(shared + 0.01 * rng.standard_normal(201))
    assert night_factor(steps, noise).standard_deviation == pytest.approx(0.03, abs=0.006)
    alone = [np.diff(0.01 * rng.standard_normal(21)) for _ in range(200)]
    assert np.mean([night_factor(one, noise[:20]) is not NO_FACTOR for one in alone]) < 0.03
    level = np.diff(np.r_[np.zeros(10), np.full(10, 0.2)] + 0.01 * rng.standard_normal(20))
    assert night_factor(level, noise[:19]) is NO_FACTOR, "a level that stays is no spread"


def test_a_long_distribution_is_the_same_by_fourier_transforms() -> None:
    rng = np.random.default_rng(3)
    rows = rng.dirichlet(np.ones(17), size=23)
    direct = np.ones(1)
    for row in rows:
        direct = np.convolve(direct, row)
    assert _convolved(rows)[: len(direct)] == pytest.approx(direct, abs=1e-14)
    counts = (np.array([3, 9, 0]), np.full(3, 16), np.array([40, 30, 10]), np.full(3, 80))
    assert stratified_z(*counts) == pytest.approx(stratified(*counts).z)
