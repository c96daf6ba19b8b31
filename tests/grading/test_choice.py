"""An answer names an option by its letter or its text."""

from __future__ import annotations

import pytest

from grading.extract import chosen_letter

OPTIONS = ("12 metres", r"$\frac{1}{2}$", "a good idea", "a good idea", "none of these")


@pytest.mark.parametrize(
    ("answer", "letter"),
    [
        ("B", "B"), ("b", "B"), ("(B)", "B"), ("B.", "B"), ("**B**", "B"), (r"\text{B}", "B"), (r"\text{(B)}", "B"),
        (r"\textbf{(B)}", "B"), ("$B$", "B"), ("Option B", "B"), ("B) one half", "B"), ("(A) 12 metres", "A"),
        ("A: 12 metres", "A"), ("12 metres", "A"), ("12 Metres.", "A"), (r"\frac{1}{2}", "B"), ("none of these", "E"),
        (r"\textbf{(A)}\ 12", "A"),
    ],
)  # fmt: skip
def test_a_letter_or_the_text_of_exactly_one_option_names_it(answer: str, letter: str) -> None:
    assert chosen_letter(answer, OPTIONS) == letter


@pytest.mark.parametrize("answer", ["F", "a good idea", "A good guess", "B or C", "13 metres", "", "12"])
def test_anything_else_names_no_option(answer: str) -> None:
    assert chosen_letter(answer, OPTIONS) is None
