"""The configuration of the pair's training: one TOML file (demo_pair.toml)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, ValidationError, model_validator

from harness.cli.toml_file import read_toml
from tools.demo_pair.examples import Kind
from tools.demo_pair.stories import LEVELS, Level

DEFAULT = Path(__file__).parent / "demo_pair.toml"
Share = Annotated[float, Field(ge=0)]
Stories = Annotated[int, Field(ge=len(LEVELS))]
"""Number of stories, of which the levels take turns."""


class BadConfig(ValueError):
    """An invalid configuration; the message is one line."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LayerShape(_Strict):
    """The shape that all layers share: hidden size, feed-forward size and number of attention heads."""

    width: PositiveInt
    inner: PositiveInt
    heads: PositiveInt


class Stage(_Strict):
    """One stage of a training."""

    tokens: PositiveInt
    """Tokens in all batches, padding included."""
    rate: PositiveFloat
    """Peak learning rate."""
    warmup_tokens: PositiveInt = 100_000
    decay: Share = 0.4
    """Final share of the tokens, over which the learning rate decays linearly to 2 % of its peak."""
    batch_tokens: PositiveInt = 4096
    shares: dict[Kind, Share]
    """Share of each kind of example in the mixture."""
    seed: int = 0
    """Added to the training's seed, so each stage has different examples."""
    levels: dict[Level, Share] = {"easy": 1.0, "medium": 1.0, "hard": 1.0}
    """Share of each level among the stories."""
    memory: Share = 0.0
    """Weight of the auxiliary loss that makes the solver's layers keep the current token."""


class Draft(_Strict):
    """The draft: the solver's first layers, then trained on their own."""

    layers: PositiveInt
    exit: PositiveInt
    """The solver's layer with an early exit, which makes the first layers usable without the others."""
    exit_weight: Share = 0.3
    """Weight of the early exit's loss relative to the solver's."""
    alone: Stage | None = None
    """None: the former draft is kept as it is."""


class MistakeSampling(_Strict):
    """How the draft's own mistakes are sampled, at every step of some stories."""

    stories: Stories
    temperatures: Annotated[list[PositiveFloat], Field(min_length=1)]
    """One sample of each step is drawn at each of these."""


class RolloutSampling(_Strict):
    """How steps are valued, see `tools.demo_pair.rollouts`."""

    stories: Stories
    """Stories of which the right steps are valued."""
    mistakes: PositiveInt
    """Number of the draft's mistakes that are valued; the others are worth nothing."""
    samples: PositiveInt
    """Rollouts behind each of them."""
    temperature: PositiveFloat = 1.0
    """Temperature of the solver in the rollouts."""


class Former(_Strict):
    """The pair whose weights the training begins with: `git show COMMIT:harness/data/models/…`."""

    commit: str
    draft: str
    """SHA-256 of the draft's model.safetensors."""
    target: str
    """SHA-256 of the target's."""


class Target(_Strict):
    """The target: solver layers, judge layers on top of them, and further layers for depth."""

    solver_layers: PositiveInt
    judge_layers: Annotated[int, Field(ge=6)]
    layers: PositiveInt
    """Layers in total; those above the judge are refined only."""
    solve: Stage | None = None
    """None: the former target's layers that solve are kept until the whole target is refined."""
    judge: Stage
    verdict_weight: PositiveFloat = 1.0
    """Weight of the loss of verdicts while the judge is trained."""
    refine: Stage


class Reward(_Strict):
    """The reward model: some of the target's layers, of which the last ones are trained to judge one step."""

    stories: Stories
    """Stories, the first ones, of which the draft's own mistakes are taught."""
    solver: list[PositiveInt]
    """Numbers of the target's layers that solve, counted from 1; they stay as they are."""
    judges: Annotated[list[PositiveInt], Field(min_length=4, max_length=4)]
    """Numbers of the target's layers that begin as the layers that judge, see network.REWARD_HEADS."""
    judge: Stage


class Config(_Strict):
    """The configuration of a whole training."""

    seed: int
    stories: Stories
    """Stories to train on."""
    checked: PositiveInt
    """Held-out problems for the evaluation, in addition to the demo's."""
    shape: LayerShape
    former: Former | None = None
    """None: random weights."""
    draft: Draft
    mistakes: MistakeSampling
    rollouts: RolloutSampling
    target: Target
    reward: Reward

    @model_validator(mode="after")
    def _begins_somewhere(self) -> Config:
        for name, table in (("draft.alone", self.draft.alone), ("target.solve", self.target.solve)):
            if self.former is None and table is None:
                raise ValueError(f"table [{name}] is required without [former]")
        return self


def read(path: Path) -> Config:
    """Read a configuration. Raises BadConfig."""
    try:
        return Config.model_validate(read_toml(path))
    except ValidationError as error:
        first = error.errors()[0]
        raise BadConfig(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    except ValueError as error:
        raise BadConfig(str(error)) from error
