"""vLLM requests without the harness, to measure the harness's overhead."""

from __future__ import annotations

import itertools
from typing import Any

from harness.engine import Engine, Role, Sampling
from harness.engines.calls import EngineWrapper
from harness.engines.vllm import VLLMEngine


class BareVLLM(EngineWrapper):
    """A started vLLM engine that can also be reached without the harness."""

    def __init__(self, engine: Engine, role: Role) -> None:
        """Raises TypeError if the engine is not a vLLM engine."""
        super().__init__(engine, role)
        if not isinstance(engine, VLLMEngine):
            raise TypeError(f"the benchmark needs vLLM engines, not {type(engine).__name__}")
        self._vllm = engine
        self._request_numbers = itertools.count()

    async def generate_bare(self, prompt: list[int], sampling: Sampling) -> int:
        """Generate exactly `max_tokens` tokens with vLLM itself; return the number of cached prompt tokens."""
        from vllm.inputs import tokens_input
        from vllm.sampling_params import RequestOutputKind, SamplingParams

        params = SamplingParams(
            max_tokens=sampling.max_tokens,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            seed=sampling.seed,
            ignore_eos=True,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        output: Any = None
        assert self._vllm.llm is not None
        async for latest in self._vllm.llm.generate(
            tokens_input(prompt), params, f"bare-{next(self._request_numbers)}"
        ):
            output = latest
        return output.num_cached_tokens or 0
