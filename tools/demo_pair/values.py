"""Values of the steps of stories, estimated by `tools.demo_pair.rollouts`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path


class Values:
    """The values of the right steps of the first stories, and of some wrong ones."""

    def __init__(
        self, right: Sequence[Sequence[float]] = (), wrong: Sequence[tuple[int, int, str, float]] = ()
    ) -> None:
        """`right`: for each story the values of its steps; `wrong`: story, number of the step, text and value."""
        self._right = [list(values) for values in right]
        self._wrong = {(story, number, text): value for story, number, text, value in wrong}

    def __len__(self) -> int:
        return len(self._right)

    def of(self, story: int, number: int, text: str, *, is_right: bool) -> float:
        """Return the value of a step, from 0 to 1: 1 for a right step and 0 for a wrong one that have none.

        What follows the last step, the conclusion, is worth what the last step is.
        """
        if is_right:
            of_story = self._right[story] if story < len(self) else [1.0]
            return of_story[min(number, len(of_story) - 1)]
        return self._wrong.get((story, number, text), 0.0)

    @property
    def mean_wrong(self) -> float:
        """Mean value of the wrong steps that have one."""
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
