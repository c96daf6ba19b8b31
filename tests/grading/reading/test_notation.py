"""Cleaning changes the notation of an answer and never its meaning."""

from __future__ import annotations

import pytest

from grading.reading.notation import (
    Relation,
    clean,
    read_relation,
    without_name,
)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("$5$.", "5"), (r"\dfrac12", r"\frac{1}{2}"), (r"\left( 1 \right)", "( 1 )"), ("٤٢", "42"), ("x²", "x^{2}"),
        ("x₁", "x_{1}"), ("½", r"\frac{1}{2}"), ("√2", r"\sqrt{2}"), ("π", r"\pi"), (r"\$1{,}000", "1000"),
        ("2**3", "2^3"), ("**5**", "5"), (r"\mathbf{42}", "42"), (r"\text{x=5}", "x=5"), (r"\[5\]", "5"),
        ("4\u200b1", "41"), ("α", r"\alpha"), ("5\x00", "5"), (r"90^{\circ}", r"90^\circ"),
        (r"\\frac12", r"\frac{1}{2}"), ("0.33...", r"0.33\ldots"), (r"5~\text{cm}", r"5 \text{cm}"),
        (r"\sqrt3", r"\sqrt{3}"), ("`7`", "7"), (r"\lbrace 1 \rbrace", r"\{ 1 \}"),
    ],
)  # fmt: skip
def test_one_notation_for_one_thing(answer: str, expected: str) -> None:
    assert clean(answer) == expected


@pytest.mark.parametrize(
    ("text", "operands", "signs"),
    [
        ("5", ("5",), ()), ("x = 5", ("x", "5"), ("=",)), (r"1 \le x<3", ("1", "x", "3"), ("<=", "<")),
        (r"x \not= 2", ("x", "2"), ("!=",)), (r"x \in \{a=b\}", ("x", r"\{a=b\}"), ("in",)),
        (r"f(a=b) \geqslant 2", ("f(a=b)", "2"), (">=",)), (r"\left", (r"\left",), ()),
        ("x =< 2", ("x", "2"), ("<=",)),
    ],
)  # fmt: skip
def test_a_chain_is_split_at_its_signs(text: str, operands: tuple[str, ...], signs: tuple[str, ...]) -> None:
    assert read_relation(text) == Relation(operands, signs)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 5", "5"), ("f(x) = 2x", "2x"), ("a_1 = 7", "7"), (r"x \in [1,2]", "[1,2]"), ("x = y = 5", "5"),
        ("2x = 5", "2x = 5"), ("x < 5", "x < 5"), ("x =", "x ="), ("5", "5"),
    ],
)  # fmt: skip
def test_only_a_name_is_dropped(text: str, expected: str) -> None:
    assert without_name(text) == expected
