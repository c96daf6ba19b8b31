"""Expected tokens of a problem: from its level or length, corrected by what earlier runs spent."""

from __future__ import annotations

import pytest

from harness.problems.problem import Problem
from jobs.run.shards import Recorded, expected_tokens


def problem(index: int, text: str, level: str | None = None) -> Problem:
    return Problem(f"d/{index}", "d", text, "1", level=level)


def test_levels_decide_where_every_problem_has_one() -> None:
    tokens = expected_tokens([problem(0, "x" * 500, "1"), problem(1, "x", "Level 5"), problem(2, "xx", "3")])
    assert tokens["d/0"] < tokens["d/2"] < tokens["d/1"]
    assert tokens["d/1"] / tokens["d/0"] == pytest.approx(3.4)


@pytest.mark.parametrize("level", [None, "?", "hard", "2024"])
def test_lengths_decide_where_a_level_is_missing_or_no_level(level: str | None) -> None:
    tokens = expected_tokens([problem(0, "x" * 32, "1"), problem(1, "x", level)])
    assert tokens["d/0"] / tokens["d/1"] == pytest.approx(4.0)


def test_history_outranks_the_guess_and_scales_it() -> None:
    problems = [problem(0, "a" * 100), problem(1, "b" * 100), problem(2, "c" * 100)]
    history = {"a" * 100: Recorded(900.0, 50), "b" * 100: Recorded(100.0, 50)}
    tokens = expected_tokens(problems, history)
    assert tokens["d/0"] == pytest.approx(900, rel=0.02)
    assert tokens["d/1"] == pytest.approx(100, rel=0.1)
    assert tokens["d/2"] == pytest.approx(500)


def test_one_recorded_sample_is_half_believed() -> None:
    problems = [problem(0, "a" * 100), problem(1, "b" * 100)]
    tokens = expected_tokens(problems, {"a" * 100: Recorded(300.0, 1), "b" * 100: Recorded(100.0, 1)})
    assert tokens == pytest.approx({"d/0": 250.0, "d/1": 150.0})


def test_history_of_other_problems_is_no_history() -> None:
    problems = [problem(0, "a" * 32), problem(1, "b")]
    assert expected_tokens(problems, {"z": Recorded(9.0, 9)}) == expected_tokens(problems)
