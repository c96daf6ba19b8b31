"""An estimate, not a measurement, of the memory that a training needs, from the model's configuration.

It counts the frozen weights, LoRA's weights with gradients and Adam's two moments, the activations that the backward
pass needs, and the logits. Attention is assumed to run in blocks, without memory quadratic in length, as on GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.training.hyperparameters import Settings

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
