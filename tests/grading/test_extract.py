"""The answer is extracted from a text by the most explicit rule that applies."""

from __future__ import annotations

import pytest

from grading.extract import chosen_letter, extract, final_part
from tests.grading import timed

MATH_CASES = [
    (r"so \boxed{42}.", "42", "boxed"), (r"\boxed{1} and then \boxed{2}", "2", "boxed"),
    (r"\boxed{\frac{1}{\sqrt{2}}}", r"\frac{1}{\sqrt{2}}", "boxed"), (r"\boxed{\{1,2\}}", r"\{1,2\}", "boxed"),
    (r"\fbox{7}", "7", "boxed"), (r"\boxed {7}", "7", "boxed"), (r"\boxed{\boxed{7}}", r"\boxed{7}", "boxed"),
    (r"\boxed{42}}}}", "42", "boxed"), (r"{{{ \boxed{42}", "42", "boxed"),
    (r"the answer is 5, so \boxed{42}", "42", "boxed"), ("steps\n#### 42", "42", "hashes"),
    ("#### 1,234\n", "1,234", "hashes"), ("Final answer: 42.", "42", "final_answer"),
    ("**Final Answer:** 42", "42", "final_answer"),
    ("The final answer is $x^2$. I hope it is correct.", "x^2", "final_answer"),
    ("The answer is 42. It follows from 17.", "42", "answer_is"),
    ("The answer is not 5, the answer is 6", "6", "answer_is"), ("Answer: **42**", "42", "answer_is"),
    ("The answer is 3.5 because 7/2 is", "3.5", "answer_is"),
    (r"The answer is \(\frac12\).", r"\frac12", "answer_is"), ("The answer is $69$ and $84$.", "69, 84", "answer_is"),
    (r"The answer is $\$40$.", r"\$40", "answer_is"), ("Answer:\n\n17", "17", "answer_is"),
    ("we get 3 and then 1,234.5 in all", "1,234.5", "last_number"), ("we get x_1 = -7", "-7", "last_number"),
    ("half of it is 1/2", "1/2", "last_number"),
]  # fmt: skip


LETTER_CASES = [
    (r"\boxed{B}", "B", "boxed"), ("Answer: B", "B", "answer_is"),
    ("The correct option is (C).", "(C)", "answer_is"), ("I choose **B**", "B", "bold_letter"),
    ("I choose **(B) 12 metres**", "B", "bold_letter"), ("It must be that one:\nC", "C", "letter_line"),
    ("(A) is too small, so (D)", "D", "paren_letter"),
]  # fmt: skip
NOTHING = [
    "", "I have no idea", r"\boxed{}", r"x = 5, so \boxed{42", r"\boxed{" * 1000, r"\boxed{41}, no: \boxed{",
    r"\boxed{41}, no: \boxed{ }",
]  # fmt: skip
CASES = [
    *((text, False, True, (answer, rule)) for text, answer, rule in MATH_CASES),
    *((text, True, True, (answer, rule)) for text, answer, rule in LETTER_CASES),
    *((text, False, True, None) for text in NOTHING),
    ("then 5 + 7 = 12 and", False, False, None),
    (r"\boxed{12} and to check", False, False, ("12", "boxed")),
]


@pytest.mark.parametrize(("text", "is_choice", "is_finished", "expected"), CASES)
def test_the_most_explicit_rule_finds_the_answer_and_nothing_is_guessed_without_one(
    text: str, is_choice: bool, is_finished: bool, expected: tuple[str, str] | None
) -> None:
    found = extract(text, is_choice, is_finished)
    assert (found and (found.text, found.rule)) == expected


@pytest.mark.parametrize(
    ("text", "thinks", "final"),
    [
        ("5</think>6", True, "6"), ("<think>5</think>6", False, "6"), ("a</think>b</think>c", True, "c"),
        ("5 so 6", True, None), ("5 so 6", False, "5 so 6"), (r"<think>surely \boxed{42}", False, None),
        ("x</think>6\n<think>or 7", True, "6\n"),
        ("x</think>6, as the <think> part says", True, "6, as the <think> part says"),
        ("I close <think> first. So 6", False, "I close <think> first. So 6"),
    ],
)  # fmt: skip
def test_the_answer_is_only_looked_for_after_the_chain_of_thought(text: str, thinks: bool, final: str | None) -> None:
    assert final_part(text, thinks) == final


@pytest.mark.parametrize(
    "piece", [r"\boxed{", "{", "}", "answer ", "the answer is ", "**", "(A", "$", "1,", "1", " ", r"\(", "#### ", "\n"]
)
def test_extraction_is_linear_in_repeated_pieces(piece: str) -> None:
    text = (piece * 50_000)[-50_000:]
    assert timed(lambda: [extract(text, is_choice, is_finished=True) for is_choice in (False, True)])[1] < 2


OPTIONS = ("12 metres", r"$\frac{1}{2}$", "a good idea", "a good idea", "none of these")


@pytest.mark.parametrize(
    ("answer", "letter"),
    [
        ("B", "B"), ("b", "B"), ("(B)", "B"), ("B.", "B"), ("**B**", "B"), (r"\text{(B)}", "B"), ("$B$", "B"),
        ("Option B", "B"), ("B) one half", "B"), ("(A) 12 metres", "A"), ("A: 12 metres", "A"), ("12 metres", "A"),
        ("12 Metres.", "A"), (r"\frac{1}{2}", "B"), ("none of these", "E"), (r"\textbf{(A)}\ 12", "A"), ("F", None),
        ("a good idea", None), ("A good guess", None), ("B or C", None), ("13 metres", None), ("", None), ("12", None),
    ],
)  # fmt: skip
def test_a_letter_or_the_text_of_exactly_one_option_names_it(answer: str, letter: str | None) -> None:
    assert chosen_letter(answer, OPTIONS) == letter
