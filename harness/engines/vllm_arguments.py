"""Arguments of a vLLM engine and sampling parameters of a vLLM request."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from harness.engine import EngineDied, RequestRefused, Sampling
from harness.engines.settings import EngineSettings
from harness.engines.speculation import Speculation

_CPU_BATCHED_TOKENS = 2048
_COUNTS = "per_request_spec_decode_metrics"
"""Lets vLLM say what was proposed and confirmed, request by request; older ones say it of the whole engine only."""
_OTHER_VOCABULARY = "use_heterogeneous_vocab"
_WHOLE_VOCABULARY = -1
NUM_LISTED = (20, _WHOLE_VOCABULARY)
"""How many of the most probable tokens are asked for, in turn, until every option of a verdict is among them."""
_ADAPTER_SLOTS = 2
"""One for the adapter and a last one that stays empty: vLLM on the CPU gives tokens of the base model the last slot's
weights where a batch also holds the adapter's (vllm-project/vllm#48421)."""


def engine_arguments(model_path: str, revision: str | None, settings: EngineSettings) -> Any:
    """vLLM's AsyncEngineArgs. Raises EngineDied where this vLLM lacks one that is needed."""
    from vllm.engine.arg_utils import AsyncEngineArgs

    context = _max_model_len(model_path, revision, settings.max_context)
    wanted = {
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
        "disable_log_stats": False,  # times per request come with them
    }
    if settings.adapter is not None:
        wanted |= {"enable_lora": True, "max_loras": _ADAPTER_SLOTS, "max_lora_rank": settings.adapter.served_rank}
    if settings.speculation is not None:
        proposing = _speculative_config(model_path, revision, settings.speculation)
        wanted |= {"speculative_config": proposing, "max_logprobs": _WHOLE_VOCABULARY}
    arguments = {name: value for name, value in wanted.items() if value is not None}
    known = {f.name for f in dataclasses.fields(AsyncEngineArgs)}
    if unknown := set(arguments) - known:
        raise EngineDied(f"this vLLM does not know {', '.join(sorted(unknown))}; version 0.31 or later is needed")
    if settings.speculation is not None and _COUNTS in known:
        arguments[_COUNTS] = "summary"
    return AsyncEngineArgs(**arguments)


def generation_params(sampling: Sampling, index: int, max_tokens: int, *, mean_logprob: bool) -> Any:
    """SamplingParams of completion `index` of a `generate`. Raises RequestRefused."""
    from vllm.sampling_params import RequestOutputKind, SamplingParams

    return _checked(
        SamplingParams,
        max_tokens=max_tokens,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        seed=sampling.seed + index,
        stop=list(sampling.stop),
        include_stop_str_in_output=True,
        detokenize=bool(sampling.stop),
        skip_special_tokens=False,  # a stop string such as </think> may be one
        spaces_between_special_tokens=False,
        logprobs=0 if mean_logprob else None,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def verdict_params(options: Sequence[int]) -> Any:
    """SamplingParams of a `choose`: one token, with the log-probabilities of all options. Raises RequestRefused."""
    from vllm.sampling_params import RequestOutputKind, SamplingParams

    # No request of this engine may ask for `logprobs` above 0: beside a row with logprob_token_ids, the V1 runner
    # would silently answer it with -inf.
    return _checked(
        SamplingParams,
        max_tokens=1,
        temperature=0.0,
        allowed_token_ids=list(options),
        logprob_token_ids=list(options),
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def listed_verdict_params(options: Sequence[int], num_listed: int) -> Any:
    """The same for an engine with token-level speculation, where vLLM leaves logprob_token_ids unanswered: one token,
    with the log-probabilities of the most probable ones. Raises RequestRefused."""
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
    """The LoRARequest of the adapter that verdicts are given with; None: there is none."""
    if settings.adapter is None:
        return None
    from vllm.lora.request import LoRARequest

    return LoRARequest("selection", 1, settings.adapter.path)


def rejection_errors() -> tuple[type[Exception], ...]:
    """What vLLM raises for a request that it does not take."""
    import vllm.exceptions as known

    named = (getattr(known, name, None) for name in ("VLLMClientError", "VLLMValidationError"))
    return (ValueError, *(kind for kind in named if kind is not None))


def _checked(make: Any, **parameters: Any) -> Any:
    """vLLM checks some parameters of a request when they are put together."""
    try:
        return make(**parameters)
    except rejection_errors() as refusal:
        raise RequestRefused(str(refusal)) from refusal


def _batching(settings: EngineSettings, context: int | None) -> dict[str, Any]:
    """On a CPU no prompt may be split over two batches: vLLM 0.32 rewinds the generator of a seeded request whose
    prompt was split, which CPU generators cannot do, and the engine dies («CPU Generator does not use offset»)."""
    tokens = settings.max_num_batched_tokens
    if settings.device == "gpu":
        return {"max_num_batched_tokens": tokens}
    whole_prompt = max(tokens or _CPU_BATCHED_TOKENS, context or 0)
    return {"enable_chunked_prefill": False, "max_num_batched_tokens": whole_prompt}


def _speculative_config(model_path: str, revision: str | None, speculation: Speculation) -> dict[str, object]:
    """`speculative_config`. Pairs of one family often pad their vocabularies to different sizes (R1-Distill-Qwen 1.5B
    and 32B do): then only tokens that both know are proposed. Raises EngineDied where this vLLM cannot do that."""
    from transformers import AutoConfig
    from vllm.config import SpeculativeConfig

    config = speculation.config()
    if speculation.model is None:
        return config
    models = ((speculation.model, speculation.revision), (model_path, revision))
    own, targets = (
        AutoConfig.from_pretrained(path, revision=commit).get_text_config().vocab_size for path, commit in models
    )
    if own == targets:
        return config
    if _OTHER_VOCABULARY not in {f.name for f in dataclasses.fields(SpeculativeConfig)}:
        raise EngineDied(
            f"draft and target have {own} and {targets} tokens, and this vLLM lets a draft propose only within one "
            "vocabulary: --spec-decode ngram works, or version 0.32"
        )
    return {**config, _OTHER_VOCABULARY: True}


def _max_model_len(model_path: str, revision: str | None, wanted: int | None) -> int | None:
    """The wanted context, or the model's limit where that is shorter: vLLM refuses to start beyond it."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(model_path, revision=revision)
    limit: int | None = getattr(config.get_text_config(), "max_position_embeddings", None)
    return min(wanted, limit) if wanted and limit else wanted or limit
