"""What one vLLM engine takes on each of its cards, apart from its KV cache.

After vLLM 0.32 on CUDA (vllm/v1/worker/gpu_worker.py, vllm/utils/mem_utils.py): a worker sets up CUDA and NCCL, then
measures what is free, then loads the weights and runs one batch of `max_num_batched_tokens` to see the peak, then
captures two graphs to estimate all of them. `gpu_memory_utilization` × the card's memory, less everything since that
measurement, is the KV cache. So there are two kinds of bytes:

- inside the share: weights, the peak of the activations, kernels and workspaces, CUDA graphs, the KV cache;
- outside of it: CUDA's context and NCCL's buffers from before the measurement, and what grows after it.

Shares are given to vLLM, and not the size of the cache (`kv_cache_memory_bytes`), which skips the measurement: where an
estimate here is too small, an engine with a share has a smaller cache or says so at its start; an engine with a fixed
cache would run out of memory in the middle of a run.

The constants are on the safe side, because none was measured by this project. Their sources stand beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.sizing.model_shape import ModelShape

GIB = 1 << 30
BATCHED_TOKENS = 2048
"""Tokens of one batch, prompts included (`max_num_batched_tokens`). vLLM's server takes 8192 on an H100 and 2048 on an
A100. From about a thousand tokens on, a model of 1.5 billion parameters or more is limited by arithmetic, so larger
batches read prompts no faster; but a verdict or a token then waits for the whole batch (2048 tokens of a 32B model:
0.3 s on one H100), and the activations of 8192 tokens take 1.3 GiB more of it."""

_CONTEXT_BYTES = int(0.75 * GIB)
"""CUDA's context with the kernels that PyTorch loads at once: 0.4 to 0.6 GiB on A100 and H100."""
_COMMUNICATION_BYTES = int(1.5 * GIB)
"""NCCL and custom all-reduce of an engine over several cards, before the measurement: 1.5 GiB on an L4 (2.28 GiB with
the context, pytorch/pytorch#175666), 1.8 GiB on an H100 (3.58 GiB on two cards, 1.79 on one, vllm-project/vllm#10511,
where kernels are part of both)."""
_GROWTH_BYTES = int(0.5 * GIB)
"""What is allocated after the measurement: kernels loaded later, fragments, graphs above their estimate (0.13 GiB in
vllm-project/vllm#57475; vLLM itself leaves 0.15 GiB when it advises on a cache size)."""
_KERNEL_BYTES = int(0.75 * GIB)
"""Kernels and workspaces that are loaded between the measurement and the end of the profile, and what weights take
beyond their sizes: 0.3 GiB (vllm-project/vllm#15815) to 1 GiB (vllm-project/vllm#10511, the context subtracted)."""
_GRAPH_BYTES = GIB // 4
_GRAPH_BYTES_PER_LAYER = 10 << 20
"""CUDA graphs of all batch sizes: 0.44 to 0.73 GiB for models of some 30 layers (vllm-project/vllm#48214, #39559)."""
_LOGIT_BYTES_PROFILED = 6
"""Bytes per logit of a batch in the profile: one copy in two bytes and one in four."""
_LOGIT_BYTES_LATER = 8
"""Bytes per logit outside of the profile: its sampler may skip top-p and log-probabilities (a note in
vllm/v1/worker/gpu/model_runner.py, _dummy_sampler_run), which copy the logits in four bytes."""
_ADAPTER_SLOTS = 2
"""Slots of harness.engines.vllm_process, each with room for the largest rank."""


@dataclass(frozen=True, slots=True)
class EngineMemory:
    """Bytes of one engine on each of its cards."""

    weights: int
    activations: int
    """Peak beyond the weights, kernels and workspaces included."""
    graphs: int
    outside: int
    """Beside the share: context, communication, and growth after vLLM's measurement."""
    kv_per_token: int

    @property
    def fixed(self) -> int:
        """What the share holds apart from the KV cache."""
        return self.weights + self.activations + self.graphs


def engine_memory(
    shape: ModelShape,
    width: int,
    *,
    num_logits: int,
    dtype: str = "auto",
    companions: Sequence[ModelShape] = (),
    adapter_rank: int = 0,
    batched_tokens: int = BATCHED_TOKENS,
) -> EngineMemory:
    """Return what an engine takes on each of `width` cards.

    `num_logits` is the most rows of logits in one batch. `companions` are models that the same engine loads to propose
    tokens: their weights and caches lie beside the model's. `adapter_rank` is the largest rank of LoRA weights; 0 for
    none.
    """
    models = (shape, *companions)
    layers = sum(model.layers for model in models)
    logits = num_logits * shape.padded_vocabulary
    communication = _COMMUNICATION_BYTES if width > 1 else 0
    tokens = max(batched_tokens, num_logits)
    forward = max(_forward_bytes(model, width, tokens) for model in models)
    return EngineMemory(
        weights=sum(model.weight_bytes(width, dtype) for model in models) + _adapter_bytes(shape, adapter_rank),
        activations=max(forward, logits * _LOGIT_BYTES_PROFILED) + _KERNEL_BYTES,
        graphs=_GRAPH_BYTES + layers * _GRAPH_BYTES_PER_LAYER,
        outside=_CONTEXT_BYTES + communication + _GROWTH_BYTES + logits * _LOGIT_BYTES_LATER,
        kv_per_token=sum(model.kv_bytes_per_token(width, dtype) for model in models),
    )


def _forward_bytes(shape: ModelShape, width: int, batched_tokens: int) -> int:
    """Return the largest activations of a batch: the feed-forward part of a layer, and copies of the hidden states.

    Checked against vLLM's log for Llama-3-8B with 8192 tokens: 1.22 GiB calculated, 1.26 GiB measured.
    """
    columns = shape.intermediate
    if shape.experts:
        columns = max(columns, shape.experts_per_token * shape.expert_intermediate + shape.shared_intermediate)
    hidden = 6 + (shape.experts_per_token if shape.experts else 0)
    return batched_tokens * (3 * columns // width + hidden * shape.hidden) * 2


def _adapter_bytes(shape: ModelShape, rank: int) -> int:
    """Return the bytes of LoRA's slots for all linear layers, two bytes each, as if they were not divided."""
    attention = 2 * (shape.hidden + shape.heads * shape.head_dim) + 2 * (shape.hidden + shape.kv_heads * shape.head_dim)
    return _ADAPTER_SLOTS * rank * shape.layers * (attention + 3 * (shape.hidden + shape.intermediate)) * 2
