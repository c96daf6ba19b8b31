"""Arguments of a vLLM engine and sampling parameters of a vLLM request."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

from harness.engine import EngineDied, RequestRefused, Sampling
from harness.engines.distributions import NUM_RANKED
from harness.engines.settings import EngineSettings
from harness.engines.speculation import Speculation
from harness.engines.variables import START_SECONDS

_CPU_BATCHED_TOKENS = 2048
_SPECULATION_METRICS = "per_request_spec_decode_metrics"
"""Makes vLLM report proposed and confirmed tokens per request; older versions report them per engine only."""
_RANKS_TIMEOUT = "distributed_timeout_seconds"
"""How long ranks wait for each other; torch's own limit is 600 s."""
_TEXT_ONLY = "language_model_only"
"""Leaves the encoders of images and sounds out, with their weights and the memory that vLLM sets aside for them."""
_HETEROGENEOUS_VOCABULARIES = "use_heterogeneous_vocab"
_ALL_TOKENS = -1
_NUM_LISTED = (20, 1000, 10_000)
"""Numbers of most probable tokens to request, one after the other until every option of a verdict is among them. All
tokens come last: on a GPU the engine then sorts the whole vocabulary for every request of the batch, in memory that it
has not set aside (3 MiB a row with 152,000 tokens)."""
_ADAPTER_SLOTS = 2
"""One slot for the adapter and one that stays empty: on the CPU, vLLM applies the last slot's weights to tokens of the
base model where a batch also holds the adapter's (vllm-project/vllm#48421)."""


def engine_arguments(model_path: str, revision: str | None, settings: EngineSettings) -> Any:
    """Return vLLM's AsyncEngineArgs. Raises EngineDied where this vLLM lacks an argument."""
    from vllm.engine.arg_utils import AsyncEngineArgs

    context = _max_model_len(model_path, revision, settings.max_context)
    values = {
        "model": model_path,
        "revision": revision,
        "tokenizer_revision": revision,
        "dtype": settings.dtype,
        "tensor_parallel_size": settings.tensor_parallel,
        "gpu_memory_utilization": settings.memory_fraction,
        "kv_cache_memory_bytes": settings.kv_cache_bytes,
        "block_size": settings.block_size,
        "max_model_len": context,
        "max_num_seqs": settings.max_num_seqs,
        **_batching(settings, context),
        "enforce_eager": settings.enforce_eager,
        "enable_prefix_caching": True,
        "scheduling_policy": "priority" if settings.verdicts_first else "fcfs",
        "load_format": settings.load_format,
        "disable_log_stats": False,  # includes the times of each request
    }
    if settings.adapter is not None:
        values |= {"enable_lora": True, "max_loras": _ADAPTER_SLOTS, "max_lora_rank": settings.adapter.served_rank}
    if settings.speculation is not None:
        speculative_config = _speculative_config(model_path, revision, settings.speculation)
        values |= {"speculative_config": speculative_config, "max_logprobs": _ALL_TOKENS}
    arguments = {name: value for name, value in values.items() if value is not None}
    supported = {f.name for f in dataclasses.fields(AsyncEngineArgs)}
    if unknown := set(arguments) - supported:
        raise EngineDied(f"this vLLM lacks the arguments {', '.join(sorted(unknown))}; version 0.31 or later is needed")
    if _TEXT_ONLY in supported:
        arguments[_TEXT_ONLY] = True
    if settings.device == "gpu" and settings.tensor_parallel > 1 and _RANKS_TIMEOUT in supported:
        arguments[_RANKS_TIMEOUT] = START_SECONDS  # ranks wait for the one that loads its weights last
    if settings.speculation is not None and _SPECULATION_METRICS in supported:
        arguments[_SPECULATION_METRICS] = "summary"
    return AsyncEngineArgs(**arguments | {name: json.loads(value) for name, value in settings.arguments})


def generation_params(sampling: Sampling, index: int, max_tokens: int, *, mean_logprob: bool) -> Any:
    """Return the SamplingParams of completion `index` of a `generate`. Raises RequestRefused."""
    from vllm.sampling_params import RequestOutputKind, SamplingParams

    return _checked(
        SamplingParams,
        max_tokens=max_tokens,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
        repetition_penalty=sampling.repetition_penalty,
        seed=sampling.seed + index,
        stop=list(sampling.stop),
        include_stop_str_in_output=True,
        detokenize=bool(sampling.stop),
        skip_special_tokens=False,  # a stop string such as </think> may be one
        spaces_between_special_tokens=False,
        logprobs=NUM_RANKED if sampling.entropies else 0 if mean_logprob or sampling.token_logprobs else None,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def likelihood_params() -> Any:
    """Return the SamplingParams of a `log_probabilities`, whose text is the end of the prompt. Raises RequestRefused.

    vLLM computes such a prompt anew, without its prefix cache, and writes one token behind it.
    """
    from vllm.sampling_params import RequestOutputKind, SamplingParams

    return _checked(
        SamplingParams,
        max_tokens=1,
        temperature=0.0,
        prompt_logprobs=0,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def verdict_params(options: Sequence[int]) -> Any:
    """Return the SamplingParams of a `choose`: one token, with the log-probabilities of all options.

    Raises RequestRefused.
    """
    from vllm.sampling_params import RequestOutputKind, SamplingParams

    # No request in the same batch may set `logprobs` above 0 (harness.engines.distributions): beside logprob_token_ids
    # the V1 runner would silently answer with -inf.
    return _checked(
        SamplingParams,
        max_tokens=1,
        temperature=0.0,
        allowed_token_ids=list(options),
        logprob_token_ids=list(options),
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def numbers_listed(vocabulary: int) -> list[int]:
    """Return the numbers of most probable tokens to request one after the other; the last stands for all tokens."""
    return [*(number for number in _NUM_LISTED if number < vocabulary), _ALL_TOKENS]


def listed_verdict_params(options: Sequence[int], num_listed: int) -> Any:
    """Return the SamplingParams of a `choose` for an engine with token-level speculation. Raises RequestRefused.

    vLLM ignores logprob_token_ids there, so the log-probabilities of the most probable tokens are requested.
    """
    from vllm.sampling_params import RequestOutputKind, SamplingParams

    return _checked(
        SamplingParams,
        max_tokens=1,
        temperature=0.0,
        allowed_token_ids=list(options),
        logprobs=num_listed,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def lora_request(settings: EngineSettings) -> Any:
    """Return the LoRARequest of the adapter for verdicts; None without an adapter."""
    if settings.adapter is None:
        return None
    from vllm.lora.request import LoRARequest

    return LoRARequest("selection", 1, settings.adapter.path)


def rejection_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that vLLM raises for an invalid request."""
    from vllm import exceptions

    kinds = (getattr(exceptions, name, None) for name in ("VLLMClientError", "VLLMValidationError"))
    return (ValueError, *(kind for kind in kinds if kind is not None))


def _checked(make: Any, **parameters: Any) -> Any:
    """Return `make(**parameters)`, with vLLM's checks of parameters as RequestRefused."""
    try:
        params = make(**parameters)
        params.skip_clone = True  # made for one request, so vLLM need not copy it deeply
        return params
    except rejection_errors() as rejection:
        raise RequestRefused(str(rejection)) from rejection


def batched_tokens(settings: EngineSettings, context: int | None) -> int | None:
    """Return the most tokens that one batch computes, with a context of this many tokens; None: vLLM's default."""
    if settings.device == "gpu":
        return settings.max_num_batched_tokens
    return max(settings.max_num_batched_tokens or _CPU_BATCHED_TOKENS, context or 0)


def _batching(settings: EngineSettings, context: int | None) -> dict[str, Any]:
    """Return the arguments on batching. On a CPU no prompt may be split over two batches.

    vLLM 0.32 rewinds the generator of a seeded request whose prompt was split. CPU generators do not support that, and
    the engine dies ("CPU Generator does not use offset").
    """
    tokens = batched_tokens(settings, context)
    if settings.device == "gpu":
        return {"max_num_batched_tokens": tokens}
    return {"enable_chunked_prefill": False, "max_num_batched_tokens": tokens}


def _speculative_config(model_path: str, revision: str | None, speculation: Speculation) -> dict[str, object]:
    """Return vLLM's `speculative_config`. Raises EngineDied where this vLLM does not support it.

    Models of one family often pad their vocabularies to different sizes (R1-Distill-Qwen 1.5B and 32B do). Then only
    tokens of both vocabularies are proposed.
    """
    from vllm.config import SpeculativeConfig

    supported = {f.name for f in dataclasses.fields(SpeculativeConfig)}
    config = speculation.config()
    if unknown := sorted(config.keys() - supported):
        raise EngineDied(
            f"this vLLM has no {', '.join(unknown)} for token-level speculation by {speculation.proposer}: "
            "version 0.32 has, and other proposers and greedy drafts need no such setting"
        )
    if speculation.proposer != "draft" or speculation.model is None:
        return config
    sizes = [_vocabulary_size(*model) for model in ((speculation.model, speculation.revision), (model_path, revision))]
    if sizes[0] == sizes[1]:
        return config
    unequal = f"draft and target have {sizes[0]} and {sizes[1]} tokens"
    if _HETEROGENEOUS_VOCABULARIES not in supported:
        raise EngineDied(f"{unequal}, and this vLLM requires equal vocabularies: use --spec-decode ngram, or vLLM 0.32")
    if speculation.sampling != "greedy":
        raise EngineDied(f"{unequal}, where vLLM cannot sample drafts: leave out --spec-sampling probabilistic")
    return {**config, _HETEROGENEOUS_VOCABULARIES: True}


def _vocabulary_size(model_path: str, revision: str | None) -> int:
    from transformers import AutoConfig

    size: int = (
        AutoConfig.from_pretrained(model_path, revision=revision, trust_remote_code=False).get_text_config().vocab_size
    )
    return size


def _max_model_len(model_path: str, revision: str | None, max_context: int | None) -> int | None:
    """Return the context in tokens, at most the model's limit, beyond which vLLM does not start."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(model_path, revision=revision, trust_remote_code=False)
    limit: int | None = getattr(config.get_text_config(), "max_position_embeddings", None)
    return min(max_context, limit) if max_context and limit else max_context or limit
