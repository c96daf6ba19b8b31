"""Lessons in batches of a few fixed shapes, so that a program compiled for a shape is used again and again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from harness.demo_pair.lessons import NONE, Lesson, Teacher

WIDTHS = (96, 160, 256, 384, 576)
"""Tokens of the rows of a batch; a longer lesson is left out."""
_MARKS = ("follow", "stands", "first", "since", "number", "named")


@dataclass(frozen=True, slots=True)
class Batch:
    """Lessons side by side, padded to a common width: (lessons, tokens) each."""

    ids: Tensor
    follow: Tensor
    stands: Tensor
    first: Tensor
    since: Tensor
    number: Tensor
    named: Tensor
    asked: Tensor
    """Rows behind which a verdict is asked, (verdicts,)."""
    last: Tensor
    """The place of the last token of these, (verdicts,)."""
    right: Tensor
    """Which tokens are a right verdict, (verdicts, vocabulary)."""
    scored: Tensor
    """Whether it is a score, a digit, (verdicts,)."""

    @property
    def tokens(self) -> int:
        """Padding included."""
        return int(self.ids.numel())


@dataclass
class Place:
    """How far a stream of batches has come: enough to go on from there."""

    next_lesson: int
    waiting: dict[int, list[int]]
    """Numbers of lessons that wait for a batch, by width."""


class Batches:
    """An endless stream of batches of a teacher's lessons."""

    def __init__(self, teacher: Teacher, tokens: int, vocabulary: int, pad: int, device: str) -> None:
        """`tokens`: of one batch."""
        self._teacher, self._tokens, self._vocabulary, self._pad, self._device = (
            teacher,
            tokens,
            vocabulary,
            pad,
            device,
        )
        self.place = Place(0, {width: [] for width in WIDTHS})

    def __iter__(self) -> Iterator[Batch]:
        while True:
            lesson = self._teacher.lesson(self.place.next_lesson)
            self.place.next_lesson += 1
            width = next((w for w in WIDTHS if lesson is not None and len(lesson.ids) <= w), None)
            if width is None:
                continue
            waiting = self.place.waiting[width]
            waiting.append(self.place.next_lesson - 1)
            if len(waiting) * width >= self._tokens:
                self.place.waiting[width] = []
                ready = [self._teacher.lesson(number) for number in waiting]
                yield self.of([lesson for lesson in ready if lesson is not None], width)

    def of(self, lessons: list[Lesson], width: int) -> Batch:
        """These lessons as one batch."""

        def padded(rows: list[list[int]], filler: int) -> Tensor:
            return torch.tensor([row + [filler] * (width - len(row)) for row in rows], device=self._device)

        asked = [i for i, lesson in enumerate(lessons) if lesson.right]
        right = torch.zeros(len(asked), self._vocabulary, dtype=torch.bool)
        for row, i in enumerate(asked):
            right[row, list(lessons[i].right)] = True
        marks = {name: padded([getattr(lesson, name) for lesson in lessons], NONE) for name in _MARKS}
        last = [len(lessons[i].ids) - 1 for i in asked]
        return Batch(
            ids=padded([lesson.ids for lesson in lessons], self._pad),
            asked=torch.tensor(asked, dtype=torch.long, device=self._device),
            last=torch.tensor(last, dtype=torch.long, device=self._device),
            right=right.to(self._device),
            scored=torch.tensor([lessons[i].scored for i in asked], dtype=torch.bool, device=self._device),
            **marks,
        )
