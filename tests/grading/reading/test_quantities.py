"""Numbers are read exactly, with percent signs, units and repeating decimals."""

from __future__ import annotations

from fractions import Fraction

import pytest

from grading.reading import Match, Pair
from grading.reading.quantities import (
    MAX_DIGITS,
    compare_numbers,
    is_same_number,
    read_number,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("42", 42), ("-42", -42), ("+7", 7), ("1,234", 1234), ("1 234", 1234), (".5", Fraction(1, 2)), ("5.", 5),
        ("1e3", 1000), (r"1.5 \times 10^{-3}", Fraction(3, 2000)), ("3/4", Fraction(3, 4)), ("1 3/4", Fraction(7, 4)),
        (r"1\frac{3}{4}", Fraction(7, 4)), (r"\frac34", Fraction(3, 4)), (r"0.333\ldots", Fraction(1, 3)),
        ("5 cm", 5), ("2 million", 2_000_000), (r"3.14\ldots", Fraction(157, 50)), (r"-\frac{1}{2}", Fraction(-1, 2)),
    ],
)  # fmt: skip
def test_exact_numbers(text: str, value: Fraction | int) -> None:
    number = read_number(text)
    assert number is not None
    assert number.value == value


@pytest.mark.parametrize(
    "text",
    ["x", "", "1/0", r"\frac{1}{0}", "1,23", "9" * (MAX_DIGITS + 1), "2^3", "1 -3/4", r"\frac{1,2}{x}", "1e9999"],
)
def test_anything_else_is_not_a_number(text: str) -> None:
    assert read_number(text) is None


@pytest.mark.parametrize(
    ("gold", "prediction", "expected"),
    [
        ("5", "5%", True), ("5%", "5", True), ("0.35", "35%", True), ("5", "500%", False), ("50%", "0.5", True),
        ("1/3", "0.333333", True), ("1/3", "0.333", False), ("1/3", "0.333334", True), ("0.1", "0.1000001", False),
        ("0.333333", "1/3", True), ("1/8", "0.125001", False), ("1/3", "33.333333%", False),
    ],
)  # fmt: skip
def test_percent_signs_and_rounding(gold: str, prediction: str, expected: bool) -> None:
    gold_number, number = read_number(gold), read_number(prediction)
    assert gold_number is not None
    assert number is not None
    assert is_same_number(gold_number, number) is expected


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        (Pair("5", "x"), None), (Pair("x", "5"), None), (Pair("5 cm", "5 m"), Match(False, "another unit")),
        (Pair("5 cm", "5"), Match(True, "exact numbers")),
        (Pair("5", "5.4", tolerance=0.5), Match(True, "exact numbers")),
        (Pair("5", "5.6", tolerance=0.5), Match(False, "exact numbers")),
    ],
)  # fmt: skip
def test_two_numbers_are_compared_and_anything_else_is_left(pair: Pair, expected: Match | None) -> None:
    assert compare_numbers(pair) == expected
