"""What a model's `config.json` says about the memory that its weights and its KV cache take on a card.

Only what vLLM splits in a known way is counted. A model whose cache does not grow with every token alike (sliding
windows, compressed caches, states of a fixed size) has `kv_unknown`, and nothing is guessed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

_VOCABULARY_PADDING = 64
"""vLLM pads vocabularies to a multiple of this (vllm/model_executor/layers/vocab_parallel_embedding.py)."""
_MOST = 1 << 24
"""Sizes above this are no model's: a configuration is not trusted."""
_BYTES = {"float32": 4, "float": 4, "float16": 2, "half": 2, "bfloat16": 2}
_GROUPED = frozenset({"awq", "gptq"})
"""Kinds of quantization that have one scale for a group of a row's weights."""
_DENSE = frozenset({"llama", "qwen2", "qwen3", "mistral", "phi3", "olmo2", "granite"})
_EXPERTS = frozenset({"mixtral", "qwen2_moe", "qwen3_moe"})
"""Families whose layers are attention with grouped heads and a gated feed-forward part, with one or many experts."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The sizes of a decoder."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    tied: bool = False
    """True where input and output embeddings are one matrix."""
    experts: int = 0
    expert_intermediate: int = 0
    experts_per_token: int = 0
    shared_intermediate: int = 0
    """Width of an expert that sees every token."""
    max_positions: int | None = None
    stored_dtype_bytes: int = 2
    is_quantized: bool = False
    quantized_inputs: int = 1
    """Inputs of a linear layer that share a scale: a card must hold whole groups of them."""
    quantized_outputs: int = 1
    """Outputs that share a scale."""
    file_bytes: int | None = None
    """Bytes of the weight files; None where they are not at hand."""
    kv_unknown: str | None = None
    """Why the cache's size is not known; None where it is."""
    weights_unknown: str | None = None
    """Why the weights are not known from the configuration; the size of the files still tells them."""

    @property
    def padded_vocabulary(self) -> int:
        """Number of rows of the embeddings as vLLM lays them out."""
        return -(-self.vocabulary // _VOCABULARY_PADDING) * _VOCABULARY_PADDING

    def widths(self, most: int) -> list[int]:
        """Return the tensor parallel sizes that vLLM accepts, up to `most`, the smallest first.

        Attention heads, feed-forward parts and the padded vocabulary are divided; heads of keys and values are divided
        or, where there are fewer of them than cards, repeated (`QKVParallelLinear` asserts both).
        """
        return [width for width in range(1, most + 1) if self.refusal(width) is None]

    def refusal(self, width: int) -> str | None:
        """Return why the model cannot be split over so many cards; None where it can."""
        divided = {"attention heads": self.heads, "feed-forward columns": self.intermediate}
        if self.experts:
            divided["feed-forward columns"] = self.expert_intermediate
        divided["rows of the padded vocabulary"] = self.padded_vocabulary
        for what, number in divided.items():
            if number % width:
                return f"{number} {what} cannot be divided by {width}"
        if self.kv_heads % width and width % self.kv_heads:
            return f"{self.kv_heads} heads of keys and values can neither be divided nor repeated over {width}"
        return self._splits_a_group(width) if width > 1 else None

    def _splits_a_group(self, width: int) -> str | None:
        """Return why the scales of quantized weights cannot be divided over so many cards; None where they can.

        vLLM refuses parts of a layer's inputs (of blocks of weights also of its outputs) that are not whole groups
        (validate_fp8_block_shape, verify_group_size_divides_partition). For experts it has other ways.
        """
        both = math.lcm(self.quantized_inputs, self.quantized_outputs)
        columns = self.shared_intermediate if self.experts else self.intermediate
        attention, keys = self.heads * self.head_dim // width, self._kv_heads_on_card(width) * self.head_dim
        for what, part, group in (
            ("feed-forward columns", columns // width, both),
            ("columns of attention", attention, both),
            ("columns of keys", keys, self.quantized_outputs),
        ):
            if part % group:
                return f"the {part} {what} on each of {width} cards do not fill groups of {group} quantized weights"
        return None

    def parameters(self, width: int) -> int:
        """Return the number of parameters that each of `width` cards holds; experts are all counted."""
        heads = self.heads // width + 2 * self._kv_heads_on_card(width)
        attention = self.hidden * self.head_dim * (heads + self.heads // width)
        feed_forward = self.hidden * (self.experts + 3 * self._feed_forward_columns // width)
        norms = 2 * self.hidden + (heads + 2) * self.head_dim
        embeddings = (1 if self.tied else 2) * self.padded_vocabulary * self.hidden // width
        return self.layers * (attention + feed_forward + norms) + embeddings + self.hidden

    def weight_bytes(self, width: int, dtype: str = "auto") -> int:
        """Return the bytes of the weights on each of `width` cards.

        The files decide where they are at hand: the sizes in the configuration then only tell how they are divided.
        Unquantized weights are counted as they are loaded: `auto` loads float32 in two bytes, as vLLM does.
        """
        loaded = self._loaded_bytes(dtype)
        if self.file_bytes is None:
            return int(self.parameters(width) * loaded)
        as_loaded = 1.0 if self.is_quantized else loaded / self.stored_dtype_bytes
        if self.weights_unknown is not None:
            return int(self.file_bytes * as_loaded / width)
        # Padding and repeated heads make the parts add up to more than the files.
        return int(self.file_bytes * as_loaded * self.parameters(width) / self._stored_parameters())

    def kv_bytes_per_token(self, width: int, dtype: str = "auto") -> int:
        """Return the bytes that one token takes in the cache of each of `width` cards: keys and values of all layers.

        They have the type that the weights are loaded in; where these are quantized, the type they are calculated in.
        Beyond as many cards as there are heads of keys and values, the heads are repeated and this gets no smaller
        (vllm/config/model.py, get_num_kv_heads).
        """
        return 2 * self.layers * self._kv_heads_on_card(width) * self.head_dim * self._loaded_bytes(dtype)

    def _loaded_bytes(self, dtype: str) -> int:
        return _BYTES.get(dtype, min(2, self.stored_dtype_bytes))

    def _kv_heads_on_card(self, width: int) -> int:
        return max(1, self.kv_heads // width)

    @property
    def _feed_forward_columns(self) -> int:
        if not self.experts:
            return self.intermediate
        return self.experts * self.expert_intermediate + self.shared_intermediate

    def _stored_parameters(self) -> int:
        padding = (self.padded_vocabulary - self.vocabulary) * self.hidden * (1 if self.tied else 2)
        return self.parameters(1) - padding


def read_shape(name: str, config: Mapping[str, Any], file_bytes: int | None = None) -> ModelShape:
    """Return the shape that a configuration in Hugging Face's format describes.

    Raises ValueError, with one line, where a size is missing or is no size.
    """
    text = config.get("text_config")
    own = text if isinstance(text, dict) else config
    heads = _size(name, own, "num_attention_heads")
    hidden = _size(name, own, "hidden_size")
    family = str(own.get("model_type", config.get("model_type", "")))
    head_dim = _optional(own, "head_dim") or hidden // heads
    if head_dim == 0:
        raise ValueError(f"{name}: config.json has {heads} attention heads and a hidden size of only {hidden}")
    experts = _optional(own, "num_experts") or _optional(own, "num_local_experts")
    quantized_outputs, quantized_inputs = _quantized_groups(config.get("quantization_config"))
    dtype = str(own.get("dtype") or own.get("torch_dtype") or config.get("torch_dtype") or "bfloat16")
    shape = ModelShape(
        name=name,
        layers=_size(name, own, "num_hidden_layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=_optional(own, "num_key_value_heads") or heads,
        head_dim=head_dim,
        intermediate=_optional(own, "intermediate_size") or 4 * hidden,
        vocabulary=_size(name, own, "vocab_size"),
        tied=own.get("tie_word_embeddings", config.get("tie_word_embeddings")) is True,
        experts=experts,
        expert_intermediate=_optional(own, "moe_intermediate_size") or _optional(own, "intermediate_size"),
        experts_per_token=_optional(own, "num_experts_per_tok") or 1,
        shared_intermediate=_optional(own, "shared_expert_intermediate_size"),
        max_positions=_optional(own, "max_position_embeddings") or None,
        stored_dtype_bytes=_BYTES.get(dtype.removeprefix("torch."), 2),
        is_quantized=isinstance(config.get("quantization_config"), dict),
        quantized_inputs=quantized_inputs,
        quantized_outputs=quantized_outputs,
        file_bytes=file_bytes,
        kv_unknown=_kv_unknown(family, own),
        weights_unknown=None if family in _DENSE | _EXPERTS else _unfamiliar(family),
    )
    return replace(shape, experts=0) if family in _DENSE else shape


def _quantized_groups(quantization: object) -> tuple[int, int]:
    """Return how many outputs and how many inputs of a linear layer share a scale; 1 where none do or nothing says."""
    if not isinstance(quantization, dict):
        return 1, 1
    method = quantization.get("quant_method")
    if method in _GROUPED and not quantization.get("desc_act"):
        return 1, _optional(quantization, "group_size") or _optional(quantization, "q_group_size") or 1
    block: object = quantization.get("weight_block_size")
    if method == "compressed-tensors":
        groups = quantization.get("config_groups")
        schemes = list(groups.values()) if isinstance(groups, dict) else []
        weights = [one["weights"] for one in schemes if isinstance(one, dict) and isinstance(one.get("weights"), dict)]
        if len(weights) != 1:
            return 1, 1
        if weights[0].get("strategy") == "group":
            return 1, _optional(weights[0], "group_size") or 1
        block = weights[0].get("block_structure")
    if isinstance(block, list) and len(block) == 2:
        sizes = {"outputs": block[0], "inputs": block[1]}
        return _optional(sizes, "outputs") or 1, _optional(sizes, "inputs") or 1
    return 1, 1


def _kv_unknown(family: str, config: Mapping[str, Any]) -> str | None:
    """Return why a cache is not the same number of bytes for every token."""
    kinds = config.get("layer_types")
    if config.get("kv_lora_rank") is not None:
        return "it compresses keys and values (multi-head latent attention)"
    if isinstance(kinds, list) and any(kind != "full_attention" for kind in kinds):
        return "not all of its layers attend to the whole text"
    window, positions = config.get("sliding_window"), config.get("max_position_embeddings")
    slides = config.get("use_sliding_window", not family.startswith("qwen")) is not False
    if isinstance(window, int) and slides and not (isinstance(positions, int) and window >= positions):
        return f"it attends to a window of {window} tokens"
    return None if family in _DENSE | _EXPERTS else _unfamiliar(family)


def _unfamiliar(family: str) -> str:
    return f"models of the type {family[:40]!r} are not known here" if family else "config.json names no model_type"


def _size(name: str, config: Mapping[str, Any], key: str) -> int:
    value = _optional(config, key)
    if not value:
        raise ValueError(f"{name}: config.json has no valid {key}")
    return value


def _optional(config: Mapping[str, Any], key: str) -> int:
    """Return a size; 0 where there is none. A truth value is no size, and neither is what no model can have."""
    value = config.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MOST else 0
