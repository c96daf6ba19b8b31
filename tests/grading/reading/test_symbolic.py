"""math-verify decides the rest, and its positive answers are checked again."""

from __future__ import annotations

import pytest

from grading.reading import Match, Pair
from grading.reading.symbolic import compare_symbols


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        (Pair(r"\int_0^1 x dx", r"\frac{1}{2}"), Match(True, "symbols")),
        (Pair("x^2+1", "x^2+2"), Match(False, "symbols")),
        (Pair("1+2i", "2i+1"), Match(True, "complex numbers")),
        (Pair("x^2+121=0", "x^2+1=0"), Match(False, "symbols")),
        (Pair("x+y=2", "2x+2y=4"), Match(True, "symbols")),
        (Pair("5", "x=5"), Match(False, "symbols")),
        (Pair("3", r"\frac{1}{"), Match(None, "unbalanced braces")),
        (Pair("3", r"\frac{1}{}+"), Match(None, "does not parse")),
        (Pair(r"\#", "3"), Match(False, "the gold is only compared as a string")),
        (Pair("3.14", "3.15", tolerance=0.02), Match(True, "within the tolerance")),
        (Pair("3.14", "3.18", tolerance=0.02), Match(False, "within the tolerance")),
    ],
)
def test_symbols(pair: Pair, expected: Match) -> None:
    assert compare_symbols(pair) == expected
