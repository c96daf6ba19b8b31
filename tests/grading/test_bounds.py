"""Answers that could take unbounded time or memory never reach a parser."""

from __future__ import annotations

import pytest

from grading.bounds import why_not_parsed
from grading.equivalence import equivalent


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("10^{10^{10}}", "a tower of exponents"), ("9^{9^9}", "a tower of exponents"),
        ("2^{2^{2^{49}}}", "a tower of exponents"), ("10**10**10", "a tower of exponents"),
        ("(10^{999})^{999}", "a tower of exponents"), ("((7^{99})^{99})^{99}", "a tower of exponents"),
        ("2^{(3^{9})^{9}}", "a tower of exponents"), ("10^{99999}", "an exponent above 10000"),
        ("10000000!", "a factorial above 3000"), ("5!!", "a factorial above 3000"),
        ("(999!)!", "a factorial above 3000"), ("9" * 401, "more than 400 digits in a row"),
        ("(" * 32 + ")" * 32, "nested deeper than 30"),
        (r"\binom{10000000}{5000000}", "a sum, product or special function of large numbers"),
        ("x" * 2001, "longer than 2000 characters"),
    ],
)  # fmt: skip
def test_unbounded_answers_never_reach_a_parser(answer: str, reason: str) -> None:
    assert why_not_parsed(answer) == reason
    assert equivalent("42", answer).is_equal is None


@pytest.mark.parametrize(
    "answer",
    [
        "2^{2023}", "e^{x^2}", "10!", "x^{10}", r"\binom{10}{3}", "n!", "2^{10}-2^{9}", "(n-1)!", "(10^{10})^{10}",
        "x^2+3^2", r"\frac{4x}{(x^2+1)^2}", "e^{-(x-2)^2/2}", "(x^2+1)^9(x^3+1)^9(x^4+1)^9(x^5+1)^9",
    ],
)  # fmt: skip
def test_ordinary_answers_reach_the_parser(answer: str) -> None:
    assert why_not_parsed(answer) is None
