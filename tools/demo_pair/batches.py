"""Batches of examples with similar lengths, to minimize padding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from tools.demo_pair.examples import IGNORED, Curriculum, Example

WIDTHS = tuple(range(64, 577, 32))
"""Row lengths of batches, in tokens; longer examples are left out."""
LABELS = ("next_ids", "correct_ids", "is_first_error", "is_after_error", "candidate", "right_candidate")


@dataclass(frozen=True, slots=True)
class Batch:
    """Examples padded to a common width. Shape (examples, tokens), except where a field states another one."""

    ids: Tensor
    next_ids: Tensor
    correct_ids: Tensor
    is_first_error: Tensor
    is_after_error: Tensor
    candidate: Tensor
    right_candidate: Tensor
    verdict_rows: Tensor
    """Indices of the rows that end with a question for a verdict, (verdicts,)."""
    verdict_columns: Tensor
    """Index of the last token of these rows, (verdicts,)."""
    verdict_ids: Tensor
    """Mask of the tokens that are a correct verdict, (verdicts, vocabulary)."""
    is_score: Tensor
    """Whether the verdict is a score (a digit), (verdicts,)."""

    @property
    def tokens(self) -> int:
        """Number of tokens, including padding."""
        return int(self.ids.numel())


@dataclass
class StreamPosition:
    """The position of a stream of batches, from which it can be resumed."""

    next_example: int
    waiting: dict[int, list[int]]
    """Numbers of the examples that are waiting for a full batch, by width."""


class Batches:
    """An endless stream of batches of a curriculum's examples."""

    def __init__(self, curriculum: Curriculum, tokens: int, vocabulary: int, pad: int, device: str) -> None:
        """`tokens`: size of one batch; `vocabulary`: size of the vocabulary; `pad`: id of the padding token."""
        self._curriculum, self._device = curriculum, device
        self._tokens, self._vocabulary, self._pad = tokens, vocabulary, pad
        self.position = StreamPosition(0, {width: [] for width in WIDTHS})

    def __iter__(self) -> Iterator[Batch]:
        while True:
            example = self._curriculum.example(self.position.next_example)
            self.position.next_example += 1
            width = next((w for w in WIDTHS if example is not None and len(example.ids) <= w), None)
            if width is None:
                continue
            waiting = self.position.waiting[width]
            waiting.append(self.position.next_example - 1)
            if len(waiting) * width >= self._tokens:
                self.position.waiting[width] = []
                ready = [self._curriculum.example(number) for number in waiting]
                yield self.collate([example for example in ready if example is not None], width)

    def collate(self, examples: list[Example], width: int) -> Batch:
        """Return these examples as one batch, padded to `width` tokens."""

        def padded(rows: list[list[int]], filler: int) -> Tensor:
            return torch.tensor([row + [filler] * (width - len(row)) for row in rows], device=self._device)

        rows = [i for i, example in enumerate(examples) if example.verdict_ids]
        verdict_ids = torch.zeros(len(rows), self._vocabulary, dtype=torch.bool)
        for verdict, i in enumerate(rows):
            verdict_ids[verdict, list(examples[i].verdict_ids)] = True
        labels = {name: padded([getattr(example, name) for example in examples], IGNORED) for name in LABELS}
        columns = [len(examples[i].ids) - 1 for i in rows]
        return Batch(
            ids=padded([example.ids for example in examples], self._pad),
            verdict_rows=torch.tensor(rows, dtype=torch.long, device=self._device),
            verdict_columns=torch.tensor(columns, dtype=torch.long, device=self._device),
            verdict_ids=verdict_ids.to(self._device),
            is_score=torch.tensor([examples[i].is_score for i in rows], dtype=torch.bool, device=self._device),
            **labels,
        )
