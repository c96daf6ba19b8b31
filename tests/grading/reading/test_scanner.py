"""The scanner reads numbers, names and commands at its position."""

from __future__ import annotations

from fractions import Fraction

import pytest

from grading.reading.formula import NotAFormulaError, Reader


@pytest.mark.parametrize(
    ("text", "value", "digits", "rest"),
    [
        ("1,234+1", Fraction(1234), None, "+1"),
        ("0.50", Fraction(1, 2), 2, ""),
        ("0.1(6)", Fraction(1, 6), None, ""),
        ("2 1/2x", Fraction(5, 2), None, "x"),
        (r"3\frac{1}{2}", Fraction(7, 2), None, ""),
        (r"3\frac{3}{2}", Fraction(3), None, r"\frac{3}{2}"),
        ("2e3", Fraction(2000), None, ""),
    ],
)
def test_numbers(text: str, value: Fraction, digits: int | None, rest: str) -> None:
    scanner = Reader(text)
    node = scanner.number()
    assert (node.value, node.digits, text[scanner.at :]) == (value, digits, rest)


def test_a_position_without_a_number_is_an_error() -> None:
    with pytest.raises(NotAFormulaError):
        Reader("x").number()


def test_commands_are_read_without_moving_and_spaces_are_skipped() -> None:
    scanner = Reader(r"  {} \frac{1}")
    assert scanner.command() == "frac"
    scanner.skip_command("frac")
    assert scanner.skip("{")
    assert not scanner.skip("}")
    with pytest.raises(NotAFormulaError):
        scanner.need("}")


@pytest.mark.parametrize(("rest", "name"), [("_1", "x_1"), ("_{ab}", "x_ab"), ("''", "x''"), ("", "x")])
def test_subscripts_and_primes_belong_to_a_name(rest: str, name: str) -> None:
    assert Reader(rest).name("x").name == name
