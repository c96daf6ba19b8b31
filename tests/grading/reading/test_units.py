"""Units at the end of an answer are split off, and compared where both are known."""

from __future__ import annotations

import pytest

from grading.reading.quantities import known_unit, split_unit, units_differ, without_unit


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5 cm", ("5", "cm")),
        (r"5\text{ cm}^2", ("5", r"\text{ cm}^2")),
        (r"90^\circ", ("90", r"^\circ")),
        ("12 apples", ("12", "apples")),
        ("5", ("5", "")),
        (r"2\pi", (r"2\pi", "")),
        ("5 million", ("5 million", "")),
        (r"5\text{ and }", (r"5\text{ and }", "")),
        ("x+ cm", ("x+ cm", "")),
        (r"5\times\text{ m}", ("5", r"\text{ m}")),
        (r"\mathrm{e}", (r"\mathrm{e}", "")),
        ("3 km/h", ("3", "km/h")),
    ],
)
def test_one_unit_is_split_off(text: str, expected: tuple[str, str]) -> None:
    assert split_unit(text) == expected
    assert without_unit(text) == expected[0]


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        (r"\text{ cm}^2", "cm^2"),
        ("square centimetres", "cm^2"),
        ("cubic feet", "ft^3"),
        ("meters per second", "m/s"),
        (r"^\circ", "deg"),
        ("apples", None),
        ("Inches", "in"),
        ("cm squared", "cm^2"),
        ("m cubed", "m^3"),
        ("cm^1", "cm"),
    ],
)
def test_known_units_have_one_name(unit: str, expected: str | None) -> None:
    assert known_unit(unit) == expected


@pytest.mark.parametrize(
    ("gold", "prediction", "expected"),
    [
        ("cm", "m", True),
        ("cm", "centimeters", False),
        ("cm", "", False),
        ("cm", "apples", False),
        ("m/s", "km/h", True),
    ],
)
def test_units_differ_where_both_are_known(gold: str, prediction: str, expected: bool) -> None:
    assert units_differ(gold, prediction) is expected
