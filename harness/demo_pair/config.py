"""The one file that says how the pair is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, ValidationError

from harness.demo_pair.lessons import Kind
from harness.toml_file import read_toml

DEFAULT = Path(__file__).parent / "demo_pair.toml"
Share = Annotated[float, Field(ge=0)]


class BadConfig(ValueError):
    """A configuration that nothing can be trained by; the message is one line."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Shape(_Strict):
    """Of every layer."""

    width: PositiveInt
    inner: PositiveInt
    heads: PositiveInt


class Study(_Strict):
    """One part of a training."""

    tokens: PositiveInt
    """Of all batches, padding included."""
    rate: PositiveFloat
    """Highest learning rate."""
    warmup_tokens: PositiveInt = 100_000
    decay: Share = 0.4
    """Last share of the tokens, over which the rate falls to a fiftieth."""
    batch_tokens: PositiveInt = 4096
    shares: dict[Kind, Share]
    """Of the kinds of lessons."""
    memory: Share = 0.0
    """Weight of the loss on which token stands here, behind the solver's layers."""


class Draft(_Strict):
    """The draft: the first layers of those that learn to solve, then trained alone."""

    layers: PositiveInt
    exit: PositiveInt
    """The solver's layer with an early exit, which makes the first layers of use without the others."""
    exit_weight: Share = 0.3
    """Of the exit's loss beside the solver's."""
    alone: Study


class Sampled(_Strict):
    """The draft's own mistakes, at one step of each story."""

    stories: PositiveInt
    samples: PositiveInt
    """Of a step."""
    temperature: PositiveFloat


class Target(_Strict):
    """The target: layers that solve, layers that judge what these expect, and depth."""

    solver_layers: PositiveInt
    judge_layers: Annotated[int, Field(ge=6)]
    layers: PositiveInt
    """In all; the rest refines."""
    solve: Study
    judge: Study
    refine: Study


class Config(_Strict):
    """A whole training."""

    seed: int
    stories: PositiveInt
    """Taught ones."""
    checked: PositiveInt
    """Held-out problems that results are measured on, beside the demo's."""
    shape: Shape
    draft: Draft
    mistakes: Sampled
    target: Target


def read(path: Path) -> Config:
    """Read a configuration. Raises BadConfig."""
    try:
        return Config.model_validate(read_toml(path))
    except ValidationError as wrong:
        first = wrong.errors()[0]
        raise BadConfig(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from wrong
    except ValueError as wrong:
        raise BadConfig(str(wrong)) from wrong
