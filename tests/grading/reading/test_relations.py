"""Relation signs outside brackets split an answer into operands."""

from __future__ import annotations

import pytest

from grading.reading.notation import Relation, is_equation, read_relation, without_name


@pytest.mark.parametrize(
    ("text", "operands", "signs"),
    [
        ("5", ("5",), ()),
        ("x = 5", ("x", "5"), ("=",)),
        (r"1 \le x<3", ("1", "x", "3"), ("<=", "<")),
        (r"x \not= 2", ("x", "2"), ("!=",)),
        (r"x \in \{a=b\}", ("x", r"\{a=b\}"), ("in",)),
        (r"f(a=b) \geqslant 2", ("f(a=b)", "2"), (">=",)),
        (r"\left", (r"\left",), ()),
        ("x =< 2", ("x", "2"), ("<=",)),
    ],
)
def test_a_chain_is_split_at_its_signs(text: str, operands: tuple[str, ...], signs: tuple[str, ...]) -> None:
    assert read_relation(text) == Relation(operands, signs)


def test_a_descending_chain_is_turned_around_and_a_mixed_one_is_not() -> None:
    assert read_relation("3 > x >= 1").ascending() == Relation(("1", "x", "3"), ("<=", "<"))
    mixed = read_relation("3 > x < 4")
    assert mixed.ascending() == mixed


@pytest.mark.parametrize(("text", "expected"), [("x=5", True), ("x=y=5", True), ("x=y<5", False), ("(x=5)", False)])
def test_an_equation_has_no_other_sign(text: str, expected: bool) -> None:
    assert is_equation(text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 5", "5"),
        ("f(x) = 2x", "2x"),
        ("a_1 = 7", "7"),
        (r"x \in [1,2]", "[1,2]"),
        ("x = y = 5", "5"),
        ("2x = 5", "2x = 5"),
        ("x < 5", "x < 5"),
        ("x =", "x ="),
        ("5", "5"),
    ],
)
def test_only_a_name_is_dropped(text: str, expected: str) -> None:
    assert without_name(text) == expected
