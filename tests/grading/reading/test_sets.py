"""Sets of real numbers are equal in every notation."""

from __future__ import annotations

import pytest

from grading.reading import Pair
from grading.reading.sets import compare_sets, is_same_set, read_set

SAME = [
    ("(1,2)", "1<x<2"), ("[1,2)", r"1 \le x<2"), (r"(-\infty,1)\cup(2,\infty)", r"x<1 \text{ or } x>2"),
    (r"\mathbb{R}\setminus\{2\}", r"x \ne 2"), (r"x \in [0,1]", "[0,1]"), (r"\{x \mid x>3\}", r"(3,\infty)"),
    (r"\{x \in \mathbb{R} \mid x>3\}", "x>3"), ("x>1, x<2", "(1,2)"), ("x<1, x>2", r"(-\infty,1)\cup(2,\infty)"),
    (r"x \ne 1, 2", r"x \ne 1 \text{ and } x \ne 2"), (r"x \notin [1,2]", r"(-\infty,1)\cup(2,\infty)"),
    (r"\{1,2\}", r"\{2,1\}"), (r"[0,2]\cap[1,3]", "[1,2]"), (r"(0,\pi)", r"0<x<\pi"),
    (r"\mathbb{R}", r"(-\infty,\infty)"), (r"\{x \mid 1<x, x<2\}", "(1,2)"),
]  # fmt: skip
OTHER = [("(1,2)", "[1,2)"), ("x>1", "y>1"), ("x>1", r"x \ge 1"), (r"\{1,2\}", r"\{1,3\}"), (r"\emptyset", "(1,2)")]
UNREADABLE = [
    "(1,2,3)", "(2,1)", "(a,b)", "x", "x+y<1", r"\{a,b\}", "5", "1<x<2<3", r"\{x \in A \mid x>3\}", r"x \in A, B",
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "other", "is_same"), [*((*pair, True) for pair in SAME), *((*pair, False) for pair in OTHER)]
)
def test_one_set_has_many_notations(text: str, other: str, is_same: bool) -> None:
    left, right = read_set(text), read_set(other)
    assert left is not None
    assert right is not None
    assert is_same_set(left, right) is is_same


@pytest.mark.parametrize("text", UNREADABLE)
def test_anything_else_is_not_a_set(text: str) -> None:
    assert read_set(text) is None


def test_a_comparison_needs_a_visible_set_and_no_equation() -> None:
    assert compare_sets(Pair("(1,2)", "(1,2)")) is None
    assert compare_sets(Pair("1<x<2", "x=1")) is None
    assert compare_sets(Pair("1<x<2", "five")) is None
    match = compare_sets(Pair("1<x<2", "(1,2)"))
    assert match is not None
    assert match.is_equal
