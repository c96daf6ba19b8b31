"""The AUROC of ratings that are clustered by problem, against sums over all pairs, and its interval in simulations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tools.simulate.auroc import Verdicts, coverage, independent_coverage, intervals

REPETITIONS = 400


def verdicts_of(rows: Sequence[tuple[int, bool, float]]) -> Verdicts:
    """Verdicts of one run, each as problem, whether the sample is correct, and rating."""
    verdicts = Verdicts(np.random.default_rng(0), 1, 1, 1, 0.0, ())
    problem, is_correct, rating = zip(*rows, strict=True)
    verdicts.problem, verdicts.is_correct, verdicts.rating = np.array(problem), np.array(is_correct), np.array(rating)
    verdicts.run = np.zeros(len(rows), dtype=int)
    return verdicts


def test_the_standard_error_is_obuchowskis() -> None:
    verdicts = Verdicts(np.random.default_rng(3), 1, 12, 3, 0.0, (0.0, 0.8))
    right, wrong = verdicts.rating[verdicts.is_correct], verdicts.rating[~verdicts.is_correct]
    wins = (right[:, None] > wrong[None, :]) + (right[:, None] == wrong[None, :]) / 2
    area = wins.mean()
    sums = []
    for problem in range(12):
        own = verdicts.problem == problem
        below = wins[own[verdicts.is_correct]].mean(axis=1)
        above = wins[:, own[~verdicts.is_correct]].mean(axis=0)
        sums.append((np.sum(below - area), np.sum(above - area)))
    covariance = np.array(sums).T @ np.array(sums) * 12 / 11
    sizes = np.array([len(right), len(wrong)])
    [row] = intervals(verdicts)
    assert row["auroc"] == pytest.approx(area)
    assert row["standard_error"] == pytest.approx(float(np.sum(covariance / np.outer(sizes, sizes))) ** 0.5)


def test_repeating_every_verdict_narrows_nothing() -> None:
    once = [(0, True, 0.9), (1, True, 0.4), (2, False, 0.5), (3, False, 0.2), (4, True, 0.8), (5, False, 0.3)]
    [single], [repeated] = intervals(verdicts_of(once)), intervals(verdicts_of(once * 50))
    assert single == pytest.approx(repeated)
    assert single["low_95"] is not None


@pytest.mark.parametrize(
    ("rows", "auroc"),
    [
        ([(0, True, 0.9), (1, False, 0.5), (2, True, 0.9)], 1.0),  # separates perfectly
        ([(0, True, 0.5), (1, False, 0.5), (2, True, 0.5), (3, False, 0.5)], 0.5),  # never varies
        ([(0, True, 0.9), (0, False, 0.5), (0, True, 0.1)], 0.5),  # one problem
        ([(0, True, 0.9), (1, True, 0.5)], None),  # nothing is wrong
    ],
)
def test_what_shows_no_spread_has_no_interval(rows: list[tuple[int, bool, float]], auroc: float | None) -> None:
    [row] = intervals(verdicts_of(rows))
    assert (row["auroc"], row["low_95"], row["high_95"]) == (auroc, None, None)


@pytest.mark.parametrize("bounds", [(), (0.0, 0.8)])
def test_the_interval_covers_as_often_as_it_says(bounds: tuple[float, ...]) -> None:
    covered, share = coverage((40, 4), 0.0, bounds, REPETITIONS)
    assert covered == pytest.approx(0.95, abs=0.01 + 4 * (0.95 * 0.05 / REPETITIONS) ** 0.5)
    assert share == 1


def test_independent_verdicts_are_assumed_in_vain() -> None:
    assert independent_coverage((40, 4), 0.0, (), 100) < 0.8
