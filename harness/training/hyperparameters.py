"""Settings of a training (the paper's values, otherwise those of its authors' code) and presets for machines.

Imports neither torch nor peft.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, Literal

from harness.methods.method import check_range, parameter

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
    """Hyperparameters of a training, each with the text that `--help` prints."""

    learning_rate: float = field(
        metadata={"help": "Learning rate of the first step; it decays linearly to 0 (authors' code)."}
    )
    epochs: int = parameter(5, help="Number of epochs (authors' code).")
    batch: int = parameter(1, help="Examples per forward pass (authors' code).")
    accumulation: int = parameter(1, help="Forward passes per optimizer step (authors' code).")
    rank: int = parameter(8, help="Rank of LoRA (section 4.1).")
    alpha: int = parameter(32, help="Scale of LoRA (authors' code).")
    dropout: float = parameter(0.1, help="Dropout of LoRA (authors' code).")
    gradient_norm: float = parameter(1.0, help="Norm that gradients are clipped to (authors' code).")
    label_loss: LabelLoss = parameter(
        "best",
        help="Loss of select over the right options: of the most probable one (best, equation 4) or of all (sum).",
    )
    max_tokens: int = parameter(8192, help="Longest example, in tokens; longer ones are left out and counted.")
    dtype: Dtype = parameter(
        "auto",
        help="Data type of the frozen weights; auto: bfloat16 on a GPU, float32 on a CPU. LoRA's weights are float32.",
    )
    gradient_checkpointing: bool = parameter(
        False, help="Recompute each layer's activations in the backward pass instead of storing them, to save memory."
    )
    save_every: int = parameter(20, help="Optimizer steps between checkpoints.")
    seed: int = parameter(0, help="Seed of the initial weights, dropout and the order of the examples.")

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


DEFAULTS: Mapping[Task, Settings] = {"align": Settings(5e-5), "select": Settings(1e-4)}
"""Learning rates as in the code."""


def presets() -> dict[str, dict[str, Any]]:
    """Return the presets by name: `draft`, `target`, `dataset`, and for each task its settings and `data`.

    `data`: flags of harness.launch for the run that makes the data.
    """
    text = resources.files("harness.training").joinpath("presets.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
