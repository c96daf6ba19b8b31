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
"""Number of stories; consecutive stories cycle through the levels."""


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
    """One stage of the training."""

    tokens: PositiveInt
    """Number of tokens in all batches, including padding."""
    rate: PositiveFloat
    """Peak learning rate."""
    warmup_tokens: PositiveInt = 100_000
    decay: Share = 0.4
    """Final share of the tokens, over which the learning rate decays linearly to 2 % of its peak."""
    batch_tokens: PositiveInt = 4096
    shares: dict[Kind, Share]
    """Share of each kind of example in the mixture."""
    seed: int = 0
    """Added to the configuration's seed, so each stage has other examples."""
    levels: dict[Level, Share] = {"easy": 1.0, "medium": 1.0, "hard": 1.0}
    """Share of each level among the stories."""
    memory: Share = 0.0
    """Weight of the auxiliary loss that makes the solver's layers keep the current token."""


class Draft(_Strict):
    """The draft: the solver's first layers, then trained on their own."""

    layers: PositiveInt
    exit: PositiveInt
    """The solver's layer with an early exit, which makes the first layers usable without the later ones."""
    exit_weight: Share = 0.3
    """Weight of the early exit's loss relative to the solver's."""
    alone: Stage | None = None
    """Stage that trains the draft on its own. None: the former draft is kept unchanged."""


class MistakeSampling(_Strict):
    """How the draft's own mistakes are sampled, at every step of some stories."""

    stories: Stories
    temperatures: Annotated[list[PositiveFloat], Field(min_length=1)]
    """Temperatures at which the draft is sampled: one sample of each step at each temperature."""


class RolloutSampling(_Strict):
    """How the values of steps are estimated; see `tools.demo_pair.rollouts`."""

    stories: Stories
    """Number of stories whose right steps are valued."""
    mistakes: PositiveInt
    """Number of the draft's mistakes that are valued; the other mistakes have the value 0."""
    samples: PositiveInt
    """Number of rollouts after each of these mistakes."""
    temperature: PositiveFloat = 1.0
    """Temperature of the solver in the rollouts."""


class Former(_Strict):
    """The pair from whose weights the training starts: `git show COMMIT:harness/data/models/…`."""

    commit: str
    draft: str
    """SHA-256 of the draft's model.safetensors."""
    target: str
    """SHA-256 of the target's model.safetensors."""


class Target(_Strict):
    """The target: solver layers, judge layers on top of them, and further layers for depth."""

    solver_layers: PositiveInt
    judge_layers: Annotated[int, Field(ge=6)]
    layers: PositiveInt
    """Total number of layers; the layers above the judge are trained only in stage `refine`."""
    solve: Stage | None = None
    """Stage that trains the solver's layers. None: the former target's solver layers are kept until the whole target is
    refined.
    """
    judge: Stage
    verdict_weight: PositiveFloat = 1.0
    """Weight of the verdict loss while the judge is trained."""
    refine: Stage


class Reward(_Strict):
    """The reward model: a selection of the target's layers, the last of which are trained to judge one step."""

    stories: Stories
    """Number of stories, from the first on; the draft's mistakes in these stories are used in training."""
    solver: list[PositiveInt]
    """The target's solver layers to use, counted from 1; they are not trained further."""
    judges: Annotated[list[PositiveInt], Field(min_length=4, max_length=4)]
    """The target's layers, counted from 1, from which the training of the judging layers starts; see
    network.REWARD_HEADS.
    """
    judge: Stage


class Config(_Strict):
    """The configuration of a whole training."""

    seed: int
    stories: Stories
    """Number of stories to train on."""
    checked: PositiveInt
    """Number of held-out problems for the evaluation, in addition to the demo's problems."""
    shape: LayerShape
    former: Former | None = None
    """Pair from whose weights the training starts. None: random weights."""
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
