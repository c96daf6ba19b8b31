"""A model on vLLM: how requests are sent, and what their outputs mean. `VLLMProcess` has the engine's lifetime."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

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
    Timing,
    VerdictUnavailable,
)
from harness.engines.calls import NUM_RANKED, Batches, CallClock, Calls, Kind, entropy_bound, gather_or_cancel
from harness.engines.registry import Capabilities
from harness.engines.settings import EngineSettings
from harness.engines.vllm_process import ALL_TOKENS, VLLMProcess
from harness.weights.tokenizer import HFTokenizer

if TYPE_CHECKING:
    from vllm import CompletionOutput, RequestOutput, SamplingParams
    from vllm.logprobs import Logprob
    from vllm.lora.request import LoRARequest
    from vllm.v1.engine.async_llm import AsyncLLM

_VERDICT_PRIORITY, _GENERATION_PRIORITY = 0, 1
"""Scheduling priorities; the lower number is scheduled first."""


class VLLMEngine:
    """An Engine on vLLM, in the worker's event loop."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        is_planned=True,
        takes_arguments=True,
        speculates=True,
        adapter_packages=(),
        has_processes=True,
        packages=("vllm", "torch"),
    )

    def __init__(
        self, model_path: str, role: Role, settings: EngineSettings, log_path: Path, revision: str | None
    ) -> None:
        """Nothing is started yet; see `start`."""
        self.role, self.settings = role, settings
        self.tokenizer = HFTokenizer(model_path, revision, settings.conventions)
        self.process = VLLMProcess(model_path, role, settings, log_path, revision, self._warm_up)
        self._request_numbers = itertools.count()
        self._calls = Calls()
        self._batches = Batches()

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
        return self.process.context_tokens

    @property
    def kv_tokens(self) -> int | None:
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
        return self.process.restarts

    async def reset_prefix_cache(self) -> bool:
        from vllm.v1.engine.exceptions import EngineDeadError

        llm = self.process.llm
        try:
            return llm is not None and bool(await llm.reset_prefix_cache())
        except EngineDeadError as error:
            raise EngineDied(f"the {self.role} engine has died") from error

    async def close(self) -> None:
        await self.process.close()

    async def generate(self, prompt: Sequence[int], sampling: Sampling) -> Generation:
        room = self.context_tokens - len(prompt)
        if room < 1:
            raise RequestRefused(f"a prompt of {len(prompt)} tokens in a context of {self.context_tokens}")
        # One request per completion instead of vLLM's n: that reports the cache hits of the completion that ends last,
        # which finds in the cache what the first one has just put there.
        all_params = [self._generation_params(sampling, i, min(room, sampling.max_tokens)) for i in range(sampling.n)]
        ids = self._checked(prompt)
        apart = self._batches.of("ranked") if sampling.entropies else contextlib.nullcontext()
        async with self._calls.clocked() as clock, apart:
            outputs = await gather_or_cancel([self._request(ids, p, _GENERATION_PRIORITY) for p in all_params])
        completions = tuple(self._completion(output.outputs[0], sampling) for output in outputs)
        cached = min(output.num_cached_tokens or 0 for output in outputs)
        return Generation(completions, len(prompt), cached, _timing(clock, outputs))

    async def choose(self, prompt: Sequence[int], options: Sequence[int]) -> Choice:
        if len(set(options)) != len(options):
            raise RequestRefused(f"options must be distinct tokens: {list(options)}")
        ids = self._checked(prompt)
        kind: Kind = "named" if self.settings.speculation is None else "ranked"
        async with self._calls.clocked() as clock, self._batches.of(kind):
            for params in self._verdict_params(options):
                output = await self._request(ids, params, _VERDICT_PRIORITY, self.process.lora)
                by_token = (output.outputs[0].logprobs or [{}])[0]
                if by_token.keys() >= set(options):
                    break
        logprobs = tuple(by_token[i].logprob if i in by_token else -math.inf for i in options)
        if not all(math.isfinite(x) for x in logprobs):
            raise VerdictUnavailable(f"the {self.role} engine gave {logprobs} for the options {list(options)}")
        return Choice(logprobs, len(prompt), output.num_cached_tokens or 0, _timing(clock, [output]))

    async def log_probabilities(self, prompt: Sequence[int], continuation: Sequence[int]) -> Likelihood:
        ids = self._checked([*prompt, *continuation])
        if not prompt or not continuation or len(ids) >= self.context_tokens:
            raise RequestRefused(f"a text of {len(ids)} tokens in a context of {self.context_tokens}")
        async with self._calls.clocked() as clock:
            output = await self._request(ids, likelihood_params(), _VERDICT_PRIORITY)
        given = given_logprobs(output.prompt_logprobs, ids, len(prompt))
        return Likelihood(given, len(ids), output.num_cached_tokens or 0, _timing(clock, [output]))

    def _generation_params(self, sampling: Sampling, index: int, max_tokens: int) -> SamplingParams:
        mean_logprob = self.settings.mean_logprobs
        sampling = replace(sampling, stop=tuple(self.tokenizer.native(text) for text in sampling.stop))
        return generation_params(sampling, index, max_tokens, mean_logprob=mean_logprob)

    def _verdict_params(self, options: Sequence[int]) -> list[SamplingParams]:
        """Parameters of a verdict, in the order of trying: the next ones are sent where an answer lacks an option."""
        if self.settings.speculation is None:
            return [verdict_params(options)]
        numbers = numbers_listed(self.process.vocabulary)
        return [listed_verdict_params(options, number) for number in numbers]

    def _checked(self, prompt: Sequence[int]) -> list[int]:
        """Return a prompt as a list of its own. Raises RequestRefused where the model does not have one of its ids."""
        ids = list(prompt)
        try:
            self.process.check_ids(ids)
        except rejection_errors() as rejection:
            raise RequestRefused(str(rejection)) from rejection
        return ids

    async def _request(
        self, prompt: list[int], params: SamplingParams, priority: int, lora: LoRARequest | None = None
    ) -> RequestOutput:
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

    async def _send(
        self,
        llm: AsyncLLM,
        prompt: list[int],
        params: SamplingParams,
        priority: int,
        lora: LoRARequest | None = None,
    ) -> RequestOutput:
        """Return the finished output of one request. Raises EngineDeadError and RequestRefused."""
        from vllm.inputs import tokens_input
        from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

        optional = {"priority": priority} if self.settings.verdicts_first else {}
        optional |= {"lora_request": lora} if lora is not None else {}
        request_id = f"{self.role}-{next(self._request_numbers)}"
        output: RequestOutput | None = None
        try:
            async for latest in llm.generate(tokens_input(prompt), params, request_id, **optional):
                output = latest
        except EngineGenerateError as error:  # of vLLM itself: what is wrong with a request, it checks before
            raise EngineDeadError from error
        except rejection_errors() as rejection:
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

    def _completion(self, output: CompletionOutput, sampling: Sampling) -> Completion:
        """Convert vLLM's CompletionOutput; the end-of-sequence token is counted but not kept."""
        ids = tuple(output.token_ids)
        num_tokens = len(ids)
        finish: Finish = "length"
        if output.finish_reason == "stop":
            finish = "stop" if isinstance(output.stop_reason, str) else "eos"
        total = output.cumulative_logprob
        mean = total / num_tokens if total is not None and math.isfinite(total) and num_tokens else None
        ids = ids[:-1] if finish == "eos" else ids
        ranked = min(NUM_RANKED, self.process.vocabulary)
        return Completion(
            *(ids, self.tokenizer.decode(ids), finish, num_tokens),
            mean if self.settings.mean_logprobs else None,
            *speculated_tokens(output),
            token_logprobs=token_logprobs(output) if sampling.token_logprobs else None,
            entropies=entropies(output, ranked) if sampling.entropies else None,
        )


_NUM_LISTED = (20, 1000, 10_000)
"""Numbers of most probable tokens to request, one after the other until every option of a verdict is among them. All
tokens come last: on a GPU the engine then sorts the whole vocabulary for every request of the batch, in memory that it
has not set aside (3 MiB a row with 152,000 tokens)."""


def generation_params(sampling: Sampling, index: int, max_tokens: int, *, mean_logprob: bool) -> SamplingParams:
    """Return the parameters of completion `index` of a `generate`. Raises RequestRefused."""
    return _params(
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
    )


def likelihood_params() -> SamplingParams:
    """Return the parameters of a `log_probabilities`, whose text is the end of the prompt.

    vLLM computes such a prompt anew, without its prefix cache, and writes one token behind it.
    """
    return _params(max_tokens=1, temperature=0.0, prompt_logprobs=0, detokenize=False)


def verdict_params(options: Sequence[int]) -> SamplingParams:
    """Return the parameters of a `choose`: one token, with the log-probabilities of all options.

    No request in the same batch may set `logprobs` above 0 (`Batches`): beside logprob_token_ids the V1 runner would
    silently answer with -inf. Raises RequestRefused.
    """
    ids = list(options)
    return _params(max_tokens=1, temperature=0.0, allowed_token_ids=ids, logprob_token_ids=ids, detokenize=False)


def listed_verdict_params(options: Sequence[int], num_listed: int) -> SamplingParams:
    """Return the parameters of a `choose` for an engine with token-level speculation. Raises RequestRefused.

    vLLM ignores logprob_token_ids there, so the log-probabilities of the most probable tokens are requested.
    """
    return _params(
        max_tokens=1, temperature=0.0, allowed_token_ids=list(options), logprobs=num_listed, detokenize=False
    )


def numbers_listed(vocabulary: int) -> list[int]:
    """Return the numbers of most probable tokens to request one after the other; the last stands for all tokens."""
    return [*(number for number in _NUM_LISTED if number < vocabulary), ALL_TOKENS]


def rejection_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that vLLM raises for an invalid request."""
    from vllm import exceptions

    kinds = (getattr(exceptions, name, None) for name in ("VLLMClientError", "VLLMValidationError"))
    return (ValueError, *(kind for kind in kinds if kind is not None))


def _params(**parameters: float | list[int] | list[str] | None) -> SamplingParams:
    """Return the parameters of a request of which only the end is reported. Raises RequestRefused."""
    from vllm.sampling_params import RequestOutputKind, SamplingParams

    try:
        params = SamplingParams(**parameters, output_kind=RequestOutputKind.FINAL_ONLY)
    except rejection_errors() as rejection:
        raise RequestRefused(str(rejection)) from rejection
    params.skip_clone = True  # made for one request, so vLLM need not copy it deeply
    return params


def _timing(clock: CallClock, outputs: Sequence[RequestOutput]) -> Timing:
    """Return the times of a call: queueing and first token are those of the request that was served first."""
    metrics = [m for m in (output.metrics for output in outputs) if getattr(m, "first_token_ts", 0.0)]
    if metrics:
        arrived = min(m.queued_ts for m in metrics)
        clock.queued_seconds = max(0.0, min(m.scheduled_ts for m in metrics) - arrived)
        clock.first_token_seconds = max(clock.queued_seconds, min(m.first_token_ts for m in metrics) - arrived)
    return clock.timing()


def token_logprobs(output: CompletionOutput) -> tuple[float, ...]:
    """Return the log-probability of each token of vLLM's CompletionOutput."""
    return tuple(ranked[token].logprob for token, ranked in zip(output.token_ids, output.logprobs, strict=True))


def entropies(output: CompletionOutput, num_ranked: int) -> tuple[float, ...]:
    """Return a lower bound on the entropy at each token of vLLM's CompletionOutput.

    Raises VerdictUnavailable where a position lacks some of the `num_ranked` most probable tokens.
    """
    bounds = []
    for ranked in output.logprobs:
        logprobs = [entry.logprob for entry in ranked.values()]
        if len(logprobs) < num_ranked or not all(map(math.isfinite, logprobs)):
            raise VerdictUnavailable(f"{len(logprobs)} log-probabilities of a token instead of {num_ranked}")
        bounds.append(entropy_bound(logprobs))
    return tuple(bounds)


def given_logprobs(
    prompt_logprobs: Sequence[dict[int, Logprob]] | None, ids: Sequence[int], start: int
) -> tuple[float, ...]:
    """Return the log-probabilities of the ids of a prompt from `start` on, out of vLLM's `prompt_logprobs`.

    Raises EngineDied where the engine does not give them: it gives none of any text.
    """
    if prompt_logprobs is None or len(prompt_logprobs) != len(ids):
        raise EngineDied("this engine does not give the log-probabilities of a prompt")
    ranked = zip(ids[start:], prompt_logprobs[start:], strict=True)
    return tuple(float(entries[token].logprob) for token, entries in ranked)


def speculated_tokens(output: CompletionOutput) -> tuple[int | None, int | None]:
    """Return the tokens proposed for a completion and those confirmed; None where this vLLM does not count them."""
    counts = getattr(output, "spec_decode_metrics", None)
    if counts is None:
        return None, None
    return counts.num_draft_tokens, sum(size * times for size, times in enumerate(counts.histogram))
