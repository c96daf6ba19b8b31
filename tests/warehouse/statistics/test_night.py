"""The rule of the nights: the spread that all cells tell, and what stands out of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import linalg, stats

from warehouse.statistics.night import ESTIMATED, KNOWN, Look, Series, Spread, Value, _Nights, fitted, looks


def wandering(rng: np.random.Generator, cells: int, nights: int, deviation: float, rho: float) -> np.ndarray:
    covariance = deviation**2 * rho ** np.abs(np.subtract.outer(range(nights), range(nights)))
    return rng.multivariate_normal(np.zeros(nights), covariance, size=cells)


def series(values: np.ndarray, tonight: float, variance: float = 0.0, day: int | None = None) -> Series:
    earlier = [Value(i, float(value), variance) for i, value in enumerate(values)]
    value = Value(len(values) if day is None else day, tonight, variance)
    return Series(earlier, value, value, earlier[-2:])


@pytest.mark.parametrize(("deviation", "rho"), [(0.0, 0.0), (1.0, 0.0), (1.0, 0.8)])
def test_the_spread_of_many_nights_is_that_which_they_were_drawn_with(deviation: float, rho: float) -> None:
    rng = np.random.default_rng(1)
    levels = rng.normal(0, 50, 400)[:, None]
    values = levels + wandering(rng, 400, 14, deviation, rho) + rng.normal(0, 0.5, (400, 14))
    nights = _Nights.of([[Value(i, float(v), 0.25) for i, v in enumerate(row)] for row in values])
    found = fitted(nights, np.ones(400))
    assert found.deviation == pytest.approx(deviation, abs=0.12)
    if deviation:
        assert found.autocorrelation == pytest.approx(rho, abs=0.06)


def test_without_autocorrelation_a_night_is_compared_with_the_mean_as_students_t_is() -> None:
    rng = np.random.default_rng(2)
    values = rng.normal(0, 1, (30, 10))
    spreads, found = looks([series(row, 3.0) for row in values])
    spread = spreads[""]
    assert spread.autocorrelation == 0
    t = (3.0 - values[0].mean()) / (spread.deviation * (1 + 1 / 10) ** 0.5)
    assert found[0].tonight == pytest.approx(-stats.norm.ppf(stats.t.sf(t, 30 * 9)), rel=1e-6)
    assert found[0].usual == pytest.approx(values[0].mean())


def test_a_prediction_is_that_of_generalized_least_squares() -> None:
    """The error of the best linear unbiased prediction, from the inverse of the whole covariance."""
    rng = np.random.default_rng(3)
    rows = wandering(rng, 20, 12, 1.0, 0.8)
    spreads, found = looks([series(row, 2.0, 0.01, day=14) for row in rows])
    spread = spreads[""]
    days = np.array([*range(12), 14])
    covariance = spread.deviation**2 * spread.autocorrelation ** np.abs(np.subtract.outer(days, days)) + 0.01 * np.eye(
        13
    )
    weights = linalg.solve(covariance, np.ones(13))
    precision = linalg.inv(covariance) - np.outer(weights, weights) / weights.sum()
    t = (precision @ np.append(rows[0], 2.0))[12] / precision[12, 12] ** 0.5
    degrees = spread.degrees * (1 + 0.01 / spread.deviation**2) ** 2
    assert found[0].tonight == pytest.approx(-stats.norm.ppf(stats.t.sf(t, degrees)), rel=1e-6)


def test_the_last_nights_together_show_what_none_of_them_does() -> None:
    rng = np.random.default_rng(5)
    rows = rng.normal(0, 1, (12, 16))
    rows[0, -2:] = 4.0
    _, [changed, *others] = looks([series(row, 4.0 if i == 0 else 0.0) for i, row in enumerate(rows)])
    assert abs(changed.tonight) < ESTIMATED[0]
    assert (changed.is_by_window, changed.side(is_confirmed=False)) == (True, 1)
    assert not any(look.side(is_confirmed=True) for look in others)
    _, [repaired, *_] = looks([series(row, 0.0) for row in rows])
    assert not repaired.is_by_window, "tonight is as usual"


@pytest.mark.parametrize(
    ("screened", "tonight", "is_confirmed", "side"),
    [(5.0, 5.0, False, 0), (5.0, 5.0, True, 1), (-5.0, -4.2, True, -1), (5.0, 3.4, True, 0), (2.0, 5.0, True, 0)],
)
def test_a_suspicion_is_confirmed_by_both_runs_together(
    screened: float, tonight: float, is_confirmed: bool, side: int
) -> None:
    assert Look(KNOWN, 0.0, screened, tonight, 0.0, 0.0, 1.0).side(is_confirmed=is_confirmed) == side


def test_nights_that_are_all_the_same_say_so_of_any_other() -> None:
    spreads, [same] = looks([series(np.ones(8), 1.0)])
    assert spreads == {"": Spread(0.0, 0.0, 7.0)}
    assert same.tonight == 0
    assert looks([series(1e8 * np.ones(8), 1e8), series(np.ones(14), 1.0)])[1][0].tonight == 0
    assert looks([replace(series(np.ones(8), 1.0001), floor=0.01)])[1][0].tonight < 1
