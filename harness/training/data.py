"""What is trained on: examples in token ids, made of chains and drafts that runs of the harness wrote.

Light: no torch. `jobs.after.training_data` reads run folders into the types here.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

import orjson

GRADED = frozenset({"correct", "wrong", "no_answer", "unparsable", "truncated"})
"""Verdicts that say whether a draft is right; the others say that it is not known."""


@dataclass(frozen=True, slots=True)
class TargetChain:
    """What the target wrote on a training problem, alone."""

    sample_id: str
    problem_id: str
    text: str
    """Thought and answer."""
    token_ids: tuple[int, ...]
    """In the target's vocabulary, without the end of sequence."""
    finish: str
    """`eos`, `stop` or `length`: cut off."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A draft chain as it was offered, and what the grader says of it."""

    text: str
    verdict: str


@dataclass(frozen=True, slots=True)
class Drafts:
    """The drafts that one verdict of SCoT is asked about, in the order of its options: distinct and not cut off."""

    sample_id: str
    problem_id: str
    offered: tuple[Draft, ...]


@dataclass(frozen=True, slots=True)
class Example:
    """One pass: ids that go in, and what is wanted of the last predictions."""

    sample_id: str
    inputs: tuple[int, ...]
    """Token ids."""
    wanted: tuple[int, ...]
    """align: the chain's ids, one per prediction. select: the ids of the right labels, any of which is right."""
    predictions: int
    """How many of the last positions are trained: the chain's length, or 1."""


@dataclass
class Examples:
    """Examples in the order of their samples, and how many were left out, by reason."""

    kept: list[Example] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)

    def add(self, example: Example, max_tokens: int) -> None:
        """Take an example, unless it is too long."""
        if len(example.inputs) > max_tokens:
            self.left_out[f"longer than {max_tokens} tokens"] += 1
        else:
            self.kept.append(example)


def as_lines(examples: Sequence[Example]) -> bytes:
    """Examples as JSON lines, in their order."""
    return b"".join(orjson.dumps(asdict(example), option=orjson.OPT_APPEND_NEWLINE) for example in examples)


def sha256(content: bytes) -> str:
    """64 hex digits."""
    return hashlib.sha256(content).hexdigest()
