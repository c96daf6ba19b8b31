"""The wording that the papers' authors used: where it is published, and the hashes that tell a file that holds it.

No text of a paper or of its program is shipped. A wording is compared piece by piece, because a method uses only some
of its texts: the rest of a file may say anything.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from harness.problems.problem import Kind
from harness.prompt_file import Prompts

Piece = Literal[
    "opening.math",
    "opening.choice",
    "steps",
    "score",
    "separate_score",
    "step_choice",
    "chain_choice",
    "reward",
    "equivalence",
]
"""Texts that a method uses together."""
_BY_METHOD: Mapping[str, tuple[Piece, ...]] = {
    "scot": ("chain_choice",),
    "speccot": ("steps", "step_choice", "separate_score"),
    "specreason": ("steps", "score"),
}
"""What a method uses beside the opening."""


class Published(BaseModel):
    """A published wording."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    """Figure, or program with commit and lines."""
    pieces: Mapping[Piece, Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]]
    """The hash of each piece that is published."""
    how: tuple[str, ...] = Field(min_length=1)
    """Which lines of the source belong to which key of a prompt file."""


@cache
def published() -> Mapping[str, Published]:
    """Return the published wordings by paper; a paper that is not among them published none."""
    text = (resources.files("harness.papers") / "prompts.toml").read_text(encoding="utf-8")
    return {paper: Published.model_validate(values) for paper, values in tomllib.loads(text).items()}


def piece_hashes(wording: Prompts) -> dict[Piece, str]:
    """Return the hash of every piece of a wording: 16 hex digits over its texts, whatever the file looks like.

    An opening's is over the instruction for reasoning models, which all models of the papers are, and over what stands
    around it.
    """
    instruction = wording.instruction.thinking
    texts: dict[Piece, Any] = {
        "opening.math": [wording.system, instruction.math],
        "opening.choice": [wording.system, instruction.choice, wording.options.model_dump()],
        "steps": [wording.step_separator],
        "score": wording.score.model_dump(),
        "separate_score": wording.separate_score.model_dump(),
        "step_choice": wording.step_choice.model_dump(exclude_none=True),
        "chain_choice": wording.chain_choice.model_dump(),
        "reward": wording.reward.model_dump(),
        "equivalence": wording.equivalence.model_dump(),
    }
    return {piece: _digest([piece, value]) for piece, value in texts.items()}


def unlike(wording: Prompts, paper: str, method: str, kind: Kind) -> list[Piece]:
    """Return the pieces that a method uses on problems of a kind and that are not worded as the paper's are.

    Raises KeyError for a paper that published none.
    """
    expected, found = published()[paper].pieces, piece_hashes(wording)
    opening: Piece = "opening.math" if kind == "math" else "opening.choice"
    used = (opening, *_BY_METHOD.get(method, ()))
    return [piece for piece in used if piece in expected and expected[piece] != found[piece]]


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
