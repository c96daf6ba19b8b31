"""The run factor from repeated runs."""

from __future__ import annotations

import numpy as np
import pytest

from warehouse.statistics.intervals import Interval
from warehouse.statistics.ratios import RunFactor, between_runs, run_factor


def test_the_run_factor_is_the_spread_of_repeated_runs_pooled_over_settings() -> None:
    first, second = np.log([[1.0, 2.0], [1.1, 2.2], [0.9, 1.8]]), np.log([[5.0], [6.0]])
    factor = run_factor([first, second, np.zeros((1, 4))])
    means = [np.log([1.0, 1.1, 0.9]), np.log([5.0, 6.0])]
    squares = sum(float(((m - m.mean()) ** 2).sum()) for m in means)
    assert factor is not None
    assert factor.standard_deviation == pytest.approx((squares / 3) ** 0.5)
    assert (factor.degrees, factor.num_runs) == (3, 5)


def test_two_runs_or_none_are_too_few() -> None:
    assert run_factor([]) is None
    assert run_factor([np.log([[1.0], [1.2]])]) is None
    assert run_factor([np.log([[1.0], [1.2]]), np.log([[1.0], [1.2]])]) is not None


def test_the_run_factor_widens_an_interval_and_leaves_the_estimate() -> None:
    ratio = Interval(2.0, 1.8, 2.3, 0.05, "bootstrap-t")
    assert between_runs(ratio, None) == ratio
    wider = between_runs(ratio, RunFactor(0.1, 1000, 1001))
    assert wider.estimate == 2.0
    assert np.log(wider.low or 0) == pytest.approx(
        np.log(2) - np.hypot(np.log(2 / 1.8), 1.962 * 2**0.5 * 0.1), abs=1e-3
    )
    assert np.log(wider.high or 0) == pytest.approx(
        np.log(2) + np.hypot(np.log(2.3 / 2), 1.962 * 2**0.5 * 0.1), abs=1e-3
    )
    without = Interval(2.0, None, None, None, "none: one problem")
    assert between_runs(without, RunFactor(0.1, 3, 4)) == without
