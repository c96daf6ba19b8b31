"""Wrong steps: mistakes of the draft, and randomly corrupted steps. See also misreadings.py."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from harness.prompts import THINK_BRIDGE
from tools.demo_pair.stories import Story

_DIGIT = re.compile(r"\d")
_WORD = re.compile(r"\d|[A-Za-z]+|[^\w\s]")
"""A digit, a word or a sign."""


class Mistakes:
    """The draft's mistakes in a list of stories: the wrong texts that it wrote for a step after the right steps."""

    def __init__(self, steps: Sequence[dict[int, list[str]]] = ()) -> None:
        """`steps`: for each story, the wrong texts by step number."""
        self._steps = list(steps)

    def __len__(self) -> int:
        return len(self._steps)

    def first(self, stories: int) -> Mistakes:
        """Return the mistakes in the first `stories` stories."""
        return Mistakes(self._steps[:stories])

    def steps(self, story: int) -> dict[int, list[str]]:
        """Return the wrong texts of a story by step number; empty if the draft made no mistakes in the story or was not
        sampled on it.
        """
        return self._steps[story] if story < len(self) else {}

    def add(self, story: Story, written: dict[int, list[str]]) -> None:
        """Append the mistakes in a story: the wrong texts among those that the draft wrote for its steps.

        The number after that of the last step denotes the closing step of the unclosed story.
        """
        unclosed = replace(story, is_unclosed=True)
        wrong = {
            number: sorted({text for text in texts if text.strip() and not unclosed.is_right(number, text)})
            for number, texts in written.items()
        }
        self._steps.append({number: texts for number, texts in wrong.items() if texts})

    def save(self, path: Path) -> None:
        """Write a JSON file atomically."""
        part = path.with_suffix(".part")
        part.write_text(json.dumps(self._steps))
        part.replace(path)

    @classmethod
    def load(cls, path: Path) -> Mistakes:
        """Read a file written by `save`."""
        stories = json.loads(path.read_bytes())
        return cls([{int(number): texts for number, texts in steps.items()} for steps in stories])


def corrupted_step(rng: random.Random, story: Story, number: int) -> str:
    """Return a step with a mistake: a digit, word or sign changed, another step in its place, or an end too soon.

    The end of the thought may follow the step or replace it. A closing step is replaced by one of the steps before it.
    """
    right = story.step(number)
    if number == story.end:
        return _other_digit(rng, right)
    if number == len(story.steps):
        return story.step(rng.randrange(number))
    kind = rng.random()
    if kind < 0.15:
        other = rng.randrange(len(story.steps))
        return right if other == number and _DIGIT.search(right) is None else _elsewhere(rng, story, number, other)
    if kind < 0.2 and number < len(story.steps) - 1:
        return story.steps[number] + THINK_BRIDGE
    if kind < 0.23 and number > 0:
        return THINK_BRIDGE
    if kind < 0.45:
        return _other_word(rng, story, number)
    if kind < 0.57:
        return _other_length(rng, right)
    return _other_digit(rng, right)


def _elsewhere(rng: random.Random, story: Story, number: int, other: int) -> str:
    if story.steps[other] == story.steps[number]:
        return _other_digit(rng, story.step(number))
    return story.step(other)


def _other_word(rng: random.Random, story: Story, number: int) -> str:
    """Replace a digit, word or sign by any other digit, word or sign of the problem or its solution."""
    text = story.step(number)
    at = rng.choice(list(_WORD.finditer(story.steps[number])))
    words: list[str] = sorted({*_WORD.findall(story.text), *_WORD.findall(" ".join(story.steps))} - {at.group()})
    return text[: at.start()] + rng.choice(words) + text[at.end() :]


def _other_length(rng: random.Random, text: str) -> str:
    """Remove a digit, or insert one."""
    at = rng.choice([match.start() for match in _DIGIT.finditer(text)])
    return text[:at] + (text[at + 1 :] if rng.random() < 0.5 else str(rng.randrange(10)) + text[at:])


def _other_digit(rng: random.Random, text: str) -> str:
    """Change one digit: in the result (the last number) with a probability of at least 0.3, otherwise anywhere."""
    places = [match.start() for match in _DIGIT.finditer(text)]
    result = [place for place in places if ", so " in text and place > text.rindex(", so ")]
    at = rng.choice(result if result and rng.random() < 0.3 else places)
    return text[:at] + str((int(text[at]) + rng.randint(1, 9)) % 10) + text[at + 1 :]
