"""Settings of a training: the paper's where it says so, else its authors' code's, and presets by machine.

Light: no torch, no peft.
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
"""What LoRA is added to (section 3.3): the query and value projections of every layer."""
RANKS = (1, 8, 16, 32, 64, 128)
"""Ranks that vLLM can serve."""


@dataclass(frozen=True)
class Settings:
    """How weights are trained. The paper states the rank (section 4.1); «code» is the authors' published code."""

    learning_rate: float
    """At the first step; falls linearly to 0 behind the last (code, by its trainer's default)."""
    epochs: int = 5
    """Code."""
    batch: int = 1
    """Examples in one pass (code: 1)."""
    accumulation: int = 1
    """Passes per optimizer step (code: 1)."""
    rank: int = 8
    """Section 4.1."""
    alpha: int = 32
    """Code."""
    dropout: float = 0.1
    """Code."""
    gradient_norm: float = 1.0
    """Gradients are scaled down to it (code, by its trainer's default)."""
    label_loss: LabelLoss = "best"
    """Of select, over the set of right labels. best: of the most probable one (equation 4); sum: of all together."""
    max_tokens: int = 8192
    """Longer examples are left out, and counted."""
    dtype: Dtype = "auto"
    """Of the frozen weights: bfloat16 on a GPU, float32 on a CPU. LoRA's own are float32."""
    gradient_checkpointing: bool = False
    """Compute each layer's activations again on the way back instead of keeping them."""
    save_every: int = 20
    """Optimizer steps between two checkpoints."""
    seed: int = 0

    def __post_init__(self) -> None:
        """Raises ValueError that names the flag and what would be right."""
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
        """What the trained weights depend on."""
        values = dataclasses.asdict(self)
        del values["save_every"]
        return values


DEFAULTS: Mapping[Task, Settings] = {"align": Settings(5e-5), "select": Settings(1e-4)}
"""Rates: code."""


@dataclass(frozen=True)
class Preset:
    """Models and settings that belong together."""

    draft: str | None
    target: str | None
    settings: Settings
    data_flags: Mapping[str, Any]
    """Of harness.launch, for the run that makes the data."""


def preset_names() -> list[str]:
    """Every preset."""
    return list(_presets())


def preset(name: str | None, task: Task) -> Preset:
    """A preset by name; None: the defaults. Raises ValueError on an unknown one."""
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
    """Settings by name and type, for flags; a choice's type is str."""
    hints = get_type_hints(Settings)
    return {f.name: str if get_args(hints[f.name]) else hints[f.name] for f in dataclasses.fields(Settings)}


def choices(name: str) -> tuple[str, ...]:
    """The values of a setting that is a choice; else empty."""
    return get_args(get_type_hints(Settings)[name])


def _presets() -> dict[str, dict[str, Any]]:
    text = resources.files("harness.training").joinpath("presets.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
