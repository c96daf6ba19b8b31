"""The second grader calls two answers equal or different, or abstains."""

from __future__ import annotations

import pytest

from grading.second.compare import compare, normal_form
from grading.second.formula import MAX_CHARACTERS


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"$\dfrac{1}{2}$.", r"\frac{1}{2}"),
        (r"\left( 1 \right)", "( 1 )"),
        ("1,234", "1234"),
        (r"5\text{ cm}", "5"),
        ("12 apples", "12"),
        (r"\{1\}", "⦃1⦄"),
        ("x≤2", r"x\le 2"),
        ("4\u200b1", "41"),
        (r"\text{Evelyn}", "Evelyn"),
    ],
)
def test_one_notation_for_one_thing(text: str, expected: str) -> None:
    assert normal_form(text) == expected


@pytest.mark.parametrize(
    ("gold", "prediction", "tolerance", "expected"),
    [
        ("3", "3.02", 0.05, True),
        (r"\sqrt{2}", "1.4", 0.1, True),
        (r"\sqrt{2}", "1.4", 0.01, False),
        ("35%", "0.35", None, True),
        ("0.35", "35%", None, True),
        ("1<x<2", "2>x>1", None, True),
        ("1<x<2", "x", None, None),
        ("(1,2)", "5", None, None),
        ("a=b=c", "a=b", None, None),
        ("x=1", "x=2", None, False),
        ("x+y=0", "x+z=0", None, False),
        (r"\infty", "5", None, False),
        ("x", "y", None, False),
        (r"\{5\}", r"\{5\}", None, True),
        (r"\{5,6\}", r"\{6,7\}", None, False),
        ("x" * (MAX_CHARACTERS + 1), "x", None, None),
    ],
)
def test_equal_different_or_undecided(
    gold: str, prediction: str, tolerance: float | None, expected: bool | None
) -> None:
    assert compare(gold, prediction, tolerance).is_equal is expected
