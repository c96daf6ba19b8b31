"""Answers in words are told from formulas and compared as text."""

from __future__ import annotations

import pytest

from grading.equivalence import equivalent
from grading.reading import Match, Pair
from grading.reading.phrases import digits_of_word, is_same_words, is_text, meaning, without_lead


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("even", True), (r"\text{Evelyn}", True), ("(A)", True), ("no", True), ("xy", False), ("abc", False),
        ("x", False), (r"\sin x", False), ("sqrtx", False), (r"5\text{ apples}", False), ("ABC", False),
        ("no solution", True), (r"\begin{pmatrix}1\\2\end{pmatrix}", False), ("3 apples and 4 pears", True),
        ("infinity", False),
    ],
)  # fmt: skip
def test_words_and_formulas(text: str, expected: bool) -> None:
    assert is_text(text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no solutions", "none"), (r"\text{No real solution exists}", "none"), (r"\{\}", "none"),
        ("undefined", "dne"), ("the limit does not exist", "dne"), ("all real numbers", "reals"), ("Yes", "yes"),
        ("false", "no"), ("cat", None), ("infinitely many solutions", "many"), ("infinite", "infinity"),
    ],
)  # fmt: skip
def test_phrases_with_many_spellings_have_one_meaning(text: str, expected: str | None) -> None:
    assert meaning(text) == expected


@pytest.mark.parametrize(
    ("gold", "prediction", "expected"),
    [
        ("Evelyn", "evelyn.", True), ("yes", "Yes, because it is", True), ("no solution", "none", True),
        ("yes", "no", False), ("two apples", "the 2 apple", True), ("cat", "dog", False), ("the", "a", False),
        ("don't", "dont", True),
    ],
)  # fmt: skip
def test_words_are_equal_up_to_case_punctuation_and_fillers(gold: str, prediction: str, expected: bool) -> None:
    def compare(pair: Pair) -> Match:
        return equivalent(*pair.texts)

    assert is_same_words(Pair(gold, prediction), compare) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The answer is 5", "5"), (r"\text{Final answer: }5", "5"), ("5", "5"), ("Evelyn", "Evelyn"),
        ("so the result = 7", "7"),
    ],
)  # fmt: skip
def test_a_lead_is_dropped(text: str, expected: str) -> None:
    assert without_lead(text).strip() == expected


@pytest.mark.parametrize(("text", "expected"), [("seven", "7"), (r"\text{Twelve}", "12"), ("cat", None), ("7", None)])
def test_number_words_have_digits(text: str, expected: str | None) -> None:
    assert digits_of_word(text) == expected
