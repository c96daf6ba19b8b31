"""The second grader extracts answers and options by rules of its own."""

from __future__ import annotations

import pytest

from grading.second.answers import Answer, find_answer, named_option, without_unit


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"\boxed{1} and \boxed{\frac{1}{2}}", Answer(r"\frac{1}{2}", "box", ("1", r"\frac{1}{2}"))),
        (r"\boxed{1} and \boxed{2", Answer("1", "box", ("1",))),
        (r"\boxed{\boxed{7}}", Answer(r"\boxed{7}", "box", (r"\boxed{7}",))),
        ("so\n#### 42", Answer("42", "hashes")),
        ("The answer is $x^2$. Done.", Answer("x^2", "said")),
        ("The answer is 42 because of that", Answer("42", "said")),
        ("we get 1,234.5 in all", Answer("1,234.5", "last number")),
        ("nothing", None),
        ("<think>7", None),
    ],
)
def test_the_most_explicit_answer_counts(text: str, answer: Answer | None) -> None:
    assert find_answer(text, thinks=False, is_choice=False, is_cut_off=False) == answer


def test_a_text_that_was_cut_off_has_only_boxes() -> None:
    assert find_answer("The answer is 5", thinks=False, is_choice=False, is_cut_off=True) is None
    assert find_answer(r"\boxed{5} and", thinks=False, is_choice=False, is_cut_off=True) is not None


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("I choose option C, not D", Answer("C", "said")),
        ("so (B)", Answer("B", "letter")),
        ("\nD\n", Answer("D", "letter")),
        ("?", None),
    ],
)
def test_a_choice_is_the_last_stated_letter(text: str, answer: Answer | None) -> None:
    assert find_answer(text, thinks=False, is_choice=True, is_cut_off=False) == answer


@pytest.mark.parametrize(
    ("text", "option"), [("B", "B"), ("(b) 12", "B"), (r"\text{A. x}", "A"), ("y", "B"), ("z", None), ("D", None)]
)
def test_an_option_is_named_by_letter_or_text(text: str, option: str | None) -> None:
    assert named_option(text, ("x", "y", "w")) == option


@pytest.mark.parametrize(
    ("text", "expected"), [("3 feet", "3"), ("3 Feet.", "3"), (r"3\text{ feet}", "3"), ("3", None), ("feet", None)]
)
def test_the_unit_of_a_problem_is_removed(text: str, expected: str | None) -> None:
    assert without_unit(text, "feet") == expected
