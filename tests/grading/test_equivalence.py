"""Notations that are compared in ways of their own, and what costs no more than it should; verdicts are in `cases/`."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from grading import Gold, Submission
from grading.bounds import why_not_parsed
from grading.equivalence import compare_special_forms, equivalent
from grading.grade import grade
from grading.reading import Match, Pair
from grading.reading.notation import clean, split_list
from grading.reading.quantities import read_number


@pytest.mark.parametrize(
    "piece", ["{", "a_", "_a", "x^", "1,", "1 ", "sqrt(", r"\text{", "a ", "=", "a=", "!", "5!", "-"]
)
def test_reading_before_the_parser_is_linear_in_repeated_pieces(piece: str) -> None:
    text = (piece * 2000)[:1990] + "9"
    started = time.process_time()
    cleaned = clean(text)
    why_not_parsed(cleaned)
    compare_special_forms(Pair("a=9", cleaned), lambda pair: equivalent(*pair.texts))
    read_number(cleaned)
    split_list(cleaned)
    assert time.process_time() - started < 0.5


def test_importing_the_package_does_not_import_the_symbolic_libraries() -> None:
    program = "import sys, grading; assert not {'sympy', 'math_verify', 'torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (r"\sum_{n=0}^{\infty}\frac{x^n}{n!}", r"\sum_{n=0}^{\infty}\frac{x^{2n}}{n+3}"),
        ("4", "e^{\\pi^{e^{\\pi}}}"),
        ("x_1", "a" + "_{b" * 25 + "}" * 25),
        (r"\int_0^1 e^{x^2}dx", r"\int_0^3 e^{-x^3}\cos(x^2)dx"),
    ],
)
def test_what_the_symbolic_libraries_cannot_settle_costs_little(gold: str, answer: str) -> None:
    started = time.process_time()
    found = grade(Submission(rf"\boxed{{{answer}}}", "answered", thinks=False), Gold(gold))
    assert found.verdict in ("wrong", "unparsable")
    assert time.process_time() - started < 3


@pytest.mark.parametrize(
    ("gold", "prediction", "expected"),
    [
        ("52_8", "52_{\\text{eight}}", Match(True, "digits and base")),
        ("52_8", "52", Match(False, "digits and base")), ("52_8", "x", None), ("4:30", "04:30", Match(True, "times")),
        (r"4:30 \text{ pm}", "4:30 am", Match(False, "times")), (r"4:30 \text{ pm}", "5", Match(False, "a time")),
        ("3:4", "6:8", Match(True, "ratios")), ("1:2:3", "2:4", Match(False, "ratios")),
        ("1:2:3", "5", Match(False, "ratios")), ("1:0", "2:3", None),
        ("A, C", "(A) and (C)", Match(True, "option letters")), ("A", "(B) 12", Match(False, "option letters")),
        ("7", "seven", Match(True, "a number in words")), ("even", "odd", Match(False, "words")),
        (r"\mathbb{R}", r"\text{all real numbers}", Match(True, "words")), (r"\mathbb{R}", "R", None),
        (r"1,2,\ldots,n", "1,2,...,n", Match(True, "only compared as a string")),
        (r"1,2,\ldots,n", "1,2", Match(False, "only compared as a string")),
        ("1,2", r"1,2,\ldots,n", Match(None, "only compared as a string")),
        ("5, 6", r"\text{5 apples}, \text{6 pears}", None), ("5", r"\text{number of apples} = 5", None),
        ("x", "y", None),
    ],
)  # fmt: skip
def test_special_forms(gold: str, prediction: str, expected: Match | None) -> None:
    def compare(pair: Pair) -> Match:
        return equivalent(*pair.texts)

    assert compare_special_forms(Pair(gold, prediction), compare) == expected
