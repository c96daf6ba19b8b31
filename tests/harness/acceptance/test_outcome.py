"""A check passes where every goal is met, and can fail."""

from __future__ import annotations

import pytest

from harness.acceptance.outcome import Goal, Measurement, Relation, Value, judged


@pytest.mark.parametrize(
    ("relation", "bound", "met", "missed"),
    [
        ("<", 0.05, 0.049, 0.05),
        ("<=", 2.0, 2.0, 2.01),
        (">=", 0.85, 0.85, 0.84),
        ("=", 0, 0, 1),
        ("=", "none", "none", "guidance"),
    ],
)
def test_a_goal_tells_what_meets_it_from_what_misses_it(
    relation: Relation, bound: float | str, met: Value, missed: Value
) -> None:
    goal = Goal(relation, bound)
    assert goal.is_met(met)
    assert not goal.is_met(missed)


@pytest.mark.parametrize("value", [None, float("nan"), "unknown"])
@pytest.mark.parametrize("relation", ["<", "<=", ">="])
def test_a_value_that_is_missing_meets_no_goal(value: Value, relation: Relation) -> None:
    assert not Goal(relation, 1.0).is_met(value)
    assert judged("start", [Measurement("start", value, goal=Goal(relation, 1.0))], 0.0).status == "FAIL"


def test_one_missed_goal_fails_a_check_and_is_named() -> None:
    good, bad = Measurement("changed", 0, goal=Goal("=", 0)), Measurement("mass", 0.4, goal=Goal(">=", 0.9))
    assert judged("x", [good], 1.0).status == "PASS"
    outcome = judged("x", [good, bad, Measurement("only reported", 7)], 1.0)
    assert (outcome.status, outcome.reason) == ("FAIL", "not met: mass")


def test_a_check_that_could_never_fail_is_an_error() -> None:
    with pytest.raises(ValueError, match="nothing that has a goal"):
        judged("x", [Measurement("tokens", 3)], 0.0)


def test_a_measurement_survives_the_way_through_json() -> None:
    for measurement in (Measurement("a", 1.5, "s", Goal("<", 2)), Measurement("b", None), Measurement("c", "word")):
        assert Measurement.from_data(measurement.data()) == measurement
