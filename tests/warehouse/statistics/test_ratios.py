"""Ratios and means of times: paired by problem, and from the samples that were timed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from tests.shared import known
from tools.simulate import two_phase
from warehouse.statistics.intervals import Floats, Interval
from warehouse.statistics.ratios import RunFactor, SettingRatio, between_runs, bootstrap_t, mean_time, ratio, run_factor
from warehouse.statistics.two_phase import (
    Measured,
    Numbers,
    Predicted,
    TwoPhaseMean,
    mean_interval,
    two_phase_difference,
    two_phase_mean,
)


def of_runs(first: Floats, second: Floats) -> SettingRatio:
    return ratio([first], [second])


def test_with_many_problems_the_bootstrap_agrees_with_scipys() -> None:
    rng = np.random.default_rng(4)
    base = np.exp(rng.normal(2.0, 0.5, 400))
    own = base * np.exp(rng.normal(0.3, 0.3, 400))
    interval = of_runs(own, base).of_means

    def log_ratio(own: np.ndarray, base: np.ndarray, axis: int = -1) -> np.ndarray:
        return np.asarray(np.log(own.mean(axis=axis) / base.mean(axis=axis)))

    bca = stats.bootstrap((own, base), log_ratio, paired=True, rng=np.random.default_rng(0))
    low, high = np.exp(bca.confidence_interval.low), np.exp(bca.confidence_interval.high)
    assert (interval.low, interval.high) == pytest.approx((low, high), rel=0.01)
    assert interval.standard_error == pytest.approx(float(bca.standard_error), rel=0.05)


def test_few_problems_get_students_t_and_one_gets_no_interval() -> None:
    own, base = np.array([2.0, 3.0, 4.0]), np.array([1.0, 2.0, 1.5])
    interval = of_runs(own, base).of_means
    influence = own / own.mean() - base / base.mean()
    error = influence.std(ddof=1) / 3**0.5
    assert interval.kind == "t"
    assert interval.high == pytest.approx(2 * np.exp(stats.t.ppf(0.975, 2) * error))
    assert of_runs(own[:1], base[:1]).of_means.low is None


def _times(repeats: int, n: int = 60) -> tuple[list[Floats], list[Floats]]:
    rng = np.random.default_rng(8)
    alike = np.exp(rng.normal(2, 0.7, n))
    first = [alike * np.exp(rng.normal(0.3, 0.2, n) + rng.normal(0, 0.1)) for _ in range(repeats)]
    return first, [alike * np.exp(rng.normal(0, 0.2, n) + rng.normal(0, 0.1)) for _ in range(repeats)]


def test_a_ratio_of_single_runs_is_that_of_their_means_and_geometric_means() -> None:
    [first], [second] = _times(1)
    found = ratio([first], [second])
    assert found.of_means.estimate == pytest.approx(first.mean() / second.mean())
    logs = np.log(first / second)
    t = stats.ttest_1samp(logs, 0).confidence_interval(0.95)
    assert found.geometric_mean.estimate == pytest.approx(stats.gmean(first / second))
    ends = (found.geometric_mean.low, found.geometric_mean.high)
    assert ends == pytest.approx((np.exp(t.low), np.exp(t.high)), rel=0.02)
    assert found.factor is None
    assert found.of_means.kind == "bootstrap-t"


def test_repeats_are_averaged_and_three_show_the_run_factor() -> None:
    first, second = _times(3)
    found = ratio(first, second)
    logs = [np.mean(np.log(runs)) for runs in (first, second)]
    assert found.geometric_mean.estimate == pytest.approx(np.exp(logs[0] - logs[1]))
    own, other = (np.mean(runs, axis=0) for runs in (first, second))
    assert found.of_means.estimate == pytest.approx(own.mean() / other.mean()), "five runs as one of five samples"
    factor = known(found.factor)
    means = np.array([[np.log(run).mean() for run in runs] for runs in (first, second)])
    assert factor.standard_deviation == pytest.approx((means.var(axis=1, ddof=1).mean()) ** 0.5)
    within = ratio([own], [other]).of_means
    half = stats.t(4).ppf(0.975) * factor.standard_deviation * (2 / 3) ** 0.5
    wide, narrow = (np.log(known(one.high) / within.estimate) for one in (found.of_means, within))
    assert wide == pytest.approx(np.hypot(narrow, half))
    assert ratio(first[:2], second[:1]).factor is None
    assert mean_time(first).kind == "bootstrap-t, run factor"


def test_the_bootstrap_over_families_has_their_delta_method_error_and_needs_ten_of_them() -> None:
    rng, numbers = np.random.default_rng(9), np.repeat(np.arange(12), np.arange(1, 13))
    x, y = np.exp(rng.normal(1, 1, 12))[numbers] * np.exp(rng.normal(0, 0.3, 78)), np.ones(78)
    found = bootstrap_t(x, y, [str(number) for number in numbers], is_log=True)
    sums, sizes = np.bincount(numbers, x), np.bincount(numbers)
    influence = sums / sums.mean() - sizes / sizes.mean()
    assert found.standard_error == pytest.approx(influence.std(ddof=1) / 12**0.5)
    assert found.estimate == pytest.approx(x.mean())
    assert found.families == 12
    assert bootstrap_t(x, y, ["a", "b"] * 39).low is bootstrap_t(y, y).low is None
    assert bootstrap_t(x[:4], y[:4]).kind == "t"


def test_a_problem_that_loops_ends_an_interval_where_a_problem_can_lie() -> None:
    base = np.linspace(1, 2, 12)
    own = base * np.array([1.01, 0.99] * 5 + [1.0, 100.0])
    found = of_runs(own, base)
    for interval in (found.of_means, found.geometric_mean):
        assert interval.high == pytest.approx(100)
        assert interval.low == pytest.approx(min(0.99, interval.estimate / 5))


def test_the_run_factor_is_the_spread_of_repeated_runs_pooled_over_settings() -> None:
    first, second = np.log([[1.0, 2.0], [1.1, 2.2], [0.9, 1.8]]), np.log([[5.0], [6.0]])
    factor = known(run_factor([first, second, np.zeros((1, 4))]))
    means = [np.log([1.0, 1.1, 0.9]), np.log([5.0, 6.0])]
    squares = sum(float(((m - m.mean()) ** 2).sum()) for m in means)
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
    expected = [np.hypot(np.log(end / 2), 1.962 * 2**0.5 * 0.1) for end in (1.8, 2.3)]
    assert [np.log(2 / known(wider.low)), np.log(known(wider.high) / 2)] == pytest.approx(expected, abs=1e-3)
    without = Interval(2.0, None, None, None, "none")
    assert between_runs(without, RunFactor(0.1, 3, 4)) == without


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
        assert (found.low, found.families, "9 families" in found.kind) == (None, 9, True)


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
        covered += known(found.low) <= 6.0 <= known(found.high)
    assert covered / repetitions >= 0.9, "times are skewed, and five of them tell little"


@pytest.mark.parametrize("model", two_phase.MODELS)
def test_intervals_cover_in_the_simulation(model: str) -> None:
    _, rates, _ = two_phase.cell("40 × 2", 24, model, 0.7, 60)
    assert all(rate >= 0.85 for rate in rates)
