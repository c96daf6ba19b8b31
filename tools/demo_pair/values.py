"""Values of the steps of stories, estimated by `tools.demo_pair.rollouts`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path


class Values:
    """The values of the right steps of the first stories, and of some wrong steps."""

    def __init__(
        self, right: Sequence[Sequence[float]] = (), wrong: Sequence[tuple[int, int, str, float]] = ()
    ) -> None:
        """`right`: for each story, the values of its steps; `wrong`: story, step number, text and value of each wrong
        step.
        """
        self._right = [list(values) for values in right]
        self._wrong = {(story, number, text): value for story, number, text, value in wrong}

    def __len__(self) -> int:
        return len(self._right)

    def of(self, story: int, number: int, text: str, *, is_right: bool) -> float:
        """Return the value of a step, from 0 to 1. A step without an estimated value has 1 if right, and 0 if wrong.

        The conclusion, and the closing step of an unclosed story, have the value of the last step.
        """
        if is_right:
            of_story = self._right[story] if story < len(self) else [1.0]
            return of_story[min(number, len(of_story) - 1)]
        return self._wrong.get((story, number, text), 0.0)

    @property
    def mean_wrong(self) -> float:
        """Mean value of the wrong steps with an estimated value."""
        return sum(self._wrong.values()) / len(self._wrong) if self._wrong else 0.0

    def save(self, path: Path) -> None:
        """Write a JSON file atomically."""
        part = path.with_suffix(".part")
        part.write_text(json.dumps([self._right, [[*key, value] for key, value in self._wrong.items()]]))
        part.replace(path)

    @classmethod
    def load(cls, path: Path) -> Values:
        """Read a file written by `save`."""
        right, wrong = json.loads(path.read_bytes())
        return cls(right, wrong)
