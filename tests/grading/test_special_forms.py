"""Bases, times, ratios, option letters, words and dots have rules of their own."""

from __future__ import annotations

import pytest

from grading.equivalence import compare_special_forms, equivalent
from grading.reading import Match, Pair


@pytest.mark.parametrize(
    ("gold", "prediction", "expected"),
    [
        ("52_8", "52_{8}", Match(True, "digits and base")),
        ("52_8", "52_{\\text{eight}}", Match(True, "digits and base")),
        ("52_8", "52", Match(False, "digits and base")),
        ("52_8", "x", None),
        ("4:30", "04:30", Match(True, "times")),
        (r"4:30 \text{ pm}", "4:30 am", Match(False, "times")),
        (r"4:30 \text{ pm}", "5", Match(False, "a time")),
        ("3:4", "6:8", Match(True, "ratios")),
        ("3:4", r"\frac{3}{4}", Match(True, "ratios")),
        ("1:2:3", "2:4:6", Match(True, "ratios")),
        ("1:2:3", "2:4", Match(False, "ratios")),
        ("1:2:3", "5", Match(False, "ratios")),
        ("1:0", "2:3", None),
        (r"\{x|x:y\}", "1:2", None),
        ("A, C", "(A) and (C)", Match(True, "option letters")),
        ("A", "(B) 12", Match(False, "option letters")),
        ("7", "seven", Match(True, "a number in words")),
        ("even", "Even", Match(True, "words")),
        ("even", "odd", Match(False, "words")),
        (r"\mathbb{R}", r"\text{all real numbers}", Match(True, "words")),
        (r"\mathbb{R}", "R", None),
        ("dne", r"\text{undefined}", Match(True, "words")),
        (r"1,2,\ldots,n", "1,2,...,n", Match(True, "compared as a string only")),
        (r"1,2,\ldots,n", "1,2", Match(False, "compared as a string only")),
        ("1,2", r"1,2,\ldots,n", Match(None, "compared as a string only")),
        ("5, 6", r"\text{5 apples}, \text{6 pears}", None),
        ("5", r"\text{number of apples} = 5", None),
        ("x", "y", None),
    ],
)
def test_special_forms(gold: str, prediction: str, expected: Match | None) -> None:
    def compare(pair: Pair) -> Match:
        return equivalent(*pair.texts)

    assert compare_special_forms(Pair(gold, prediction), compare) == expected
