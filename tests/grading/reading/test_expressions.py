"""Expressions are equal where their values are."""

from __future__ import annotations

import pytest

from grading.equivalence import equivalent
from grading.reading.equations import with_constant_of
from grading.reading.formula import read_formula, symbols


@pytest.mark.parametrize(
    ("gold", "prediction", "is_equal", "reason"),
    [
        ("(x+1)^2", "x^2+2x+1", True, "values"),
        ("(x+1)^2", "x^2+1", False, "values"),
        (r"\frac{\pi}{2}", r"90^\circ", True, "values"),
        (r"5\sqrt{2}\text{ cm}", r"\sqrt{50}", True, "values"),
        (r"5\sqrt{2}\text{ cm}", r"5\sqrt{2}\text{ m}", False, "another unit"),
        (r"\sqrt{2}", "1.414214", True, "values"),
        ("1.414214", r"\sqrt{2}", True, "values"),
        (r"\sqrt{2}", "1.41", False, "values"),
        ("3x", r"\frac{3x}{", None, "unbalanced braces"),
        ("5", r"\approx", None, "nothing but punctuation"),
        ("5", r"\frac{35}{7} \approx 5.2", True, "exact numbers"),
        ("5", r"x^2+C_1", False, "values"),
    ],
)
def test_values_decide(gold: str, prediction: str, is_equal: bool | None, reason: str) -> None:
    match = equivalent(gold, prediction)
    assert (match.is_equal, match.reason) == (is_equal, reason)


def test_the_tolerance_of_the_benchmark_counts() -> None:
    assert equivalent(r"\sqrt{2}", "1.4", tolerance=0.1).is_equal
    assert not equivalent(r"\sqrt{2}", "1.4", tolerance=0.01).is_equal


@pytest.mark.parametrize(
    ("gold", "prediction", "expected"),
    [("x+C", "x+k", {"x", "C"}), ("x C_1", "x c_1", {"x", "C_1"}), ("x C", "x k", {"x", "k"}), ("x+C", "y", {"y"})],
)
def test_a_constant_of_integration_may_have_another_letter(gold: str, prediction: str, expected: set[str]) -> None:
    gold_node, node = read_formula(gold), read_formula(prediction)
    assert gold_node is not None
    assert node is not None
    assert symbols(with_constant_of(gold_node, node)) == expected
