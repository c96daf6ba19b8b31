"""Settings of a training (the paper's values, otherwise those of its authors' code) and presets for machines.

Imports neither torch nor peft.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal, get_args, get_type_hints

from harness.methods.ranges import check_range

Task = Literal["align", "select"]
"""align: the draft learns to think as the target does (3.3). select: the target learns to choose a draft (3.4)."""
LabelLoss = Literal["best", "sum"]
Dtype = Literal["auto", "bfloat16", "float32"]
MODULES = ("q_proj", "v_proj")
"""Modules that LoRA is added to (section 3.3): the query and value projections of every layer."""
RANKS = (1, 8, 16, 32, 64, 128)
"""Ranks that vLLM can serve."""


@dataclass(frozen=True)
class Settings:
    """Hyperparameters of a training. In these comments "code" is the authors' published code."""

    learning_rate: float
    """Learning rate of the first step; decays linearly to 0 (code: its trainer's default schedule)."""
    epochs: int = 5
    """Number of epochs (code)."""
    batch: int = 1
    """Examples per forward pass (code)."""
    accumulation: int = 1
    """Forward passes per optimizer step (code)."""
    rank: int = 8
    """Rank of LoRA (section 4.1)."""
    alpha: int = 32
    """Scale of LoRA (code)."""
    dropout: float = 0.1
    """Dropout of LoRA (code)."""
    gradient_norm: float = 1.0
    """Norm that gradients are clipped to (code: its trainer's default)."""
    label_loss: LabelLoss = "best"
    """Loss of select over the right options. best: of the most probable one (equation 4); sum: of all together."""
    max_tokens: int = 8192
    """Longest example; longer ones are left out and counted."""
    dtype: Dtype = "auto"
    """Data type of the frozen weights; auto: bfloat16 on a GPU, float32 on a CPU. LoRA's weights are float32."""
    gradient_checkpointing: bool = False
    """Recompute each layer's activations in the backward pass instead of storing them."""
    save_every: int = 20
    """Optimizer steps between checkpoints."""
    seed: int = 0

    def __post_init__(self) -> None:
        """Raise ValueError with the flag and its valid values."""
        for name in ("epochs", "batch", "accumulation", "alpha", "save_every", "max_tokens"):
            check_range(name, getattr(self, name), 1, None)
        if self.rank not in RANKS:
            raise ValueError(f"--rank must be one of {', '.join(map(str, RANKS))}, not {self.rank}")
        if not 0 < self.learning_rate < 1:
            raise ValueError(f"--learning-rate must be above 0 and below 1, not {self.learning_rate}")
        check_range("gradient_norm", self.gradient_norm, 0, None)
        if not 0 <= self.dropout < 1:
            raise ValueError(f"--dropout must be at least 0 and below 1, not {self.dropout}")

    def identity(self) -> dict[str, Any]:
        """Return the settings that the trained weights depend on."""
        values = dataclasses.asdict(self)
        del values["save_every"]
        return values


DEFAULTS: Mapping[Task, Settings] = {"align": Settings(5e-5), "select": Settings(1e-4)}
"""Learning rates as in the code."""


@dataclass(frozen=True)
class Preset:
    """Models and settings that belong together."""

    draft: str | None
    target: str | None
    settings: Settings
    data_flags: Mapping[str, Any]
    """Flags of harness.launch for the run that makes the data."""


def preset_names() -> list[str]:
    """Return the names of all presets."""
    return list(_presets())


def preset(name: str | None, task: Task) -> Preset:
    """Return a preset by name; for None, the defaults. Raises ValueError for an unknown name."""
    if name is None:
        return Preset(None, None, DEFAULTS[task], {})
    every = _presets()
    if name not in every:
        raise ValueError(f"--preset {name}: unknown; valid: {', '.join(every)}")
    own = every[name].get(task, {})
    values = {key.replace("-", "_"): value for key, value in own.items() if key != "data"}
    settings = dataclasses.replace(DEFAULTS[task], **values)
    return Preset(every[name].get("draft"), every[name].get("target"), settings, own.get("data", {}))


def fields() -> dict[str, type]:
    """Return the type of each setting by name, for flags; the type of a choice is str."""
    hints = get_type_hints(Settings)
    return {f.name: str if get_args(hints[f.name]) else hints[f.name] for f in dataclasses.fields(Settings)}


def choices(name: str) -> tuple[str, ...]:
    """Return the values of a setting that is a choice; empty for other settings."""
    return get_args(get_type_hints(Settings)[name])


def _presets() -> dict[str, dict[str, Any]]:
    text = resources.files("harness.training").joinpath("presets.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
