"""Settings of a training (the paper's values, otherwise those of its authors' code) and presets for machines.

The memory that a training needs is an estimate from the model's configuration, not a measurement. It counts the frozen
weights, LoRA's weights with gradients and Adam's two moments, the activations that the backward pass needs, and the
logits. Attention is assumed to run in blocks, without memory quadratic in length, as on GPUs.

Imports neither torch nor peft.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, Literal, TypeVar, get_args, get_type_hints

from harness.methods.method import check_range

Task = Literal["align", "select"]
"""align: the draft learns to think as the target does (3.3). select: the target learns to choose a draft (3.4)."""
LabelLoss = Literal["best", "sum"]
Dtype = Literal["auto", "bfloat16", "float32"]
MODULES = ("q_proj", "v_proj")
"""Modules that LoRA is added to (section 3.3): the query and value projections of every layer."""
RANKS = (1, 8, 16, 32, 64, 128)
"""Ranks that vLLM can serve."""
_T = TypeVar("_T")


def _setting(help: str, default: _T) -> _T:  # noqa: A002 - click's word for it
    """Declare a setting: a field that carries its own documentation."""
    declared: _T = field(default=default, metadata={"help": help})
    return declared


@dataclass(frozen=True)
class Settings:
    """Hyperparameters of a training, each with the text that `--help` prints."""

    learning_rate: float = field(
        metadata={"help": "Learning rate of the first step; it decays linearly to 0 (authors' code)."}
    )
    epochs: int = _setting("Number of epochs (authors' code).", 5)
    batch: int = _setting("Examples per forward pass (authors' code).", 1)
    accumulation: int = _setting("Forward passes per optimizer step (authors' code).", 1)
    rank: int = _setting("Rank of LoRA (section 4.1).", 8)
    alpha: int = _setting("Scale of LoRA (authors' code).", 32)
    dropout: float = _setting("Dropout of LoRA (authors' code).", 0.1)
    gradient_norm: float = _setting("Norm that gradients are clipped to (authors' code).", 1.0)
    label_loss: LabelLoss = _setting(
        "Loss of select over the right options: of the most probable one (best, equation 4) or of all (sum).",
        "best",
    )
    max_tokens: int = _setting("Longest example, in tokens; longer ones are left out and counted.", 8192)
    dtype: Dtype = _setting(
        "Data type of the frozen weights; auto: bfloat16 on a GPU, float32 on a CPU. LoRA's weights are float32.",
        "auto",
    )
    gradient_checkpointing: bool = _setting(
        "Recompute each layer's activations in the backward pass instead of storing them, to save memory.", False
    )
    save_every: int = _setting("Optimizer steps between checkpoints.", 20)
    seed: int = _setting("Seed of the initial weights, dropout and the order of the examples.", 0)

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
    dataset: str | None = None
    """Training data; None: the default."""


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
    return Preset(
        every[name].get("draft"), every[name].get("target"), settings, own.get("data", {}), every[name].get("dataset")
    )


def fields() -> dict[str, type]:
    """Return the type of each setting by name, for flags; the type of a choice is str."""
    hints = get_type_hints(Settings)
    return {f.name: str if get_args(hints[f.name]) else hints[f.name] for f in dataclasses.fields(Settings)}


def meaning(name: str) -> str:
    """Return what a setting means, for `--help`."""
    return str(Settings.__dataclass_fields__[name].metadata["help"])


def choices(name: str) -> tuple[str, ...]:
    """Return the values of a setting that is a choice; empty for other settings."""
    return get_args(get_type_hints(Settings)[name])


def _presets() -> dict[str, dict[str, Any]]:
    text = resources.files("harness.training").joinpath("presets.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


_OPTIMIZED = 16
"""Bytes per trained weight: weight, gradient and two moments, each in float32."""
_LOGIT_EXTRA = 12
"""Further bytes per logit: its float32 copy, its log-softmax and its gradient."""
_NORM, _LORA = 16, 18
"""Bytes per hidden value and layer for two norms in float32, and for two LoRA inputs in float32 with dropout."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes by purpose."""

    weights: int
    lora: int
    activations: int
    logits: int

    @property
    def total(self) -> int:
        """The sum; the device's context and fragmentation add 2 to 4 GiB on a GPU."""
        return self.weights + self.lora + self.activations + self.logits


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a decoder of the Llama kind (Llama, Qwen2, SmolLM2)."""

    layers: int
    hidden: int
    inner: int
    queries: int
    """Heads × size of a head."""
    values: int
    """Key-value heads × size of a head."""
    vocabulary: int
    tied: bool
    biased: bool
    """Whether query, key and value projections have biases (Qwen2)."""

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Shape:
        """Read the content of a config.json. Raises KeyError for another architecture."""
        config = config.get("text_config") or config
        heads = config["num_attention_heads"]
        size = config.get("head_dim") or config["hidden_size"] // heads
        return cls(
            layers=config["num_hidden_layers"],
            hidden=config["hidden_size"],
            inner=config["intermediate_size"],
            queries=heads * size,
            values=(config.get("num_key_value_heads") or heads) * size,
            vocabulary=config["vocab_size"],
            tied=bool(config.get("tie_word_embeddings")),
            biased=config.get("model_type") == "qwen2" or bool(config.get("attention_bias")),
        )

    @property
    def parameters(self) -> int:
        """Number of frozen weights."""
        attention = self.hidden * (2 * self.queries + 2 * self.values)
        biases = self.queries + 2 * self.values if self.biased else 0
        layer = attention + biases + 3 * self.hidden * self.inner + 2 * self.hidden
        return self.layers * layer + self.hidden * self.vocabulary * (1 if self.tied else 2) + self.hidden

    def lora_parameters(self, rank: int) -> int:
        """Return LoRA's number of weights, in the query and value projections of every layer."""
        return self.layers * rank * (2 * self.hidden + self.queries + self.values)


def estimate(shape: Shape, settings: Settings, predictions: int, *, bytes_per_weight: int = 2) -> Memory:
    """Return the memory for examples of `settings.max_tokens` tokens, with `predictions` trained positions each."""
    tokens = settings.max_tokens * settings.batch
    saved = 6 * shape.hidden + 2 * shape.queries + 2 * shape.values + 4 * shape.inner
    layer = tokens * (bytes_per_weight * saved + (_NORM + _LORA) * shape.hidden)
    every_input = shape.layers * tokens * shape.hidden * bytes_per_weight
    return Memory(
        weights=shape.parameters * bytes_per_weight,
        lora=shape.lora_parameters(settings.rank) * _OPTIMIZED,
        activations=every_input + layer if settings.gradient_checkpointing else shape.layers * layer,
        logits=settings.batch * predictions * shape.vocabulary * (bytes_per_weight + _LOGIT_EXTRA),
    )
