"""The difference estimator: unbiased whatever the model, exact where all is timed, wide where the model is bad."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tools.simulate import two_phase
from warehouse.statistics.intervals import Floats
from warehouse.statistics.ratios import mean_time
from warehouse.statistics.two_phase import (
    Measured,
    Numbers,
    Predicted,
    TwoPhaseMean,
    mean_interval,
    two_phase_difference,
    two_phase_mean,
)

N, FOLDS = 24, 3


def estimate(
    chains: Floats, timed: Numbers, *, shift: float = 0.0, scale: float = 1.0, times: Floats | None = None
) -> TwoPhaseMean:
    """The estimate where the model predicts scale × seconds + shift; 12 problems × 2 samples in 6 strata by length."""
    order = np.argsort(chains)
    strata = np.empty(len(chains), dtype=np.int64)
    strata[order] = np.arange(len(chains)) // 4
    problems = np.arange(len(chains)) // 2
    seconds = chains[timed] if times is None else times
    predicted = np.repeat([scale * chains + shift], FOLDS, axis=0)
    folds = problems[timed] % FOLDS
    return two_phase_mean(
        Predicted(predicted, problems, strata),
        Measured(seconds, scale * chains[timed] + shift, folds, problems[timed], strata[timed]),
    )


@pytest.fixture
def chains() -> Floats:
    return np.random.default_rng(3).lognormal(1, 0.7, N)


def two_of_each_stratum(chains: Floats, seed: int = 0) -> Numbers:
    order, rng = np.argsort(chains), np.random.default_rng(seed)
    return np.concatenate([rng.choice(order[i : i + 4], 2, replace=False) for i in range(0, len(chains), 4)])


def test_everything_timed_is_the_mean_of_the_measurements(chains: Floats) -> None:
    for scale in (1.0, 0.0, 5.0):
        assert estimate(chains, np.arange(N), scale=scale).estimate == pytest.approx(chains.mean())


def test_a_model_that_is_off_by_a_constant_changes_nothing(chains: Floats) -> None:
    timed = two_of_each_stratum(chains)
    right, off = estimate(chains, timed), estimate(chains, timed, shift=100.0)
    assert off.estimate == pytest.approx(right.estimate)
    assert mean_interval(off, resamples=99).high == pytest.approx(mean_interval(right, resamples=99).high)


def test_a_right_model_needs_no_timed_samples_but_to_say_so(chains: Floats) -> None:
    found = estimate(chains, two_of_each_stratum(chains))
    assert found.estimate == pytest.approx(chains.mean())
    assert found.timed_variance == pytest.approx(0)
    by_problem = chains.reshape(-1, 2).mean(axis=1)
    own = mean_interval(found, resamples=999)
    whole = mean_time([by_problem], resamples=999)
    assert (own.low, own.high) == pytest.approx((whole.low, whole.high))


@pytest.mark.parametrize("scale", [0.0, 0.5, 3.0])
def test_the_estimate_is_unbiased_however_bad_the_model_is(chains: Floats, scale: float) -> None:
    found = [estimate(chains, two_of_each_stratum(chains, seed), scale=scale).estimate for seed in range(400)]
    assert np.mean(found) == pytest.approx(chains.mean(), abs=float(4 * np.std(found) / 20))


def test_too_little_has_no_interval(chains: Floats) -> None:
    one = estimate(chains, np.array([4]), scale=0.5)
    assert mean_interval(one, resamples=99).low is None
    with pytest.raises(ValueError, match="no sample was timed"):
        estimate(chains, np.array([], dtype=np.int64))


def test_few_families_have_no_interval(chains: Floats) -> None:
    few = replace(estimate(chains, two_of_each_stratum(chains)), families=9)
    for found in (mean_interval(few, resamples=99), two_phase_difference(few, few)):
        assert (found.low, found.families) == (None, 9)


@pytest.mark.parametrize("num_timed", [2, 3, 5, 40])
def test_the_interval_of_a_difference_covers_with_few_timed_samples_and_a_useless_model(num_timed: int) -> None:
    rng, covered, repetitions = np.random.default_rng(1), 0, 400
    for _ in range(repetitions):
        means = []
        for mean in (10.0, 4.0):
            seconds, timed = mean * rng.gamma(4, 0.25, 120), rng.choice(120, num_timed, replace=False)
            everything = Predicted(np.zeros((1, 120)), np.arange(120), np.zeros(120, dtype=np.int64))
            own = np.zeros(num_timed, dtype=np.int64)
            means.append(two_phase_mean(everything, Measured(seconds[timed], np.zeros(num_timed), own, timed, own)))
        found = two_phase_difference(means[0], means[1])
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 6.0 <= found.high
    assert covered / repetitions >= 0.9, "times are skewed, and five of them tell little"


@pytest.mark.parametrize("model", two_phase.MODELS)
def test_intervals_cover_in_the_simulation(model: str) -> None:
    _, rates, _ = two_phase.cell("40 × 2", 24, model, 0.7, 60)
    assert all(rate >= 0.85 for rate in rates)
