"""Cleaning changes the notation of an answer and never its meaning."""

from __future__ import annotations

import pytest

from grading.reading.notation import clean, is_enclosed, split_list, split_top, squeezed


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("$5$.", "5"),
        (r"\dfrac12", r"\frac{1}{2}"),
        (r"\left( 1 \right)", "( 1 )"),
        ("٤٢", "42"),
        ("x²", "x^{2}"),
        ("x₁", "x_{1}"),
        ("½", r"\frac{1}{2}"),
        ("√2", r"\sqrt{2}"),
        ("π", r"\pi"),
        (r"\$1{,}000", "1000"),
        ("2**3", "2^3"),
        ("**5**", "5"),
        (r"\mathbf{42}", "42"),
        (r"\text{x=5}", "x=5"),
        (r"\[5\]", "5"),
        ("4\u200b1", "41"),
        ("α", r"\alpha"),
        ("5\x00", "5"),
        (r"90^{\circ}", r"90^\circ"),
        (r"\\frac12", r"\frac{1}{2}"),
        ("0.33...", r"0.33\ldots"),
        (r"5~\text{cm}", r"5 \text{cm}"),
        (r"\sqrt3", r"\sqrt{3}"),
        ("`7`", "7"),
        (r"\lbrace 1 \rbrace", r"\{ 1 \}"),
    ],
)
def test_one_notation_for_one_thing(answer: str, expected: str) -> None:
    assert clean(answer) == expected


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("1,2", ["1", "2"]),
        ("1, 2 and 3", ["1", "2", "3"]),
        (r"\{1;2\}", ["1", "2"]),
        ("(1,2),(3,4)", ["(1,2)", "(3,4)"]),
        ("1,234, 5", ["1,234", "5"]),
        ("5", ["5"]),
        ("", []),
    ],
)
def test_a_list_is_split_outside_brackets(text: str, parts: list[str]) -> None:
    assert split_list(text) == parts


def test_a_pattern_splits_outside_brackets() -> None:
    assert split_top(r"[1,2)\cup(3,\{4,5\})", ",") == [r"[1,2)\cup(3,\{4,5\})"]
    assert split_top("1|2|(3|4)", r"\|") == ["1", "2", "(3|4)"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("(1,2)", True), (r"\{1\}", True), ("(1)+(2)", False), ("[1,2)", True), ("()", True), ("x", False)],
)
def test_the_first_bracket_closes_at_the_end(text: str, expected: bool) -> None:
    assert is_enclosed(text) is expected


def test_squeezing_keeps_spaces_between_digits() -> None:
    assert squeezed("1 2 x + y_{1}") == "1 2x+y_1"
