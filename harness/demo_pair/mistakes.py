"""Wrong steps: the draft's own, and slips made by chance."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from pathlib import Path

from harness.demo_pair.stories import Story
from harness.prompts import THINK_BRIDGE

_DIGIT = re.compile(r"\d")


class Mistakes:
    """Of the first stories taught, or of others: the steps that the draft got wrong, each behind right ones."""

    def __init__(self, steps: Sequence[dict[int, list[str]]] = ()) -> None:
        """By story: wrong texts by the number of the step that they stand for."""
        self._steps = list(steps)

    def __len__(self) -> int:
        return len(self._steps)

    def steps(self, story: int) -> dict[int, list[str]]:
        """Wrong texts by the step that they stand for; empty where the draft made none, or was not asked."""
        return self._steps[story] if story < len(self) else {}

    def add(self, story: Story, written: dict[int, list[str]]) -> None:
        """Keep what is wrong of what the draft wrote in place of steps of the next story."""
        wrong = {
            number: sorted({text for text in texts if text.strip() and not story.is_right(number, text)})
            for number, texts in written.items()
        }
        self._steps.append({number: texts for number, texts in wrong.items() if texts})

    def save(self, path: Path) -> None:
        """Write a JSON file, whole or not at all."""
        part = path.with_suffix(".part")
        part.write_text(json.dumps(self._steps))
        part.replace(path)

    @classmethod
    def load(cls, path: Path) -> Mistakes:
        """Read what `save` wrote."""
        kept = json.loads(path.read_bytes())
        return cls([{int(number): texts for number, texts in steps.items()} for steps in kept])


def slip(dice: random.Random, story: Story, number: int) -> str:
    """A step with a mistake: another digit in it, a later or an earlier step in its place, or its end too soon."""
    right = story.step(number)
    kind = dice.random()
    if kind < 0.15:
        other = dice.randrange(len(story.steps))
        return right if other == number and _DIGIT.search(right) is None else _elsewhere(dice, story, number, other)
    if kind < 0.2 and number < len(story.steps) - 1:
        return story.steps[number] + THINK_BRIDGE
    return _other_digit(dice, right)


def _elsewhere(dice: random.Random, story: Story, number: int, other: int) -> str:
    if story.steps[other] == story.steps[number]:
        return _other_digit(dice, story.step(number))
    return story.step(other)


def _other_digit(dice: random.Random, text: str) -> str:
    """Most often in the result, which is the last number."""
    places = [found.start() for found in _DIGIT.finditer(text)]
    result = [place for place in places if ", so " in text and place > text.rindex(", so ")]
    at = dice.choice(result if result and dice.random() < 0.3 else places)
    return text[:at] + str((int(text[at]) + dice.randint(1, 9)) % 10) + text[at + 1 :]
