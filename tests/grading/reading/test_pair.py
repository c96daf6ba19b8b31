"""A pair carries what the benchmark allows; the best of several matches is the most favorable one."""

from __future__ import annotations

import pytest

from grading.reading import Match, Pair, best_match

UNREADABLE, UNEQUAL, EQUAL = Match(None, "a"), Match(False, "b"), Match(True, "c")


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
        ([UNREADABLE, UNEQUAL, EQUAL], EQUAL),
        ([UNREADABLE, UNEQUAL], UNEQUAL),
        ([UNREADABLE], UNREADABLE),
        ([UNEQUAL, Match(False, "later")], UNEQUAL),
    ],
)
def test_an_equal_match_is_best_and_an_unequal_one_better_than_none(matches: list[Match], expected: Match) -> None:
    assert best_match(matches) == expected
