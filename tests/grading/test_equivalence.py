"""Answers that equal a gold, and answers that do not."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from grading import Gold, Submission
from grading.bounds import why_not_parsed
from grading.equivalence import compare_special_forms, equivalent
from grading.grade import grade
from grading.reading import Match, Pair, best_match
from grading.reading.notation import clean, split_list
from grading.reading.quantities import read_number


def verdict(gold: Gold | str, answer: str) -> str:
    gold = Gold(gold) if isinstance(gold, str) else gold
    return grade(Submission(rf"\boxed{{{answer}}}", "answered", thinks=False), gold).verdict


EQUAL = [
    ("42", "42.0"),
    ("42", "042"),
    ("42", "４２"),
    ("42", "\u202e42\u200f"),
    ("1,234", "1234"),
    ("1234", "1 234"),
    ("11,\\! 111,\\! 111,\\! 100", "11111111100"),
    (r"\$18", "18"),
    ("18", "18 dollars"),
    ("18", r"\$18.00"),
    (".5", r"\frac12"),
    (r"\frac{1}{3}", "0.333333"),
    (r"1\frac{4}{5}", "9/5"),
    ("1.75", "1 3/4"),
    ("0.35", r"35\%"),
    ("5", r"5\%"),
    ("3.54e-07", r"3.54\times10^{-7}"),
    ("90^\\circ", "90"),
    ("90", "90°"),
    (r"864 \mbox{ inches}^2", "864"),
    (r"3\sqrt{13}", r"\sqrt{117}"),
    (r"3\sqrt{13}", r"3\sqrt{13}\text{ units}"),
    (r"-1+\sqrt3", "-1 + sqrt(3)"),
    (r"\frac{1}{2^{99}}", "2^{-99}"),
    ("x=5", "5"),
    ("5", "x = 5"),
    ("73", "m+n = 73"),
    ("6+9i", "6 + 9 i"),
    ("80-10 i", "80-10i"),
    ("1+2i", "i(2-i)"),
    ("-1", r"e^{i\pi}"),
    ("1,-2", "-2, 1"),
    ("1,-2", r"\{-2,1\}"),
    ("1,-2", r"x=1 \text{ or } x=-2"),
    (r"1 \pm \sqrt{19}", r"1+\sqrt{19}, 1-\sqrt{19}"),
    ("52_8", "52_{8}"),
    (r"\text{even}", "Even"),
    (r"\text{(C)}", "C"),
    ("y = 2x+3", "y=3+2x"),
    ("x^2+121=0", "121+x^2=0"),
    ("5x-7y+4=0", "-5x+7y-4=0"),
    (r"x \in [-2,7]", "[-2,7]"),
    (r"(3, \frac{\pi}{2})", r"\left(3, \pi/2\right)"),
    (r"\begin{pmatrix} -1/3 \\ 2/3 \end{pmatrix}", r"\begin{pmatrix} -\frac13 \\ \frac23 \end{pmatrix}"),
    ("(a+5)(b+2)", "ab+2a+5b+10"),
    (r"\frac{20000}{\pi}", "6366.197724"),
    ("10^{10^{10}}", "10^{10^{10}}"),
]
DIFFERENT = [
    ("42", "41"), ("5", "-5"), ("5", r"500\%"), ("3", "3xyz"), ("2", "2i"), ("42", r"\{0,1,42\}"),
    ("18", "18 dollars and 50 cents"), (r"\frac{1}{3}", "0.33"), ("x^2+121=0", "x^2+1=0"),
    (r"\log_2 32=5", "x^2+121=0"), ("0", "3x+4y=0"), ("1", "2x+3y=1"), ("stop", "post"), ("even", "neve"),
    ("no", "on"), ("52_8", "52_9"), ("52_8", "52"), (r"\frac{1}{2^{99}}", r"\frac{1}{2^{98}}"),
    ("1/2004!", "1/2006!"), (".0000672", ".0000673"), ("0.1", "0.1000001"), (r"1-1/\mathrm{e}", r"1+1/\mathrm{e}"),
    (r"1,2,\ldots,n", r"1,3,5,\ldots,2n-1"), ("(1,2)", r"\{1,2\}"), (r"\{1,2\}", "(1,2)"), ("(1,2)", "(2,1)"),
    ("(3,4]", "[3,4]"), ("13 n, 5 d", "13 n, 6 d"), ("25", "There is no extra taler 25"), ("1,1,2", "1,2,2"),
    ("1,1,2", "1,2"), ("y=2x+3", "y=2x+4"), (r"\text{Evelyn}", r"\text{Navin}"), ("-1", "e^{i}"),
]  # fmt: skip


@pytest.mark.parametrize(("gold", "answer"), EQUAL)
def test_the_same_value_in_other_notation_is_correct(gold: str, answer: str) -> None:
    assert verdict(gold, answer) == "correct"


@pytest.mark.parametrize(("gold", "answer"), DIFFERENT)
def test_another_value_is_not_correct(gold: str, answer: str) -> None:
    assert verdict(gold, answer) in {"wrong", "unparsable"}


@pytest.mark.parametrize(
    ("gold", "answer", "expected"),
    [
        (Gold("1,2", answers=("1", "2")), "2,1", "correct"),
        (Gold("8,221", answers=("8", "221")), "221, 8", "correct"),
        (Gold("-2,-2", answers=("-2", "-2")), "-2", "wrong"),
        (Gold("-2,-2", answers=("-2", "-2")), "-2,-2", "correct"),
        (Gold("3,1", answers=("3", "1")), "3,1,1", "wrong"),
        (Gold("3", alternatives=("-3", "3")), "-3", "correct"),
        (Gold("3", alternatives=("-3", "3")), "-3,3", "wrong"),
        (Gold("4.2", tolerance=0.1), "4.28", "correct"),
        (Gold("4.2", tolerance=0.1), "4.31", "wrong"),
        (Gold("3.14", tolerance=0.01), r"\pi", "correct"),
        (Gold("45", unit="minute"), "45 minutes", "correct"),
        (Gold("166", unit="$cm^2$"), r"166\text{ cm}^2", "correct"),
    ],
)
def test_parts_alternatives_tolerance_and_units_of_a_gold_count(gold: Gold, answer: str, expected: str) -> None:
    assert verdict(gold, answer) == expected


def test_parts_may_stand_in_a_box_each() -> None:
    gold = Gold("1,2", answers=("1", "2"))
    text = r"so $x=\boxed{1}$ or $x=\boxed{2}$, that is \boxed{1}, \boxed{2}"
    assert grade(Submission(text, "answered", thinks=False), gold).verdict == "correct"


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
    assert verdict(gold, answer) in ("wrong", "unparsable")
    assert time.process_time() - started < 3


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


NONE, NO, YES = Match(None, "a"), Match(False, "b"), Match(True, "c")


def test_other_texts_keep_tolerance_and_unit() -> None:
    assert Pair("1", "2", 0.5, "cm").with_texts("3", "4") == Pair("3", "4", 0.5, "cm")


@pytest.mark.parametrize(
    ("gold", "prediction", "expected"),
    [(r"1 \pm 2", "3", True), ("3", "1+-2", True), ("3", "1-2", False), ("", "", False)],
)
def test_plus_minus_is_noticed_on_either_side(gold: str, prediction: str, expected: bool) -> None:
    assert Pair(gold, prediction).has_plus_minus is expected


@pytest.mark.parametrize(
    ("matches", "expected"),
    [
        ([NONE, NO, YES], YES),
        ([NONE, NO], NO),
        ([NONE], NONE),
        ([NO, Match(False, "later")], NO),
    ],
)
def test_an_equal_match_is_best_and_an_unequal_one_better_than_none(matches: list[Match], expected: Match) -> None:
    assert best_match(matches) == expected
