"""Plans: their variance components, their power, and a small piece of tools/simulate/plans.py."""

from __future__ import annotations

import numpy as np
import pytest

from tools.simulate import plans
from tools.simulate.populations import POPULATIONS
from warehouse.statistics import bounded, planning
from warehouse.statistics.planning import CannotPlan, Components, Moments, Pilot

SKEWED = "3 % lost"
FOURS = np.full(6, 4)
MIXED = Pilot(np.array([4, 3, 0, 1, 4, 2]), FOURS, np.array([4, 4, 1, 1, 2, 2]), FOURS)


@pytest.mark.parametrize("margin", [0.01, 0.02, 0.05, 0.2])
def test_without_any_variance_the_least_number_of_problems_is_needed(margin: float) -> None:
    needed = planning.problems_needed(Moments(0.0), margin, 0.8)
    assert needed is not None
    worst = [bounded.worst_case(np.zeros(n), np.zeros(n), margin).p or 0 for n in (needed - 2, needed + 1)]
    assert worst[0] > 0.025 > worst[1]


@pytest.mark.parametrize("moments", [Moments(0.03), Moments(0.03, -0.02), Moments(0.2, -0.05)])
def test_the_margin_that_a_planned_number_of_problems_detects_is_the_margin_it_was_planned_for(
    moments: Moments,
) -> None:
    n = planning.problems_needed(moments, 0.03, 0.8)
    assert n is not None
    assert planning.power(moments, n, 0.03) >= 0.8 > planning.power(moments, n - 1, 0.03)
    assert planning.detectable_margin(moments, n, 0.8) == pytest.approx(0.03, rel=0.01)


def test_what_no_number_of_problems_can_show_has_none() -> None:
    assert planning.problems_needed(Moments(0.5), 0.001, 0.99) is None
    assert planning.samples_needed(Components(0.1, 0.1).moments, 20, 0.02, 0.8) is None
    assert planning.detectable_margin(Moments(0.5), 2, 0.9) is None


def test_a_fixed_set_of_problems_needs_the_samples_with_which_its_power_is_enough() -> None:
    components = Components(0.01, 0.2)
    k = planning.samples_needed(components.moments, 400, 0.02, 0.8)
    assert k is not None
    powers = [planning.power(components.moments(samples), 400, 0.02) for samples in (k - 1, k)]
    assert powers[0] < 0.8 <= powers[1]


def test_components_of_pilots_are_right_on_average() -> None:
    rng = np.random.default_rng(1)
    found = [plans.pilot(POPULATIONS[SKEWED], 400, 3, rng).components for _ in range(200)]
    truth = plans.truth(SKEWED)
    for name in ("between", "within", "third", "third_within"):
        values = np.array([getattr(one, name) for one in found])
        error = float(values.std() / np.sqrt(len(values)))
        assert float(values.mean()) == pytest.approx(getattr(truth, name), abs=4 * error), name


def test_a_careful_plan_takes_more_variance_than_the_pilot_shows() -> None:
    for k in (1, 4, 16):
        assert MIXED.careful(k).variance > MIXED.components.variance(k) > 0
    agreed = Pilot(FOURS, FOURS, FOURS, FOURS)
    assert agreed.careful(4) == agreed.components.moments(4) == Moments(0.0, 0.0)


def test_one_method_alone_is_planned_from_with_a_correlation() -> None:
    assert planning.components_of_one(MIXED.first_correct, FOURS, 1.0).between == 0
    loose, close = (planning.components_of_one(MIXED.first_correct, FOURS, r) for r in (0.0, 0.9))
    assert loose.between == pytest.approx(10 * close.between)
    assert loose.within == close.within


@pytest.mark.parametrize(
    ("problems", "samples", "reason"), [(1, 4, "at least 2 problems"), (5, 1, "at least 2 samples per problem")]
)
def test_what_shows_no_variance_is_no_pilot(problems: int, samples: int, reason: str) -> None:
    counts = np.full(problems, samples)
    with pytest.raises(CannotPlan, match=reason):
        Pilot(counts, counts, counts, counts)


def test_a_planned_comparison_is_decided_as_often_as_asked() -> None:
    """Within three points of 80 %, and four standard errors of so few repetitions."""
    n = planning.problems_needed(plans.truth(SKEWED).moments(16), 0.05, 0.8)
    assert n is not None
    rate = plans.decided(POPULATIONS[SKEWED], n, 16, 0.05, 400)
    assert rate == pytest.approx(0.8, abs=0.03 + 4 * (0.8 * 0.2 / 400) ** 0.5)


def test_the_planners_number_is_that_of_the_upper_limit_for_a_noisy_pilot_and_of_families_where_they_are_named() -> (
    None
):
    rng = np.random.default_rng(11)
    noisy, large = (plans.pilot(POPULATIONS["symmetric, easy"], n, 4, rng) for n in (60, 240))
    assert planning.plan(noisy, 0.02, 4) == planning.problems_needed(noisy.careful(4), 0.02, 0.8)
    assert planning.plan(large, 0.02, 4) == planning.problems_needed(large.components.moments(4), 0.02, 0.8)
    family = [str(place // 4) for place in range(240)]
    needed, alone = planning.plan(large, 0.02, 4, family=family), planning.plan(large, 0.02, 4)
    assert needed is not None
    assert alone is not None
    assert needed > alone
