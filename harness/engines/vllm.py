"""A model on vLLM: how requests are sent and what their outputs mean. `VLLMProcess` has the engine's lifetime."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.engine import (
    Choice,
    Completion,
    EngineDied,
    Finish,
    Generation,
    Likelihood,
    RequestRefused,
    Role,
    Sampling,
    VerdictUnavailable,
)
from harness.engines import distributions, vllm_arguments
from harness.engines.calls import CallClock, gather_or_cancel, speculated_tokens
from harness.engines.settings import EngineSettings
from harness.engines.vllm_process import VLLMProcess
from harness.weights.tokenizer import HFTokenizer

_VERDICT_PRIORITY, _GENERATION_PRIORITY = 0, 1
"""Scheduling priorities; the lower number is scheduled first."""


class VLLMEngine:
    """An Engine on vLLM, in the worker's event loop."""

    def __init__(
        self, model_path: str, role: Role, settings: EngineSettings, log_path: Path, revision: str | None
    ) -> None:
        """Nothing is started yet; see `start`."""
        self.role, self.settings = role, settings
        self.tokenizer = HFTokenizer(model_path, revision, settings.conventions)
        self.process = VLLMProcess(model_path, role, settings, log_path, revision, self._warm_up)
        self._request_numbers = itertools.count()
        self._in_flight = 0
        self._batches = distributions.Batches()

    @classmethod
    async def start(
        cls, model_path: str, role: Role, settings: EngineSettings, log_path: Path, revision: str | None = None
    ) -> VLLMEngine:
        """Start an engine whose output goes to `log_path`. Raises EngineDied with the end of that output."""
        engine = cls(model_path, role, settings, log_path, revision)
        try:
            await engine.process.start()
        except BaseException:
            await engine.close()
            raise
        return engine

    @property
    def context_tokens(self) -> int:
        """See Engine.context_tokens."""
        return self.process.context_tokens

    @property
    def kv_tokens(self) -> int | None:
        """See Engine.kv_tokens."""
        return self.process.kv_tokens

    @property
    def draft_sample_method(self) -> str | None:
        """How vLLM samples the tokens that a model proposes; None where no model proposes any."""
        return self.process.draft_sample_method

    @property
    def model_runner(self) -> str | None:
        """Which of vLLM's model runners computes, `v1` or `v2`; None where this vLLM does not say."""
        return self.process.model_runner

    @property
    def restarts(self) -> int:
        """See Engine.restarts."""
        return self.process.restarts

    async def reset_prefix_cache(self) -> bool:
        """See Engine.reset_prefix_cache."""
        from vllm.v1.engine.exceptions import EngineDeadError

        llm = self.process.llm
        try:
            return llm is not None and bool(await llm.reset_prefix_cache())
        except EngineDeadError as error:
            raise EngineDied(f"the {self.role} engine has died") from error

    async def close(self) -> None:
        """See Engine.close."""
        await self.process.close()

    async def generate(self, prompt: Sequence[int], sampling: Sampling) -> Generation:
        """See Engine.generate."""
        room = self.context_tokens - len(prompt)
        if room < 1:
            raise RequestRefused(f"a prompt of {len(prompt)} tokens in a context of {self.context_tokens}")
        # One request per completion instead of vLLM's n: that reports the cache hits of the completion that ends last,
        # which finds in the cache what the first one has just put there.
        all_params = [self._generation_params(sampling, i, min(room, sampling.max_tokens)) for i in range(sampling.n)]
        ids = self._checked(prompt)
        apart = self._batches.of("ranked") if sampling.entropies else contextlib.nullcontext()
        async with self._clocked() as clock, apart:
            outputs = await gather_or_cancel([self._request(ids, p, _GENERATION_PRIORITY) for p in all_params])
        completions = tuple(self._completion(output.outputs[0], sampling) for output in outputs)
        cached = min(output.num_cached_tokens or 0 for output in outputs)
        return Generation(completions, len(prompt), cached, clock.timing(outputs))

    async def choose(self, prompt: Sequence[int], options: Sequence[int]) -> Choice:
        """See Engine.choose."""
        if len(set(options)) != len(options):
            raise RequestRefused(f"options must be distinct tokens: {list(options)}")
        ids = self._checked(prompt)
        kind: distributions.Kind = "named" if self.settings.speculation is None else "ranked"
        async with self._clocked() as clock, self._batches.of(kind):
            for params in self._verdict_params(options):
                output = await self._request(ids, params, _VERDICT_PRIORITY, self.process.lora)
                by_token = (output.outputs[0].logprobs or [{}])[0]
                if by_token.keys() >= set(options):
                    break
        logprobs = tuple(by_token[i].logprob if i in by_token else -math.inf for i in options)
        if not all(math.isfinite(x) for x in logprobs):
            raise VerdictUnavailable(f"the {self.role} engine gave {logprobs} for the options {list(options)}")
        return Choice(logprobs, len(prompt), output.num_cached_tokens or 0, clock.timing([output]))

    async def log_probabilities(self, prompt: Sequence[int], continuation: Sequence[int]) -> Likelihood:
        """See Engine.log_probabilities."""
        ids = self._checked([*prompt, *continuation])
        if not prompt or not continuation or len(ids) >= self.context_tokens:
            raise RequestRefused(f"a text of {len(ids)} tokens in a context of {self.context_tokens}")
        async with self._clocked() as clock:
            output = await self._request(ids, vllm_arguments.likelihood_params(), _VERDICT_PRIORITY)
        given = distributions.given_logprobs(output.prompt_logprobs, ids, len(prompt))
        return Likelihood(given, len(ids), output.num_cached_tokens or 0, clock.timing([output]))

    def _generation_params(self, sampling: Sampling, index: int, max_tokens: int) -> Any:
        mean_logprob = self.settings.mean_logprobs
        sampling = replace(sampling, stop=tuple(self.tokenizer.native(text) for text in sampling.stop))
        return vllm_arguments.generation_params(sampling, index, max_tokens, mean_logprob=mean_logprob)

    def _verdict_params(self, options: Sequence[int]) -> list[Any]:
        """Parameters of a verdict, in the order of trying: the next ones are sent where an answer lacks an option."""
        if self.settings.speculation is None:
            return [vllm_arguments.verdict_params(options)]
        numbers = vllm_arguments.numbers_listed(self.process.vocabulary)
        return [vllm_arguments.listed_verdict_params(options, number) for number in numbers]

    def _checked(self, prompt: Sequence[int]) -> list[int]:
        """Return a prompt as a list of its own. Raises RequestRefused where the model does not have one of its ids."""
        ids = list(prompt)
        try:
            self.process.check_ids(ids)
        except vllm_arguments.rejection_errors() as rejection:
            raise RequestRefused(str(rejection)) from rejection
        return ids

    async def _request(self, prompt: list[int], params: Any, priority: int, lora: Any = None) -> Any:
        """Return the finished output of one request.

        It is sent to a new engine where this one dies under it, or ends it in another way than vLLM ends what it has
        finished (`abort`, `error`): that says nothing of the request.
        """
        from vllm.v1.engine.exceptions import EngineDeadError

        while True:
            llm = self.process.llm
            if llm is None:
                raise EngineDied(f"the {self.role} engine was closed")
            try:
                return await self._send(llm, prompt, params, priority, lora)
            except EngineDeadError:
                await self.process.replace(llm)

    async def _send(self, llm: Any, prompt: list[int], params: Any, priority: int, lora: Any = None) -> Any:
        """Return the finished output of one request. Raises EngineDeadError and RequestRefused."""
        from vllm.inputs import tokens_input
        from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

        optional = {"priority": priority} if self.settings.verdicts_first else {}
        optional |= {"lora_request": lora} if lora is not None else {}
        request_id = f"{self.role}-{next(self._request_numbers)}"
        output: Any = None
        try:
            async for latest in llm.generate(tokens_input(prompt), params, request_id, **optional):
                output = latest
        except EngineGenerateError as error:  # of vLLM itself: what is wrong with a request, it checks before
            raise EngineDeadError from error
        except vllm_arguments.rejection_errors() as rejection:
            raise RequestRefused(str(rejection)) from rejection
        if output is None or output.outputs[0].finish_reason not in ("stop", "length"):
            raise EngineDeadError(f"a request ended with {output and output.outputs[0].finish_reason!r}")
        return output

    async def _warm_up(self, process: VLLMProcess) -> None:
        """Send one request of each kind, so that compilation does not count into the first sample's latency."""
        prompt = self.tokenizer.encode("Hello")
        generation = self._generation_params(Sampling(2, 0.6, 0.95, ("\n\n",)), 0, 2)
        verdict = self._verdict_params(prompt[:1])[0]
        await self._send(process.llm, prompt, generation, _GENERATION_PRIORITY)
        await self._send(process.llm, prompt, verdict, _VERDICT_PRIORITY, process.lora)

    def _completion(self, output: Any, sampling: Sampling) -> Completion:
        """Convert vLLM's CompletionOutput; the end-of-sequence token is counted but not kept."""
        ids = tuple(output.token_ids)
        num_tokens = len(ids)
        finish: Finish = "length"
        if output.finish_reason == "stop":
            finish = "stop" if isinstance(output.stop_reason, str) else "eos"
        total = output.cumulative_logprob
        mean = total / num_tokens if total is not None and math.isfinite(total) and num_tokens else None
        ids = ids[:-1] if finish == "eos" else ids
        ranked = min(distributions.NUM_RANKED, self.process.vocabulary)
        return Completion(
            *(ids, self.tokenizer.decode(ids), finish, num_tokens),
            mean if self.settings.mean_logprobs else None,
            *speculated_tokens(output),
            token_logprobs=distributions.token_logprobs(output) if sampling.token_logprobs else None,
            entropies=distributions.entropies(output, ranked) if sampling.entropies else None,
        )

    @contextlib.asynccontextmanager
    async def _clocked(self) -> AsyncIterator[CallClock]:
        """Time one call and count it among those in flight."""
        self._in_flight += 1
        clock = CallClock(self._in_flight)
        try:
            yield clock
        finally:
            self._in_flight -= 1
            clock.stop()
