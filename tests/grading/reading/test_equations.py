"""Equations answer values, define functions, and equal their multiples."""

from __future__ import annotations

import pytest

from grading.equivalence import equivalent
from grading.reading.equations import is_same_relation, value_of_equation


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("x = 5", "5"), ("m+n = 5", "5"), ("P(A) = 5", "5"), ("2+3 = 5", "5"), ("AB = 5", "5"), ("5 = x", "5"),
        ("2x+3y = 6 = 6", "6"), ("3x+4y = 0", None), ("5 = 5", None), ("x =", None), ("3x = 4", None),
        ("a*b) = 5", None),
    ],
)  # fmt: skip
def test_the_value_that_an_equation_answers(text: str, value: str | None) -> None:
    assert value_of_equation(text) == value


@pytest.mark.parametrize(
    ("gold", "prediction", "expected"),
    [
        ("x+y=2", "2x+2y=4", True), ("x+y=2", "x+y=3", False), ("x+y=2", "x+z=2", False), ("x<2", "2>x", True),
        ("x<2", "-x<-2", False), ("x<2", "x>2", False), ("x<2", r"x \le 2", False), ("1=2", "2=3", None),
        ("x=?", "x=2", None), ("1<x<y", "y>x>1", True), ("1<x<y", "1<x<z", None), ("1<x<y", r"1 \le x<y", False),
    ],
)  # fmt: skip
def test_relations_with_proportional_sides_are_equal(gold: str, prediction: str, expected: bool | None) -> None:
    assert is_same_relation(gold, prediction) is expected


@pytest.mark.parametrize(
    ("gold", "prediction", "is_equal", "reason"),
    [
        ("f(x)=2x+1", "f(t)=2t+1", True, "the same definition"), ("y=2x+1", "y=2x+2", False, "equations"),
        ("5", "x<6", False, "a relation, but the gold has none"),
        ("5", "x^2+1=0", False, "an equation, but the gold has none"),
        ("x^2<y", "5", False, "the gold is a relation"), ("x^2+y^2=1", "5", False, "the gold is an equation"),
        ("x=5", "5", True, "same string"), ("5", "x = 5.0", True, "exact numbers"),
        ("(x+1)^2", "x^2+2x+1", True, "values"), ("(x+1)^2", "x^2+1", False, "values"),
        (r"\frac{\pi}{2}", r"90^\circ", True, "values"), (r"5\sqrt{2}\text{ cm}", r"\sqrt{50}", True, "values"),
        (r"5\sqrt{2}\text{ cm}", r"5\sqrt{2}\text{ m}", False, "another unit"),
        (r"\sqrt{2}", "1.414214", True, "values"), ("1.414214", r"\sqrt{2}", True, "values"),
        (r"\sqrt{2}", "1.41", False, "values"), ("3x", r"\frac{3x}{", None, "unbalanced braces"),
        ("5", r"\approx", None, "only punctuation"), ("5", r"\frac{35}{7} \approx 5.2", True, "exact numbers"),
        ("5", r"x^2+C_1", False, "values"),
    ],
)  # fmt: skip
def test_equations_and_values_decide(gold: str, prediction: str, is_equal: bool | None, reason: str) -> None:
    match = equivalent(gold, prediction)
    assert (match.is_equal, match.reason) == (is_equal, reason)
