"""math-verify decides the rest, and its positive answers are checked again."""

from __future__ import annotations

import pytest

from grading.reading import Match, Pair
from grading.reading.symbolic import compare_symbols, load


@pytest.mark.parametrize(
    ("gold", "prediction", "expected"),
    [
        (r"\int_0^1 x dx", r"\frac{1}{2}", Match(True, "symbols")),
        ("x^2+1", "x^2+2", Match(False, "symbols")),
        ("1+2i", "2i+1", Match(True, "complex numbers")),
        ("x^2+121=0", "x^2+1=0", Match(False, "symbols")),
        ("x+y=2", "2x+2y=4", Match(True, "symbols")),
        ("5", "x=5", Match(False, "symbols")),
        ("3", r"\frac{1}{", Match(None, "unbalanced braces")),
        (r"\frac{1}{", "3", Match(False, "the gold is compared as a string only")),
        ("3", r"\frac{1}{}+", Match(None, "does not parse")),
        (r"\#", "3", Match(False, "the gold is compared as a string only")),
    ],
)
def test_symbols(gold: str, prediction: str, expected: Match) -> None:
    assert compare_symbols(Pair(gold, prediction)) == expected


def test_the_tolerance_counts() -> None:
    assert compare_symbols(Pair("3.14", "3.15", tolerance=0.02)) == Match(True, "within the tolerance")
    assert compare_symbols(Pair("3.14", "3.18", tolerance=0.02)) == Match(False, "within the tolerance")


def test_loading_twice_returns_the_same_libraries() -> None:
    assert load() is load()
