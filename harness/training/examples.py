"""Training data: examples in token ids, made of chains and drafts from runs of the harness.

Light: no torch. `jobs.after.training_data` reads run folders into the types here.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import orjson

GRADED = frozenset({"correct", "wrong", "no_answer", "unparsable", "truncated"})
"""Verdicts that decide whether a draft is right; after any other one it is unknown."""


@dataclass(frozen=True, slots=True)
class TargetChain:
    """A reply of the target alone to a training problem."""

    sample_id: str
    problem_id: str
    text: str
    """Thought and answer."""
    token_ids: tuple[int, ...]
    """Token ids in the target's vocabulary, without the end of sequence."""
    finish: str
    """`eos`, `stop`, or `length` for a reply that was cut off."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A draft chain as the target was shown it, and the grader's verdict."""

    text: str
    verdict: str


@dataclass(frozen=True, slots=True)
class Drafts:
    """The drafts of one selection of SCoT in the order of its options: distinct and not cut off."""

    sample_id: str
    problem_id: str
    offered: tuple[Draft, ...]


@dataclass(frozen=True, slots=True)
class Example:
    """The input of one pass, and the labels of its last predictions."""

    sample_id: str
    inputs: tuple[int, ...]
    """Token ids."""
    label_ids: tuple[int, ...]
    """align: the chain's ids, one per prediction. select: the ids of the right options, any of which is right."""
    predictions: int
    """Number of trained positions at the end: the chain's length, or 1."""


@dataclass
class Examples:
    """Examples in the order of their samples, and the number of excluded ones by reason."""

    kept: list[Example] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)

    def add(self, example: Example, max_tokens: int) -> None:
        """Add an example unless it is too long."""
        if len(example.inputs) > max_tokens:
            self.left_out[f"longer than {max_tokens} tokens"] += 1
        else:
            self.kept.append(example)


def as_lines(examples: Sequence[Example]) -> bytes:
    """Return the examples as JSON lines. Their hash identifies the training data, so the keys must not change."""
    records = [
        {"sample_id": e.sample_id, "inputs": e.inputs, "wanted": e.label_ids, "predictions": e.predictions}
        for e in examples
    ]
    return b"".join(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE) for record in records)


def sha256(content: bytes) -> str:
    """Return the SHA-256 hash as 64 hex digits."""
    return hashlib.sha256(content).hexdigest()
