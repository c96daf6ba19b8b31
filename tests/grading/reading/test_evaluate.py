"""Values are exact where they can be, bounded in size, and compared at fixed points."""

from __future__ import annotations

from fractions import Fraction

import pytest

from grading.reading.evaluate import (
    UndefinedError,
    constant_value,
    evaluate,
    is_same_expression,
    is_same_value,
)
from grading.reading.formula import Node, read_formula


def node_of(text: str) -> Node:
    node = read_formula(text)
    assert node is not None
    return node


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2/3+1/3", 1), ("4^{1/2}", 2), ("(-8)^{1/3}", -2), ("8^{2/3}", 4), ("0^0", 1), ("(-1)^{1001}", -1),
        ("1^{99999}", 1), (r"\binom{6}{3}", 20), ("|-3|", 3), ("3!", 6), (r"\lg 1000", 3), (r"\exp 0", 1),
        (r"\sqrt[3]{-27}", -3), ("(-2)^{1/3}(-2)^{2/3}", -2), ("0.5!", Fraction(0.886226925452758)),
    ],
)  # fmt: skip
def test_values(text: str, value: Fraction | int) -> None:
    assert is_same_value(constant_value(node_of(text)), Fraction(value), 1e-12)


@pytest.mark.parametrize(
    "text",
    [
        "1/0", "0^{-1}", "9999!", "(9999.5)!", r"\ln 0", r"\sin(10^{10})", r"\sqrt[0]{2}", r"\binom{9999}{2}",
        "((2^{9999})^{99})^{99}", r"\pi^{10000000}",
    ],
)  # fmt: skip
def test_undefined_and_huge_values_are_refused(text: str) -> None:
    assert constant_value(node_of(text)) is None
    with pytest.raises(UndefinedError):
        evaluate(node_of(text), {})


@pytest.mark.parametrize(
    ("gold", "prediction", "expected"),
    [
        ("(x+1)^2", "x^2+2x+1", True), ("x", "y", False), (r"\log x", r"\frac{\ln x}{\ln 10}", True),
        ("1/0", "1/0", None), (r"\sqrt{x^2}", "x", True), ("x^2", "|x|^2", True), ("0.3333333x", "x/3", True),
        ("i x", "-i x", False), (r"\log 100", "2", True), ("x/(y-y)", "x", None), ("i x", "x i", True),
    ],
)  # fmt: skip
def test_expressions_are_compared_by_their_values(gold: str, prediction: str, expected: bool | None) -> None:
    assert is_same_expression(node_of(gold), node_of(prediction)) is expected
