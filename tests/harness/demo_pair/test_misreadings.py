"""Misreadings: right calculations of an event that is not the next one."""

from __future__ import annotations

import itertools
import random
import re

import pytest

from harness.demo_pair.misreadings import misreading
from harness.demo_pair.stories import Story, stories
from harness.prompts import STEP_END, THINK_BRIDGE

_STORY = Story(
    "Noah buys 30 pens. Ana has 20 pens. Ana buys 12 pens. Ana sells 15 pens. Ana wins 7 cards. Ana doubles the pens. "
    "How many pens does Ana have in the end?",
    (
        "Ana has 20 pens.",
        "Ana buys 12 pens: 20 + 12, 0 + 2 = 2, 2 + 1 = 3, so 32.",
        "Ana sells 15 pens: 32 - 15, 2 - 5 + 10 = 7, 3 - 1 - 1 = 1, so 17.",
        "Ana doubles the pens: 2 × 17, 2 × 7 = 14, 2 × 1 + 1 = 3, so 34.",
    ),
    34,
    "hard",
)


def _all_misreadings(story: Story, number: int) -> set[str]:
    texts = {misreading(random.Random(seed), story, number) for seed in range(300)}
    return {text.removesuffix(STEP_END).removesuffix(THINK_BRIDGE) for text in texts if text is not None}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("Ana sells 15 pens: 20 - 15, 0 - 5 + 10 = 5, 2 - 1 - 1 = 0, so 5.", id="skips an event"),
        pytest.param("Ana doubles the pens: 2 × 20, 2 × 0 = 0, 2 × 2 = 4, so 40.", id="skips two events"),
        pytest.param("Ana buys 30 pens: 20 + 30, 0 + 0 = 0, 2 + 3 = 5, so 50.", id="somebody else's things"),
        pytest.param("Ana wins 7 pens: 20 + 7, 0 + 7 = 7, 2 + 0 = 2, so 27.", id="other things"),
        pytest.param("Ana wins 7 cards: 20 + 7, 0 + 7 = 7, 2 + 0 = 2, so 27.", id="said to be other things"),
    ],
)
def test_a_misreading_goes_on_with_the_present_value(text: str) -> None:
    assert text in _all_misreadings(_STORY, 1)


def test_an_event_can_be_counted_twice_also_behind_the_last_one() -> None:
    again = "Ana buys 12 pens: 32 + 12, 2 + 2 = 4, 3 + 1 = 4, so 44."
    assert again in _all_misreadings(_STORY, 2)
    unclosed = Story(_STORY.text, _STORY.steps, _STORY.answer, _STORY.level, is_unclosed=True)
    assert "Ana sells 15 pens: 34 - 15, 4 - 5 + 10 = 9, 3 - 1 - 1 = 1, so 19." in _all_misreadings(unclosed, 4)


def test_a_story_that_nothing_can_be_misread_in_has_none() -> None:
    story = Story("Ana has 20 pens. How many pens does Ana have in the end?", ("Ana has 20 pens.",), 20, "easy")
    assert misreading(random.Random(0), story, 0) is None


def test_misreadings_are_wrong_steps_that_are_calculated_right() -> None:
    rng, seen = random.Random(1), 0
    for story in itertools.islice(stories(3), 300):
        for number in range(len(story.steps)):
            text = misreading(rng, story, number)
            if text is None:
                continue
            assert not story.is_right(number, text)
            calculation = re.search(r"(\d+) ([-+×]) (\d+), .*, so (\d+)\.", text)
            if calculation is not None:
                a, sign, b, result = calculation.groups()
                assert int(result) == {"+": int(a) + int(b), "-": int(a) - int(b), "×": int(a) * int(b)}[sign]
                assert 1 <= int(result) <= 999
            seen += 1
    assert seen > 600
