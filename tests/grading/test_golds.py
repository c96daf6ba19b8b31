"""Golds graded as answers: which no answer meets, and which are solutions, sentences or several lines."""

from __future__ import annotations

import pytest

from grading import Gold
from grading.check import Conclusion, conclusion, findings, to_grade

SOLUTION = "Tom has 2*3=<<2*3=6>>6 eggs.\nHe eats 1, so 6-1=5 are left.\n#### 5"
MATRIX = "\\begin{pmatrix}\n1 & 2 \\\\\n3 & 4\n\\end{pmatrix}"


@pytest.mark.parametrize(
    ("gold", "expected"),
    [
        (SOLUTION, Conclusion("5", "hashes")),
        ("So it is 5 #### 1,042", Conclusion("1,042", "hashes")),
        ("#### no solution", Conclusion("no solution", "hashes")),
        (r"We get $x=2$, so $\boxed{\frac{3}{4}}$.", Conclusion(r"\frac{3}{4}", "boxed")),
        ("The answer is 42 because 6 times 7 is that.", Conclusion("42", None)),
        ("答案是5", Conclusion("5", None)),
        ("First add.\nThen get\n7", Conclusion("7", None)),
        ("x = 3\ny = 4", Conclusion("4", None)),
        ("blue\nred", Conclusion("blue\nred", None)),
    ],
)
def test_a_gold_that_is_more_than_an_answer_has_a_conclusion_and_the_rule_that_reads_it(
    gold: str, expected: Conclusion
) -> None:
    assert conclusion(gold) == expected


@pytest.mark.parametrize(
    "gold",
    ["42", "-3.5", r"\frac{1}{2}", r"$\boxed{7}$", "1/2", "3 1/2", "50%", "$12", "5 cm", "½", "√2", r"x^2+1",
     "no solution", "(1, 2), (3, 4)", r"90\text{ square" + "\nunits}", MATRIX, "5\n", "####"],
)  # fmt: skip
def test_an_answer_alone_has_none(gold: str) -> None:
    assert conclusion(gold) is None


def test_a_gold_is_met_if_what_it_concludes_with_is_graded_correct_against_it() -> None:
    golds = [
        Gold("42"),
        Gold("B", kind="choice", choices=("x", "y")),
        Gold(r"\frac{1}{2"),
        Gold(SOLUTION),
        Gold(r"So $x=2$, hence $\boxed{\frac{3}{4}}$."),
        Gold("The answer is 42 because 6 times 7 is that."),
        Gold("1, 2", answers=("1", "2")),
        Gold("5", alternatives=("5", SOLUTION)),
    ]
    assert to_grade(golds) == [2, 3, 4, 5, 6, 7]
    found = findings(golds, to_grade(golds), workers=1)
    assert {index: (bool(f.rejected), f.conclusion and f.conclusion.rule, f.is_met) for index, f in found.items()} == {
        2: (True, None, False),
        3: (False, "hashes", False),
        4: (False, "boxed", True),
        5: (False, None, False),
        7: (False, "hashes", False),
    }
