"""Equations answer values, define functions, and equal their multiples."""

from __future__ import annotations

import pytest

from grading.equivalence import equivalent
from grading.reading.equations import definition, is_same_relation, value_of_equation


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("x = 5", "5"),
        ("m+n = 5", "5"),
        ("P(A) = 5", "5"),
        ("2+3 = 5", "5"),
        ("AB = 5", "5"),
        ("5 = x", "5"),
        ("2x+3y = 6 = 6", "6"),
        ("3x+4y = 0", None),
        ("5 = 5", None),
        ("x =", None),
        ("3x = 4", None),
        ("a*b) = 5", None),
    ],
)
def test_the_value_that_an_equation_answers(text: str, value: str | None) -> None:
    assert value_of_equation(text) == value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f(x) = 2x", ("2x", "x")),
        ("y = 2x", ("2x", "")),
        ("y = 2y", None),
        ("2y = x", None),
        ("y <", None),
        ("y =", None),
    ],
)
def test_a_definition_has_a_name_on_its_left_side(text: str, expected: tuple[str, str] | None) -> None:
    assert definition(text) == expected


@pytest.mark.parametrize(
    ("gold", "prediction", "expected"),
    [
        ("x+y=2", "2x+2y=4", True),
        ("x+y=2", "x+y=3", False),
        ("x+y=2", "x+z=2", False),
        ("x<2", "2>x", True),
        ("x<2", "-x<-2", False),
        ("x<2", "x>2", False),
        ("x<2", r"x \le 2", False),
        ("1=2", "2=3", None),
        ("x=?", "x=2", None),
        ("1<x<y", "y>x>1", True),
        ("1<x<y", "1<x<z", None),
        ("1<x<y", r"1 \le x<y", False),
    ],
)
def test_relations_with_proportional_sides_are_equal(gold: str, prediction: str, expected: bool | None) -> None:
    assert is_same_relation(gold, prediction) is expected


@pytest.mark.parametrize(
    ("gold", "prediction", "is_equal", "reason"),
    [
        ("f(x)=2x+1", "f(t)=2t+1", True, "the same definition"),
        ("y=2x+1", "y=2x+2", False, "equations"),
        ("5", "x<6", False, "a relation where none is asked for"),
        ("5", "x^2+1=0", False, "an equation where none is asked for"),
        ("x^2<y", "5", False, "a relation is asked for"),
        ("x^2+y^2=1", "5", False, "an equation is asked for"),
        ("x=5", "5", True, "same string"),
        ("5", "x = 5.0", True, "exact numbers"),
    ],
)
def test_an_equation_beside_an_equation_or_a_value(gold: str, prediction: str, is_equal: bool, reason: str) -> None:
    match = equivalent(gold, prediction)
    assert (match.is_equal, match.reason) == (is_equal, reason)
