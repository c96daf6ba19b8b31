"""The parser of the second grader knows a fixed list of constructs."""

from __future__ import annotations

import pytest

from grading.second.formula import Unreadable, read_expression, symbolic


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1+2*3", "7"),
        ("--2", "2"),
        (r"\frac{6}{4}", "3/2"),
        (r"1\frac12", "3/2"),
        (r"\sqrt[3]{8}", "2"),
        ("5!", "120"),
        (r"\binom{5}{2}", "10"),
        (r"\log_2 8", "3"),
        ("|-3|", "3"),
        (r"\sin^2 0", "0"),
        ("50%", "50"),
        (r"90^\circ", "90"),
        (r"6 \div -2", "-3"),
        ("2^{-1}", "1/2"),
        (r"\ln 1", "0"),
        ("i^2", "-1"),
    ],
)
def test_values(text: str, value: str) -> None:
    assert symbolic().simplify(read_expression(text) - symbolic().Rational(value)) == 0


def test_letters_have_subscripts() -> None:
    assert {symbol.name for symbol in read_expression(r"x_1 + y_{2} + \alpha").free_symbols} == {
        "x_1",
        "y_2",
        "alpha",
    }


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1)",
        "(1",
        r"\int x",
        "1/0",
        "0^{-1}",
        "10^{10^{10}}",
        "201!",
        "1.5!",
        r"\binom{2}{5}",
        "9" * 61,
        "52_8",
        r"\sin^{-1} x",
        "x_+",
        "é",
        "(" * 30,
        "1" * 1001,
        r"\foo",
    ],
)
def test_anything_else_is_unreadable(text: str) -> None:
    with pytest.raises(Unreadable):
        read_expression(text)
