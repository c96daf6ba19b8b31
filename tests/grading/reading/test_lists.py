"""Lists are compared as multisets or in order."""

from __future__ import annotations

import pytest

from grading.equivalence import equivalent
from grading.reading import Match, Pair
from grading.reading.lists import (
    MAX_PARTS,
    compare_unnamed,
    compare_unordered,
)

PAIR = Pair("", "", tolerance=0.5)


def compare(pair: Pair) -> Match:
    """Compare whole numbers; anything else cannot be read."""
    if not (pair.gold.isdigit() and pair.prediction.isdigit()):
        return Match(None, "not a number")
    return Match(int(pair.gold) == int(pair.prediction), f"tolerance {pair.tolerance}")


def test_long_lists_are_only_compared_as_strings() -> None:
    numbers = [str(number) for number in range(MAX_PARTS + 1)]
    assert compare_unordered(numbers, numbers[::-1], PAIR, compare).is_equal
    other = [f"0{number}" for number in numbers]
    assert compare_unordered(numbers, other, PAIR, compare).is_equal is None


def test_values_are_compared_by_their_names_where_each_has_its_own() -> None:
    assert compare_unnamed(["1", "2"], ["x = 2", "y = 1"], PAIR, compare).is_equal
    assert compare_unnamed(["x = 1", "y = 2"], ["y = 02", "x = 1"], PAIR, compare).is_equal
    assert compare_unnamed(["x = 1", "y = 2"], ["x = 2", "y = 1"], PAIR, compare).is_equal is False
    assert compare_unnamed(["x = y = 1", "z = 2"], ["x = 1", "z = 2", "y = 1"], PAIR, compare).is_equal


COLUMN = r"\begin{pmatrix}1\\2\end{pmatrix}"
ROW = r"\begin{pmatrix}1&2\end{pmatrix}"
SQUARE = r"\begin{bmatrix}1&2\\3&4\end{bmatrix}"


@pytest.mark.parametrize(
    ("gold", "prediction"),
    [
        ("1, 2", r"\{2,1\}"), (r"\{2,1\}", "1, 2"), (r"\{1,2,3\}", "[3,2,1]"), ("[1,2,3]", r"\{3,2,1\}"),
        ("1, 2", "(1,2)"), ("(1,2)", "1, 2"), ("(1,2)", "x=1, y=2"), (COLUMN, "(1,2)"), ("(1,2)", COLUMN),
        (ROW, "(1,2)"), ("1, 2", COLUMN), (SQUARE, r"\begin{pmatrix}1&2\\3&\frac{8}{2}\end{pmatrix}"),
        (r"\{5\}", "5"), ("5", r"\{5\}"), ("P=(1,2)", "(1,2)"), (r"1 \pm \sqrt2", r"1+\sqrt2, 1-\sqrt2"),
        (r"\{-2,2\}", r"\pm 2"), ("(x,y)=(1,2)", "(1,2)"),
    ],
)  # fmt: skip
def test_shapes_that_can_be_equal(gold: str, prediction: str) -> None:
    assert equivalent(gold, prediction).is_equal is True


@pytest.mark.parametrize(
    ("gold", "prediction", "reason"),
    [
        (r"\{1,2\}", "[1,2]", "a pair or matrix is not a set"), (r"\{1,2\}", COLUMN, "a pair or matrix is not a set"),
        (COLUMN, ROW, "different matrix size"), (SQUARE, "(1,2,3,4)", "a matrix is not a tuple"),
        ("(1,2)", ROW, "a matrix is not a tuple"), ("(1,2)", "[1,2]", "different brackets"),
        ("1, 2", "[1,2)", "different brackets"), ("(1,2)", "(1,2,3)", "3 parts, expected 2"),
        ("(1,2)", "(2,1)", "a part differs"), ("5", "(5,6)", "one value vs. several"),
        ("(5,6)", "5", "one value vs. several"),
    ],
)  # fmt: skip
def test_shapes_that_cannot_be_equal(gold: str, prediction: str, reason: str) -> None:
    match = equivalent(gold, prediction)
    assert (match.is_equal, match.reason) == (False, reason)
