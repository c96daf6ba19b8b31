"""One expression is read as a whole or not at all."""

from __future__ import annotations

from fractions import Fraction

import pytest

from grading.reading.evaluate import constant_value, is_same_value
from grading.reading.formula import (
    read_formula,
    symbols,
)

VALUES = [
    ("1+2*3", 7), ("2^3^2", 512), ("-2^2", -4), ("2^{-1}", Fraction(1, 2)), (r"\frac{1}{2}+\frac12", 1),
    ("6/2(3)", 9), (r"\sqrt{16}", 4), (r"\sqrt[3]{27}", 3), ("cbrt(8)", 2), ("|3-5|", 2), ("||1-3|-5|", 3),
    ("5!", 120), ("50%", Fraction(1, 2)), (r"\lfloor 2.7 \rfloor", 2), (r"\lceil 2.2 \rceil", 3),
    (r"\lvert -3 \rvert", 3), (r"\binom{5}{2}", 10), (r"\log_2 8", 3), (r"\log_{10}{1000}", 3), ("sin(0)", 0),
    (r"\cos \pi", -1), (r"\sin^2 0", 0), (r"\sin^{-1} 0", 0), (r"180^\circ/\pi", 1), (r"6 \div 2", 3),
    ("1 3/4", Fraction(7, 4)), (r"1\frac34", Fraction(7, 4)), (r"0.\overline{3}", Fraction(1, 3)), ("1.5e2", 150),
    (r"\exp{0}", 1), (r"\operatorname{ln} 1", 0), ("[1+2]3", 9), ("{}4", 4), (r"\tan 0/5", 0), (r"\sin 2\pi/4", 1),
    ("2--3", 5), (r"i^2", -1), (r"\imath^2", -1), (r"\sin[0]", 0), (r"\sin|0|", 0), (r"\sin -0", 0),
    (r"3 \times -2", -6),
]  # fmt: skip
REFUSED = [
    "", "1 +", "(1", "1 2", r"\int x", "a &", r"\frac{1}", "|1", "2^*", r"\text{abc}", r"\left(", "é", r"\vec", "1)",
    ".",
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), VALUES)
def test_notations_of_numbers(text: str, value: Fraction | int) -> None:
    node = read_formula(text)
    assert node is not None
    number = constant_value(node)
    assert number is not None
    assert is_same_value(number, Fraction(value))


@pytest.mark.parametrize("text", REFUSED)
def test_anything_else_is_refused(text: str) -> None:
    assert read_formula(text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("xy", {"x", "y"}), (r"\alpha_1", {"alpha_1"}), ("x'", {"x'"}), (r"\vec{a}", {"vec:a"}),
        (r"\hat a", {"vec:a"}), (r"\bar{a}", {"bar:a"}), (r"\mathrm{x}", {"x"}), ("infinity", {"oo"}),
        (r"\infty", {"oo"}), (r"\varphi", {"phi"}), (r"\jmath", {"j"}), ("sinx", {"x"}), ("pix", {"x"}),
        ("a_{n+1}", {"a_n+1"}), ("theta", {"theta"}),
    ],
)  # fmt: skip
def test_names_of_variables(text: str, expected: set[str]) -> None:
    node = read_formula(text)
    assert node is not None
    assert symbols(node) == expected
