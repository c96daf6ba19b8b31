"""The engines that the models run in."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field

from harness.launch_flags import DataType, EngineChoice, Flag, as_pairs, pair_of


class EngineFlags(BaseModel):
    """The engines that the models run in."""

    engine: Annotated[
        EngineChoice,
        Flag(
            "engine",
            "Inference engine. auto: vLLM if it is installed, otherwise transformers; with the profile's python, vLLM.",
        ),
    ] = "auto"
    concurrency: Annotated[
        int, Flag("engine", "Samples in flight per worker; use 1 to measure latency."), Field(ge=1, le=100_000)
    ] = 64
    draft_engine: Annotated[
        tuple[Annotated[str, AfterValidator(pair_of)], ...],
        Flag(
            "engine",
            "Any other argument of vLLM's engine for the draft, such as kv_cache_dtype=fp8; may be repeated.",
            metavar="KEY=VALUE",
        ),
        BeforeValidator(as_pairs),
    ] = ()
    target_engine: Annotated[
        tuple[Annotated[str, AfterValidator(pair_of)], ...],
        Flag("engine", "The same for the target, such as quantization=fp8; may be repeated.", metavar="KEY=VALUE"),
        BeforeValidator(as_pairs),
    ] = ()
    take_turns: Annotated[
        bool, Flag("engine", "Run only one of the two engines at a time; by default both work at once.")
    ] = False
    logprobs: Annotated[
        bool | None,
        Flag(
            "engine",
            "Ask for the log-probability of every generated token, recorded as each candidate's mean. Costs the "
            "worker's event loop about 50 µs a token.",
            default="off, because no method decides by it",
        ),
    ] = None
    target_logprobs: Annotated[
        bool,
        Flag(
            "engine",
            "Store the target's log-probability of each accepted step, read in one request for each chain after a "
            "worker's samples; texts and times stay as they are.",
        ),
    ] = False
    dtype: Annotated[DataType, Flag("engine", "Data type of the weights; auto: as they are stored.")] = "auto"
    max_context: Annotated[
        int | None,
        Flag("engine", "Longest prompt plus output, in tokens.", default="what prompt and token budget need"),
        Field(ge=16),
    ] = None
