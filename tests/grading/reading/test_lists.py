"""Lists are compared as multisets or in order."""

from __future__ import annotations

import pytest

from grading.reading import Match, Pair
from grading.reading.lists import MAX_PARTS, compare_ordered, compare_unnamed, compare_unordered, split_plus_minus

PAIR = Pair("", "", tolerance=0.5)


def compare(pair: Pair) -> Match:
    """Compare whole numbers; anything else cannot be read."""
    if not (pair.gold.isdigit() and pair.prediction.isdigit()):
        return Match(None, "not a number")
    return Match(int(pair.gold) == int(pair.prediction), f"tolerance {pair.tolerance}")


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (["1", "2"], ["1", "2"]),
        ([r"1 \pm 2"], ["1 + 2", "1 - 2"]),
        ([r"\pm 1 \mp 2"], ["+ 1 - 2", "- 1 + 2"]),
        (["1+-2", "3"], ["1+2", "1-2", "3"]),
        (["1+/-2"], ["1+2", "1-2"]),
    ],
)
def test_plus_minus_stands_for_two_values(parts: list[str], expected: list[str]) -> None:
    assert split_plus_minus(parts) == expected


@pytest.mark.parametrize(
    ("golds", "predictions", "is_equal"),
    [
        (["1", "2"], ["02", "1"], True),
        (["1", "1", "2"], ["1", "2", "2"], False),
        (["1", "2"], ["1"], False),
        (["1", "2"], ["1", "x"], None),
        (["x"], ["x"], True),
        ([], [], True),
    ],
)
def test_a_multiset_has_no_order(golds: list[str], predictions: list[str], is_equal: bool | None) -> None:
    assert compare_unordered(golds, predictions, PAIR, compare).is_equal is is_equal


def test_long_lists_are_only_compared_as_strings() -> None:
    numbers = [str(number) for number in range(MAX_PARTS + 1)]
    assert compare_unordered(numbers, numbers[::-1], PAIR, compare).is_equal
    other = [f"0{number}" for number in numbers]
    assert compare_unordered(numbers, other, PAIR, compare) == Match(None, f"more than {MAX_PARTS} parts")


def test_values_are_compared_by_their_names_where_each_has_its_own() -> None:
    assert compare_unnamed(["1", "2"], ["x = 2", "y = 1"], PAIR, compare).is_equal
    assert compare_unnamed(["x = 1", "y = 2"], ["y = 02", "x = 1"], PAIR, compare).is_equal
    assert compare_unnamed(["x = 1", "y = 2"], ["x = 2", "y = 1"], PAIR, compare).is_equal is False
    assert compare_unnamed(["x = y = 1", "z = 2"], ["x = 1", "z = 2", "y = 1"], PAIR, compare).is_equal


@pytest.mark.parametrize(
    ("predictions", "is_equal"),
    [(["1", "02"], True), (["2", "1"], False), (["1"], False), (["1", "x"], None), (["2", "x"], False)],
)
def test_a_tuple_has_an_order(predictions: list[str], is_equal: bool | None) -> None:
    assert compare_ordered(["1", "2"], predictions, PAIR, compare).is_equal is is_equal
