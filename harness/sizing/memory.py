"""Memory of a worker's GPUs ("cards"), and an engine's memory on each of them.

On a node, nvidia-smi lists the GPUs; on a login node, they follow from Slurm's options and known GPU types.

Weights and KV cache are calculated from `config.json`, but only for models that vLLM splits in a known way. A model
whose cache does not grow uniformly with every token (sliding windows, compressed caches, states of a fixed size) has
`kv_unknown` instead of an estimate.

An engine's memory follows vLLM 0.32 on CUDA (vllm/v1/worker/gpu_worker.py, vllm/utils/mem_utils.py). A worker sets up
CUDA and NCCL, then measures the free memory, then loads the weights and runs one batch of `max_num_batched_tokens` to
find the peak, then captures two graphs to estimate all of them. The KV cache gets `gpu_memory_utilization` × the GPU's
memory, minus all use since that measurement. This leads to two kinds of memory:

- inside the share: weights, the peak of the activations, kernels and workspaces, CUDA graphs, the KV cache;
- outside of it: CUDA's context and NCCL's buffers from before the measurement, and growth after it.

vLLM gets a share, not a cache size (`kv_cache_memory_bytes`), because a cache size skips the measurement. If an
estimate here is too small, an engine with a share has a smaller cache or reports the problem at its start; an engine
with a fixed cache would run out of memory during the run.

The constants are conservative, because this project measured none of them; each has its source beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any, TypeAlias, Union

from harness import gpus
from harness.cli.toml_file import read_toml
from harness.weights import models

Config = Mapping[str, Any]
"""A config.json or a part of it."""
_VOCABULARY_PADDING = 64
"""vLLM pads vocabularies to a multiple of this (vllm/model_executor/layers/vocab_parallel_embedding.py)."""
_MOST = 1 << 24
"""Larger sizes are rejected as invalid."""
_BYTES = {"float32": 4, "float": 4, "float16": 2, "half": 2, "bfloat16": 2}
_DENSE = frozenset({"llama", "qwen2", "qwen3", "mistral", "phi3", "olmo2", "granite"})
_EXPERTS = frozenset({"mixtral", "qwen2_moe", "qwen3_moe"})
"""Model types with grouped-query attention and a gated feed-forward part: `_DENSE` without experts, `_EXPERTS` with."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes of a decoder model."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    tied: bool = False
    """True if input and output embeddings are one matrix."""
    experts: int = 0
    expert_intermediate: int = 0
    experts_per_token: int = 0
    shared_intermediate: int = 0
    """Width of an expert that processes every token."""
    max_positions: int | None = None
    stored_dtype_bytes: int = 2
    is_quantized: bool = False
    file_bytes: int | None = None
    """Size of the weight files in bytes; None if not available locally."""
    kv_unknown: str | None = None
    """Reason why the cache's size is unknown; None if it is known."""
    weights_unknown: str | None = None
    """Reason why the weight size cannot be derived from the configuration; file sizes are used instead."""
    is_assumed: bool = False
    """True for built-in sizes, because the model's files are not available."""

    @property
    def padded_vocabulary(self) -> int:
        """Number of rows of vLLM's embeddings."""
        return -(-self.vocabulary // _VOCABULARY_PADDING) * _VOCABULARY_PADDING

    def widths(self, most: int) -> list[int]:
        """Return the tensor-parallel sizes accepted by vLLM, up to `most`, in ascending order.

        Attention heads, feed-forward columns and the padded vocabulary must be divisible by the size. Key-value heads
        are divided or, if there are fewer than GPUs, repeated (`QKVParallelLinear` asserts both).
        """
        return [width for width in range(1, most + 1) if self.refusal(width) is None]

    def refusal(self, width: int) -> str | None:
        """Return why the model cannot be split over this many GPUs; None if it can."""
        divided = {"attention heads": self.heads, "feed-forward columns": self.intermediate}
        if self.experts:
            divided["feed-forward columns"] = self.expert_intermediate
        divided["rows of the padded vocabulary"] = self.padded_vocabulary
        for what, number in divided.items():
            if number % width:
                return f"{number} {what} are not divisible by {width}"
        if self.kv_heads % width and width % self.kv_heads:
            return f"{self.kv_heads} key-value heads can neither be divided by {width} nor repeated on {width} GPUs"
        return None

    def parameters(self, width: int) -> int:
        """Return the number of parameters on each of `width` GPUs, including all experts."""
        heads = self.heads // width + 2 * self._kv_heads_on_card(width)
        attention = self.hidden * self.head_dim * (heads + self.heads // width)
        feed_forward = self.hidden * (self.experts + 3 * self._feed_forward_columns // width)
        norms = 2 * self.hidden + (heads + 2) * self.head_dim
        embeddings = (1 if self.tied else 2) * self.padded_vocabulary * self.hidden // width
        return self.layers * (attention + feed_forward + norms) + embeddings + self.hidden

    def weight_bytes(self, width: int, dtype: str = "auto") -> int:
        """Return the bytes of the weights on each of `width` GPUs.

        Weight files determine the total if available; the configuration then only determines the division. Unquantized
        weights are counted as loaded: `auto` loads float32 in two bytes, as in vLLM.
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
        """Return the bytes of one token in the cache of each of `width` GPUs: keys and values of all layers.

        Keys and values have the data type of the loaded weights or, for quantized weights, of the computation. If there
        are more GPUs than key-value heads, the heads are repeated, and the size does not shrink further
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


def read_shape(name: str, config: Config, file_bytes: int | None = None) -> ModelShape:
    """Return the shape described by a configuration in Hugging Face's format.

    Raises ValueError, with one line, if a size is missing or invalid.
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
        file_bytes=file_bytes,
        kv_unknown=_kv_unknown(family, own),
        weights_unknown=None if family in _DENSE | _EXPERTS else _unfamiliar(family),
    )
    return replace(shape, experts=0) if family in _DENSE else shape


def _kv_unknown(family: str, config: Config) -> str | None:
    """Return why the cache's bytes per token vary or are unknown; None if they are constant and known."""
    kinds = config.get("layer_types")
    if config.get("kv_lora_rank") is not None:
        return "the model compresses keys and values (multi-head latent attention)"
    if isinstance(kinds, list) and any(kind != "full_attention" for kind in kinds):
        return "some layers do not use full attention"
    window, positions = config.get("sliding_window"), config.get("max_position_embeddings")
    slides = config.get("use_sliding_window", not family.startswith("qwen")) is not False
    if isinstance(window, int) and slides and not (isinstance(positions, int) and window >= positions):
        return f"the model uses sliding-window attention ({window} tokens)"
    return None if family in _DENSE | _EXPERTS else _unfamiliar(family)


def _unfamiliar(family: str) -> str:
    return f"unknown model type {family[:40]!r}" if family else "config.json has no model_type"


def _size(name: str, config: Config, key: str) -> int:
    value = _optional(config, key)
    if not value:
        raise ValueError(f"{name}: config.json has no valid {key}")
    return value


def _optional(config: Config, key: str) -> int:
    """Return a size; 0 if it is missing, a boolean, or outside the valid range."""
    value = config.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MOST else 0


def shape_of(name: str, path_or_hub_id: str, revision: str | None = None) -> ModelShape | None:
    """Return the shape of a model in a folder or at the hub; None if it is unknown.

    Uses config.json in the folder or in the hub's cache, otherwise the sizes in `models.toml`. Raises ValueError, with
    one line, if the configuration is invalid.
    """
    reference = models.ModelRef(name, path_or_hub_id, revision, None)
    config = models.config_at_hand(reference)
    if config is not None:
        folder = models.files_at_hand(path_or_hub_id, revision)
        weights = models.weight_files(folder) if folder is not None else models.WeightFiles()
        return read_shape(name, config, None if weights.missing else weights.num_bytes or None)
    figures = _figures().get(path_or_hub_id)
    return None if figures is None else replace(read_shape(name, figures), is_assumed=True)


@cache
def _figures() -> Mapping[str, Config]:
    return read_toml(resources.files("harness.sizing") / "models.toml")


GIB = 1 << 30
BATCHED_TOKENS = 2048
"""Tokens of one batch, including prompts (`max_num_batched_tokens`). vLLM's server uses 8192 on an H100 and 2048 on an
A100. From about a thousand tokens on, models of at least 1.5 billion parameters are compute-bound, so larger batches do
not read prompts faster. However, verdicts and tokens wait for the whole batch (2048 tokens of a 32B model: 0.3 s on one
H100), and the activations of 8192 tokens need 1.3 GiB more."""

_CONTEXT_BYTES = int(0.75 * GIB)
"""CUDA's context with the kernels that PyTorch loads at start: 0.4 to 0.6 GiB on A100 and H100."""
_COMMUNICATION_BYTES = int(1.5 * GIB)
"""NCCL and custom all-reduce of an engine over several GPUs, before the measurement: 1.5 GiB on an L4 (2.28 GiB with
the context, pytorch/pytorch#175666), 1.8 GiB on an H100 (3.58 GiB on two GPUs, 1.79 on one, vllm-project/vllm#10511;
both include kernels)."""
_GROWTH_BYTES = int(0.5 * GIB)
"""Allocations after the measurement: kernels loaded later, fragmentation, graphs above their estimate (0.13 GiB in
vllm-project/vllm#57475; vLLM itself leaves 0.15 GiB when it recommends a cache size)."""
_KERNEL_BYTES = int(0.75 * GIB)
"""Kernels and workspaces loaded between the measurement and the end of the profile, and overhead of the weights:
0.3 GiB (vllm-project/vllm#15815) to 1 GiB (vllm-project/vllm#10511, without the context)."""
_GRAPH_BYTES = GIB // 4
_GRAPH_BYTES_PER_LAYER = 10 << 20
"""CUDA graphs of all batch sizes: 0.44 to 0.73 GiB for models of some 30 layers (vllm-project/vllm#48214, #39559)."""
_LOGIT_BYTES_PROFILED = 6
"""Bytes per logit of a batch in the profile: a two-byte and a four-byte copy."""
_LOGIT_BYTES_LATER = 8
"""Bytes per logit outside the profile: the profile's sampler may skip top-p and log-probabilities, which copy the
logits in four bytes (a note in vllm/v1/worker/gpu/model_runner.py, _dummy_sampler_run)."""
_ADAPTER_SLOTS = 2
"""LoRA slots of an engine (harness.engines.vllm), each with room for the maximum rank."""


@dataclass(frozen=True, slots=True)
class EngineMemory:
    """Bytes of one engine on each of its GPUs."""

    weights: int
    activations: int
    """Peak beyond the weights, including kernels and workspaces."""
    graphs: int
    outside: int
    """Outside the share: context, communication, and growth after vLLM's measurement."""
    kv_per_token: int

    @property
    def fixed(self) -> int:
        """Memory inside the share without the KV cache."""
        return self.weights + self.activations + self.graphs


def engine_memory(
    shape: ModelShape,
    width: int,
    *,
    num_logits: int,
    dtype: str = "auto",
    companions: Sequence[ModelShape] = (),
    adapter_rank: int = 0,
) -> EngineMemory:
    """Return an engine's memory on each of `width` GPUs.

    `num_logits`: maximum rows of logits in one batch. `companions`: models loaded by the same engine as token
    proposers, with their own weights and caches. `adapter_rank`: maximum LoRA rank; 0 without LoRA.
    """
    models = (shape, *companions)
    layers = sum(model.layers for model in models)
    logits = num_logits * shape.padded_vocabulary
    communication = _COMMUNICATION_BYTES if width > 1 else 0
    tokens = max(BATCHED_TOKENS, num_logits)
    forward = max(_forward_bytes(model, width, tokens) for model in models)
    return EngineMemory(
        weights=sum(model.weight_bytes(width, dtype) for model in models) + _adapter_bytes(shape, adapter_rank),
        activations=max(forward, logits * _LOGIT_BYTES_PROFILED) + _KERNEL_BYTES,
        graphs=_GRAPH_BYTES + layers * _GRAPH_BYTES_PER_LAYER,
        outside=_CONTEXT_BYTES + communication + _GROWTH_BYTES + logits * _LOGIT_BYTES_LATER,
        kv_per_token=sum(model.kv_bytes_per_token(width, dtype) for model in models),
    )


def _forward_bytes(shape: ModelShape, width: int, batched_tokens: int) -> int:
    """Return the maximum activations of a batch: a layer's feed-forward part, and copies of the hidden states.

    Checked against vLLM's log for Llama-3-8B with 8192 tokens: 1.22 GiB calculated, 1.26 GiB measured.
    """
    columns = shape.intermediate
    if shape.experts:
        columns = max(columns, shape.experts_per_token * shape.expert_intermediate + shape.shared_intermediate)
    hidden = 6 + (shape.experts_per_token if shape.experts else 0)
    return batched_tokens * (3 * columns // width + hidden * shape.hidden) * 2


def _adapter_bytes(shape: ModelShape, rank: int) -> int:
    """Return the size in bytes of the LoRA slots for all linear layers: two bytes per value, not divided among GPUs."""
    attention = 2 * (shape.hidden + shape.heads * shape.head_dim) + 2 * (shape.hidden + shape.kv_heads * shape.head_dim)
    return _ADAPTER_SLOTS * rank * shape.layers * (attention + 3 * (shape.hidden + shape.intermediate)) * 2


_MEBIBYTE = 1 << 20
_DRIVER_BYTES = 300 * _MEBIBYTE
_DRIVER_SHARE = 0.0075
"""Memory listed by nvidia-smi but not available in CUDA: `_DRIVER_BYTES` plus this share of the listed memory. Total
memory by nvidia-smi and by CUDA, in GiB: 80.00 and 79.25 (A100-80), 79.65 and 79.19 (H100), 44.99 and 44.42 (L40S,
vllm-project/vllm#15815), 40.00 and 39.56 (A100-40, vllm-project/vllm#8731), 31.86 and 31.38 (RTX PRO 4500,
vllm-project/vllm#51590), 22.49 and 22.05 (L4, pytorch/pytorch#175666). An engine's share refers to CUDA's total; for
these GPUs, the estimated total is at most 0.5 GiB below it."""

_KNOWN_MEBIBYTES = {
    "a10": 23028, "a10g": 23028, "a30": 24576, "a40": 46068, "a100-40": 40960, "a100-80": 81920, "a800-80": 81920,
    "a6000": 49140, "b200": 183359, "gh200": 97871, "h20": 97871, "h100": 81559, "h100-80": 81559, "h100-nvl": 95830,
    "h200": 143771, "h800": 81559, "l4": 23034, "l40": 46068, "l40s": 46068, "l40s-48": 46068, "rtx3090": 24576,
    "rtx4090": 24564, "rtx5090": 32607, "rtx6000ada": 49140, "t4": 15360, "v100-16": 16384, "v100-32": 32768,
}  # fmt: skip
"""Total memory as listed by nvidia-smi, by GPU type."""
_SMALLEST_OF_ITS_NAME = {"a100": "a100-40", "v100": "v100-16", "a800": "a100-40"}
"""GPU types sold with two memory sizes, and the smaller variant."""
_SOLD_AS_MEBIBYTES = {16: 15360, 24: 23028, 32: 32607, 40: 40960, 48: 46068, 80: 81559, 94: 95830, 141: 143771}
"""Total memory as listed by nvidia-smi, by nominal gigabytes; the minimum over GPU types of the same nominal size."""
_LISTED_SHARE = 0.93
"""Minimum ratio of listed GiB to nominal gigabytes, used for other sizes."""
_MOST_GPUS = 64
_MOST_GPUS_OF_A_JOB = 9999


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU, with the properties needed for planning."""

    name: str
    total_bytes: int
    """As reported by CUDA to an engine."""
    used_bytes: int = 0
    """Used by other processes."""
    is_assumed: bool = False
    """True if the type has several memory sizes and the smaller one is assumed."""

    @property
    def usable_bytes(self) -> int:
        """Memory available to all engines of this worker together."""
        return max(0, self.total_bytes - self.used_bytes)


@dataclass(frozen=True, slots=True)
class CardType:
    """Number and type of a job's GPUs, as known before it runs."""

    count: int
    card: Card | None
    """None if the type's memory is unknown."""

    def cards(self) -> list[Card]:
        """Return the GPUs; empty if their memory is unknown."""
        return [self.card] * self.count if self.card is not None else []


def card(name: str, memory_bytes: int, used_bytes: int = 0, *, is_assumed: bool = False) -> Card:
    """Return a GPU that nvidia-smi lists with `memory_bytes`; CUDA's smaller total is estimated from it."""
    driver = _DRIVER_BYTES + int(memory_bytes * _DRIVER_SHARE)
    return Card(name, max(0, memory_bytes - driver), used_bytes, is_assumed)


def known_card(type_name: str) -> Card | None:
    """Return the GPU for a type name as used by sites; None if unknown.

    Examples: `h100`, `A100-80`, `nvidia_a100_80gb_pcie`; or a slice of a GPU (MIG), `1g.10gb` or `a100_3g.20gb`.
    """
    if mig := re.search(r"\b\dg\.(\d{1,3})gb", type_name.lower().replace("_", " ")):
        return card(type_name.upper(), int(int(mig[1]) * 1024 * _LISTED_SHARE) * _MEBIBYTE)
    for name in _candidates(type_name):
        if name in _KNOWN_MEBIBYTES:
            return card(name.upper(), _KNOWN_MEBIBYTES[name] * _MEBIBYTE)
        if name in _SMALLEST_OF_ITS_NAME:
            smallest = _SMALLEST_OF_ITS_NAME[name]
            return card(smallest.upper(), _KNOWN_MEBIBYTES[smallest] * _MEBIBYTE, is_assumed=True)
    return None


def of_memory(text: str) -> Card:
    """Return a GPU with the given memory: `80` or `80GB` (nominal), or `81559MiB` (as listed by nvidia-smi).

    Raises ValueError.
    """
    match = re.fullmatch(r"\s*(\d{1,6})\s*(gb|gib|mib)?\s*", text, re.IGNORECASE)
    if match is None or int(match[1]) == 0:
        raise ValueError(f"--gpu-memory {text}: expected the memory of one GPU, e.g. 80GB or 81559MiB")
    number, unit = int(match[1]), (match[2] or "gb").lower()
    if unit != "gb":
        return card(f"GPU-{text.strip()}", number << (20 if unit == "mib" else 30))
    listed = _SOLD_AS_MEBIBYTES.get(number, int(number * 1024 * _LISTED_SHARE))
    return card(f"GPU-{number}GB", listed * _MEBIBYTE)


def parse_type(text: str) -> CardType | None:
    """Return the GPUs of a request as in sbatch: `4`, `h100`, `h100:4` or `a100:1,h100:2`.

    If there are several types, all GPUs count as the type with the least memory. None for an invalid request or no GPU.
    """
    types: list[str] = []
    for part in text.split(","):
        words = part.strip().split(":")
        count = words.pop() if words[-1].isdecimal() else "1"
        if len(words) > 1 or len(count) > len(str(_MOST_GPUS_OF_A_JOB)):
            return None
        types += (words or [""]) * min(int(count), _MOST_GPUS_OF_A_JOB)
    if not types:
        return None
    known = [known_card(name) for name in dict.fromkeys(types)]
    cards = [card for card in known if card is not None]
    return CardType(len(types), min(cards, key=lambda card: card.total_bytes) if len(cards) == len(known) else None)


def parse_gres(text: str) -> CardType | None:
    """Return the GPUs among generic resources such as `gpu:a100:2,nvme:1` or `gres/gpu:2`; None if there are none.

    Shards (`shard:4`) and shares of MPS, which are parts of a GPU, count as one GPU of unknown type.
    """
    gpus, others = split_gres(text)
    if gpus:
        return parse_type(",".join(gpus))
    return CardType(1, None) if any(map(is_share, others)) else None


def is_share(part: str) -> bool:
    """Return whether a generic resource is a part of a GPU, which Slurm rejects together with whole GPUs."""
    return re.match(r"(gres[:/])?(shard|mps)\b", part) is not None


def split_gres(text: str) -> tuple[list[str], list[str]]:
    """Split generic resources into GPUs, without the prefix (`a100:2` for `gpu:a100:2`), and other resources."""
    parts = [part.strip() for part in re.sub(r"\(.*?\)", "", text).split(",")]
    found = {part: re.fullmatch(r"(?:gres[:/])?gpu(?:[:=](.+))?", part) for part in parts}
    return [match[1] or "1" for match in found.values() if match], [part for part, match in found.items() if not match]


def parse_cards(text: str) -> list[Card]:
    """Return the GPUs of `4xH100-80`, or `h100:4` as in Slurm. Raises ValueError."""
    words = re.fullmatch(r"\s*(\d{1,3})\s*[x×]\s*([^:]+)", text, re.IGNORECASE)
    asked = parse_type(f"{words[2]}:{words[1]}" if words else text) if words or ":" in text else None
    if asked is None or asked.card is None or asked.count > _MOST_GPUS:
        known = ", ".join(sorted(_KNOWN_MEBIBYTES)).upper()
        raise ValueError(
            f"--gpus {text}: expected 1 to {_MOST_GPUS} GPUs of a known type, e.g. 4xH100-80; known: {known}"
        )
    return asked.cards()


def _candidates(type_name: str) -> Iterable[str]:
    """Yield possible names of a GPU type, without words added by sites and drivers, the most exact first."""
    text = re.sub(r"[\s_]+", "-", type_name.strip().lower()).replace("rtx-", "rtx")
    words = [w for w in text.split("-") if w and w not in {"nvidia", "geforce", "tesla", "quadro"}]
    head = words[0] if words else ""
    yield "-".join(words)
    if "nvl" in words:
        yield f"{head}-nvl"
    if "ada" in words:
        yield f"{head}ada"
    for word in words[1:]:
        if (size := re.fullmatch(r"(\d{2,3})(gb?)?", word)) is not None:
            yield f"{head}-{size[1]}"
    if (glued := re.fullmatch(r"([a-z]+\d{3})l?(\d{2})g?b?", head)) is not None:  # a100l40, a10080gb
        yield f"{glued[1]}-{glued[2]}"
    yield head


Option: TypeAlias = Union[bool, int, float, str, "Sequence[Option]", "Mapping[str, Option]", None]
Options = Mapping[str, Option]
"""Options of sbatch, and keys that are not passed to sbatch, from a profile or flags."""
GPU_MEMORY = "gpu-memory"
"""Key of a profile, and flag: the memory of one GPU, if its type does not determine it."""
_REQUESTS = ("gpus-per-task", "tres-per-task", "gres", "gpus-per-node", "gpus-per-socket", "gpus")
"""Options that request GPUs. If a job has several, Slurm 22.05 uses the first of these, or rejects the job."""
_PER_TASK, _OF_GRES = frozenset(_REQUESTS[:2]), frozenset(_REQUESTS[1:3])


@cache
def cards_here() -> tuple[Card, ...]:
    """Return the usable GPUs of this process; empty if any of them does not report its memory.

    Cached, because later this worker's own engines would count as other processes' memory.
    """
    found = [card(gpu.name, gpu.memory_bytes, gpu.used_bytes) for gpu in gpus.visible_gpus()]
    return () if any(one.total_bytes == 0 for one in found) else tuple(found)


def num_tasks(sbatch: Options) -> int:
    """Return the number of tasks that Slurm starts for one job; a range of nodes counts as its minimum."""
    if ntasks := _number(sbatch, "ntasks"):
        return ntasks
    if per_gpu := _number(sbatch, "ntasks-per-gpu"):
        asked = _asked(sbatch)
        return per_gpu * (asked.count if asked else 1)
    sockets = _number(sbatch, "sockets-per-node") if sbatch.get("gpus-per-socket") else 0
    return max(1, _number(sbatch, "ntasks-per-node") or sockets) * _nodes(sbatch)


def cards_of_worker(sbatch: Options, workers_per_task: int = 1) -> CardType | None:
    """Return the result of `cards_of_job`, divided among the workers that share the GPUs."""
    job = cards_of_job(sbatch)
    return None if job is None else replace(job, count=job.count // (workers_per_task * num_tasks(sbatch)))


_MAIN_MEMORY = {"mem", "mem-per-cpu", "mem-per-gpu"}
"""Mutually exclusive options of sbatch."""


def cards_of_job(sbatch: Options) -> CardType | None:
    """Return the number and type of the GPUs requested from sbatch, on all nodes; None if there are none.

    Raises ValueError if `gpu-memory` is invalid.
    """
    memory = of_memory(str(sbatch[GPU_MEMORY])) if sbatch.get(GPU_MEMORY) else None
    asked = _asked(sbatch)
    return asked if asked is None or memory is None else replace(asked, card=memory)


def without_replaced(options: Mapping[str, Any], typed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options (e.g. of a profile) that still apply next to `typed`, the overriding ones (e.g. flags).

    An overriding GPU request replaces all other GPU requests, and an overriding memory option all other memory options.
    The key `gpu-memory` is dropped if the GPU type changes. Names may have underscores.
    """
    given = {key.replace("_", "-") for key, value in typed.items() if value is not None}
    if given & _MAIN_MEMORY:
        options = {key: value for key, value in options.items() if key.replace("_", "-") not in _MAIN_MEMORY}
    keys = {key.replace("_", "-"): key for key in options}
    asking = {
        name: value
        for key, value in typed.items()
        if (name := key.replace("_", "-")) in _REQUESTS and value is not None and _is_of_gpus(name, value)
    }
    if not asking:
        return dict(options)
    left = dict(options)
    for name in keys.keys() & set(_REQUESTS):
        value = left[keys[name]]
        if _is_of_gpus(name, value):
            del left[keys[name]]
            if name in _OF_GRES and (others := [part for part in split_gres(str(value))[1] if not is_share(part)]):
                left[keys[name]] = ",".join(others)
    types = _types(asking)
    if types and types != _types({name: options[key] for name, key in keys.items()}):
        left.pop(keys.get(GPU_MEMORY, ""), None)
    if _PER_TASK & asking.keys():  # sbatch rejects ntasks-per-gpu in this combination
        left.pop(keys.get("ntasks-per-gpu", ""), None)
    return left


def _asked(sbatch: Options) -> CardType | None:
    """Return the GPUs of a job, from the option that sbatch uses if several apply."""
    for option in _REQUESTS:
        parse = parse_gres if option in _OF_GRES else parse_type
        asked = parse(str(sbatch[option])) if sbatch.get(option) else None
        if asked is None:
            continue
        factor = 1
        if option in _PER_TASK:
            factor = num_tasks({**sbatch, "ntasks-per-gpu": ""})
        elif option != "gpus":
            factor = _nodes(sbatch) * (_number(sbatch, "sockets-per-node") or 1 if option == "gpus-per-socket" else 1)
        return replace(asked, count=asked.count * factor)
    if per_gpu := _number(sbatch, "ntasks-per-gpu"):
        return CardType(-(-(_number(sbatch, "ntasks") or 1) // per_gpu), None)
    return None


def _is_of_gpus(option: str, value: Option) -> bool:
    if option not in _OF_GRES:
        return True
    whole, others = split_gres(str(value))
    return bool(whole) or any(map(is_share, others))


def _types(options: Options) -> set[str]:
    texts = [
        part
        for name, value in options.items()
        if name in _REQUESTS
        for part in (split_gres(str(value))[0] if name in _OF_GRES else str(value).split(","))
    ]
    return {name for text in texts if (name := text.strip().partition(":")[0].lower()) and not name.isdecimal()}


def _nodes(sbatch: Options) -> int:
    return max(1, _number({"nodes": str(sbatch.get("nodes", "")).partition("-")[0]}, "nodes"))


def _number(sbatch: Options, option: str) -> int:
    text = str(sbatch.get(option, ""))
    return int(text) if text.isdecimal() else 0
