"""Wrong steps and wrong chains: the draft's own, and slips made by chance."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from pathlib import Path

from harness.prompts import STEP_END, THINK_BRIDGE
from harness.training.stories import Story

_DIGIT = re.compile(r"\d")


class Mistakes:
    """Of the first stories taught: what the draft got wrong."""

    def __init__(self, steps: Sequence[dict[int, list[str]]] = (), chains: Sequence[list[str]] = ()) -> None:
        """By story: wrong texts by the step that they stand for, each behind right steps; and wrong chains."""
        self._steps, self._chains = list(steps), list(chains)

    def __len__(self) -> int:
        return len(self._steps)

    def steps(self, story: int, number: int) -> list[str]:
        """Wrong texts in place of a step; empty where the draft made none."""
        return self._steps[story].get(number, []) if story < len(self) else []

    def chains(self, story: int) -> list[str]:
        """Whole chains with a mistake."""
        return self._chains[story] if story < len(self) else []

    def add(self, story: Story, chains: Sequence[str]) -> None:
        """Sort what the draft wrote about the next story."""
        steps: dict[int, set[str]] = {}
        wrong: set[str] = set()
        for chain in chains:
            thought, closed, _ = chain.partition(THINK_BRIDGE)
            parts = [part + STEP_END for part in thought.split(STEP_END)]
            parts[-1] = parts[-1].removesuffix(STEP_END) + (THINK_BRIDGE if closed else "")
            number = next((i for i, part in enumerate(parts) if not story.is_right(i, part)), len(parts))
            if number < len(parts) and number < len(story.steps) and parts[number].strip():
                steps.setdefault(number, set()).add(parts[number])
            if number < len(parts) or len(parts) < len(story.steps):
                wrong.add(thought)
        self._steps.append({number: sorted(texts) for number, texts in steps.items()})
        self._chains.append(sorted(wrong))

    def save(self, path: Path) -> None:
        """Write a JSON file, whole or not at all."""
        part = path.with_suffix(".part")
        part.write_text(json.dumps({"steps": self._steps, "chains": self._chains}))
        part.replace(path)

    @classmethod
    def load(cls, path: Path) -> Mistakes:
        """Read what `save` wrote."""
        kept = json.loads(path.read_bytes())
        return cls([{int(n): texts for n, texts in steps.items()} for steps in kept["steps"]], kept["chains"])


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
    result = [place for place in places if "=" in text and place > text.rindex("=")]
    at = dice.choice(result if result and dice.random() < 0.5 else places)
    return text[:at] + str((int(text[at]) + dice.randint(1, 9)) % 10) + text[at + 1 :]
