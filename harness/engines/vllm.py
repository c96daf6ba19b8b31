"""A model on vLLM: sends requests, interprets outputs, and manages the engine's processes.

If the processes die or stop working, they are replaced once. Replacement is safe because every request has a seed:
unanswered requests are sent again and generate the same tokens. Written for vLLM 0.31 and 0.32, on CPUs and GPUs.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import json
import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from harness.engine import (
    Choice,
    Completion,
    EngineDied,
    Finish,
    Generation,
    Likelihood,
    Rating,
    RequestRefused,
    Role,
    Sampling,
    Timing,
)
from harness.engines import calls, processes, vllm_patches
from harness.engines.calls import NUM_RANKED, Batches, CallClock, Calls, Kind, gather_or_cancel, ranked_entropy
from harness.engines.settings import EngineSettings, batched_tokens
from harness.engines.speculation import SAMPLING_FIELD, Speculation
from harness.settings.roles import SAMPLING
from harness.weights.adapter import served_rank
from harness.weights.tokenizer import HFTokenizer

if TYPE_CHECKING:
    from transformers import PretrainedConfig
    from vllm import AsyncEngineArgs, CompletionOutput, PoolingParams, RequestOutput, SamplingParams
    from vllm.config import CacheConfig, VllmConfig
    from vllm.logprobs import Logprob
    from vllm.lora.request import LoRARequest
    from vllm.outputs import PoolingOutput, PoolingRequestOutput
    from vllm.v1.engine.async_llm import AsyncLLM

Argument = str | float | Mapping[str, str | int] | None
"""A value of a vLLM argument."""
ALL_TOKENS = -1
"""vLLM's value for requesting log-probabilities of the whole vocabulary."""

_logger = logging.getLogger(__name__)
_VERDICT_PRIORITY, _GENERATION_PRIORITY = 0, 1
"""Scheduling priorities; lower values are scheduled first."""
_EXIT_GRACE_SECONDS = 5.0
_DEATH_POLL_SECONDS = 1.0
_DEATH_GRACE_SECONDS = 2.0
"""Grace time for the remaining processes of a dead engine."""


class VLLMEngine:
    """An Engine on vLLM, in the worker's event loop: one AsyncLLM with its processes."""

    def __init__(
        self, model_path: str, role: Role, settings: EngineSettings, log_path: Path, revision: str | None
    ) -> None:
        """Create an engine without starting it. Raises ValueError if the environment has an invalid stall limit."""
        self.llm: AsyncLLM | None = None
        """vLLM's AsyncLLM; None before the start and after `close`."""
        self.lora: LoRARequest | None = None
        """Adapter for verdicts, if any."""
        self.check_ids: Callable[[Sequence[int]], None] = lambda ids: None
        """Raises vLLM's error for a prompt with invalid ids."""
        self.processes: processes.EngineProcesses | None = None
        """The processes of the last start."""
        self.has_head = False
        self.context_tokens = self.vocabulary = 0
        self.kv_tokens: int | None = None
        self.draft_sample_method: str | None = None
        """vLLM's sampling of proposed tokens; None if no model proposes tokens."""
        self.model_runner: str | None = None
        """vLLM's model runner, `v1` or `v2`; None if this vLLM does not report it."""
        self.role, self.settings = role, settings
        self._model_path, self._revision, self._log_path = model_path, revision, log_path
        self._replacement: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._death_watch: asyncio.Task[None] | None = None
        self._stall_limit_seconds = calls.limit_seconds()
        self._stall_clock: calls.StallClock | None = None
        """None until the engine has answered its first requests."""
        self._stall: str | None = None
        """Description of the last engine's stall, if any."""
        self.tokenizer = HFTokenizer(model_path, revision, settings.conventions)
        self._request_numbers = itertools.count()
        self._calls = Calls()
        self._batches = Batches()

    @property
    def restarts(self) -> int:
        """Number of replacements of the engine: 0 or 1."""
        return int(self._replacement is not None)

    async def _start_logged(self) -> None:
        """Start the engine and warm it up. Raises EngineDied with the end of its output."""
        is_ready = False
        try:
            await self._start()
            is_ready = True
        finally:
            processes.log_end_of_start(self._log_path, self.role, is_ready=is_ready)

    async def replace(self, dead: AsyncLLM) -> None:
        """Replace a dead AsyncLLM with a new engine; concurrent callers wait for the same start.

        Raises EngineDied if the engine was closed, has died twice, or does not start.
        """
        if self._closing is not None:
            raise EngineDied(f"the {self.role} engine was closed")
        if self.llm is not dead:
            return
        if self._replacement is None:
            how = f"stopped working ({self._stall})" if self._stall else "died"
            _logger.warning("the %s engine %s; restarting it; its output: %s", self.role, how, self._log_path)
            self._replacement = asyncio.create_task(self._restart())
        elif self._replacement.done():
            raise self._died(f"died twice{f': {self._stall}' if self._stall else ''}")
        await asyncio.shield(self._replacement)

    async def close(self) -> None:
        """End the engine and all of its processes. May be called more than once."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _start(self) -> None:
        self._stall_clock = self._stall = None
        thread = asyncio.ensure_future(asyncio.to_thread(self._build))
        try:
            llm = await asyncio.shield(thread)
        except asyncio.CancelledError:
            await self._abandon_start(thread)
            raise
        self.llm = llm
        self.check_ids = vllm_patches.after_start(llm)
        # Keep a reference, because an event loop holds only weak references to tasks. The task ends by itself once
        # another engine has taken over.
        self._death_watch = asyncio.create_task(self._watch_for_death(llm))
        if self.settings.speculation is not None and self.settings.speculation.drafts:
            self.draft_sample_method = getattr(llm.vllm_config.speculative_config, SAMPLING_FIELD, "greedy")
        self.model_runner = model_runner_of(llm.vllm_config)
        self.context_tokens = int(llm.model_config.max_model_len)
        self.vocabulary = int(llm.model_config.get_vocab_size())
        self.kv_tokens = _kv_tokens(llm.vllm_config.cache_config)
        self.has_head = llm.model_config.runner_type == "pooling"
        from vllm.v1.engine.exceptions import EngineDeadError  # not before vLLM's output goes to the log

        try:
            async with asyncio.timeout(START_SECONDS):
                await self._load_adapter(llm)
                await self._warm_up()
        except TimeoutError as error:
            raise self._died(f"did not answer its first requests within {START_SECONDS:,} s") from error
        except EngineDeadError as error:
            raise self._died("did not survive its first request") from error
        self._stall_clock = clock = calls.StallClock(self._stall_limit_seconds)
        vllm_patches.report_work(llm, clock.note_work)

    def _build(self) -> AsyncLLM:
        with processes.starting(self._log_path, variables(self.settings)) as engine_processes:
            self.processes = engine_processes
            processes.log_start(self._log_path, self.role)
            try:
                from vllm.v1.engine import core_client
                from vllm.v1.engine.async_llm import AsyncLLM

                # vLLM reads the variable when this module is imported, perhaps before the variable was set.
                core_client.VLLM_ENGINE_READY_TIMEOUT_S = int(os.environ["VLLM_ENGINE_READY_TIMEOUT_S"])
                vllm_patches.before_start()
                arguments = engine_arguments(self._model_path, self._revision, self.settings)
                llm = AsyncLLM.from_engine_args(arguments)
                logging.getLogger("vllm").setLevel(logging.ERROR)  # only in this process; the engine's log is complete
                return llm
            except Exception as error:  # any vLLM error: the cause is in the output
                lines = processes.last_lines(self._log_path)
                cause = processes.root_cause(self._log_path) or error
                raise EngineDied(f"the {self.role} engine did not start: {cause}\n{lines}") from error
            finally:
                engine_processes.started()

    def _died(self, how: str) -> EngineDied:
        lines, joint = processes.last_lines(self._log_path), "\nIts" if self._stall else ". Its"
        return EngineDied(f"the {self.role} engine {how}{joint} last output:\n{lines}")

    async def _load_adapter(self, llm: AsyncLLM) -> None:
        """Load the adapter before any request: a bad adapter in a request would kill the engine."""
        lora = lora_request(self.settings)
        if lora is None:
            return
        try:
            await llm.add_lora(lora)
        except Exception as error:  # any vLLM error
            raise EngineDied(f"the {self.role} engine cannot load the adapter {lora.lora_path}: {error}") from error
        self.lora = lora

    async def _abandon_start(self, thread: asyncio.Future[AsyncLLM]) -> None:
        """Kill the processes of a start that is no longer needed."""
        while not thread.done():
            if self.processes is not None:
                await asyncio.to_thread(self.processes.kill)
            await asyncio.wait({thread}, timeout=0.5)
        if thread.exception() is None:
            await asyncio.to_thread(self._shut_down, thread.result())

    async def _restart(self) -> None:
        await asyncio.to_thread(self._shut_down, self.llm, 0.0)
        await self._start_logged()

    async def _close(self) -> None:
        if self._replacement is not None:
            self._replacement.cancel()
            with contextlib.suppress(asyncio.CancelledError, EngineDied):
                await self._replacement
        llm, self.llm = self.llm, None
        if llm is not None:
            self._fail_requests(llm)
        await asyncio.to_thread(self._shut_down, llm)

    async def _watch_for_death(self, llm: AsyncLLM) -> None:
        """Fail the requests of a dead or stalled engine, and end its remaining processes.

        vLLM fails the running requests only once, so later requests would hang. After one process has died, the other
        processes of the engine continue for many seconds.
        """
        engine_processes, is_ended = self.processes, False
        while self.llm is not None and self.llm is llm:
            if self._stall is None and not llm.errored and self._stall_clock is not None:
                self._stall = self._stall_clock.stalled(llm.output_processor.get_num_unfinished_requests())
            if llm.errored or self._stall is not None:
                self._fail_requests(llm)
                if engine_processes is not None and not is_ended:
                    is_ended = True
                    await asyncio.to_thread(engine_processes.kill, _DEATH_GRACE_SECONDS)
            await asyncio.sleep(_DEATH_POLL_SECONDS)

    def _fail_requests(self, llm: AsyncLLM) -> None:
        """Fail all running requests. Also called before a shutdown, which vLLM would otherwise report as a failure."""
        from vllm.v1.engine.exceptions import EngineDeadError

        if llm.output_handler is not None:
            llm.output_handler.cancel()
        llm.output_processor.propagate_error(EngineDeadError())

    def _shut_down(self, llm: AsyncLLM | None, grace_seconds: float = _EXIT_GRACE_SECONDS) -> None:
        engine_processes = self.processes
        try:
            if engine_processes is not None and not grace_seconds:
                engine_processes.kill()  # vLLM would first wait for them
            if llm is not None:
                llm.shutdown()
                llm.shutdown = lambda: None  # the destructor would shut down again at interpreter exit, and fail
        finally:
            if engine_processes is not None:
                engine_processes.kill(grace_seconds)
            vllm_patches.after_end(llm)

    @classmethod
    async def start(
        cls, model_path: str, role: Role, settings: EngineSettings, log_path: Path, revision: str | None = None
    ) -> VLLMEngine:
        """Start an engine that logs to `log_path`. Raises EngineDied with the end of its output."""
        engine = cls(model_path, role, settings, log_path, revision)
        try:
            await engine._start_logged()
        except BaseException:
            await engine.close()
            raise
        return engine

    async def reset_prefix_cache(self) -> bool:
        from vllm.v1.engine.exceptions import EngineDeadError

        llm = self.llm
        try:
            return llm is not None and bool(await llm.reset_prefix_cache())
        except EngineDeadError as error:
            raise EngineDied(f"the {self.role} engine has died") from error

    async def generate(self, prompt: Sequence[int], sampling: Sampling) -> Generation:
        room = calls.room_behind(prompt, self.context_tokens)
        # One request per completion instead of vLLM's n: with n, vLLM reports only the cache hits of the last
        # completion, which include cache entries of the first one.
        all_params = [self._generation_params(sampling, i, min(room, sampling.max_tokens)) for i in range(sampling.n)]
        ids = self._checked(prompt)
        apart = self._batches.of("ranked") if sampling.entropies else contextlib.nullcontext()
        async with self._calls.clocked() as clock, apart:
            outputs = await gather_or_cancel([self._request(ids, p, _GENERATION_PRIORITY) for p in all_params])
        completions = tuple(self._completion(output.outputs[0], sampling) for output in outputs)
        cached = min(output.num_cached_tokens or 0 for output in outputs)
        return Generation(completions, len(prompt), cached, _timing(clock, outputs))

    async def choose(self, prompt: Sequence[int], options: Sequence[int]) -> Choice:
        calls.check_options(options)
        ids = self._checked(prompt)
        kind: Kind = "named" if self.settings.speculation is None else "ranked"
        async with self._calls.clocked() as clock, self._batches.of(kind):
            for params in self._verdict_params(options):
                output = await self._request(ids, params, _VERDICT_PRIORITY, self.lora)
                by_token = (output.outputs[0].logprobs or [{}])[0]
                if by_token.keys() >= set(options):
                    break
        given = [by_token[option].logprob if option in by_token else -math.inf for option in options]
        logprobs = calls.finite(self.role, options, given)
        return Choice(logprobs, len(prompt), output.num_cached_tokens or 0, _timing(clock, [output]))

    async def log_probabilities(self, prompt: Sequence[int], continuation: Sequence[int]) -> Likelihood:
        calls.check_continuation(prompt, continuation)
        ids = self._checked([*prompt, *continuation])
        calls.room_behind(ids, self.context_tokens)
        async with self._calls.clocked() as clock:
            # vLLM recomputes such a prompt without its prefix cache, and generates one token after it.
            output = await self._request(ids, _one_token(prompt_logprobs=0), _VERDICT_PRIORITY)
        given = given_logprobs(output.prompt_logprobs, ids, len(prompt))
        return Likelihood(given, len(ids), output.num_cached_tokens or 0, _timing(clock, [output]))

    async def rate(self, prompt: Sequence[int]) -> Rating:
        ids = self._checked(prompt)
        calls.room_behind(ids, self.context_tokens)
        async with self._calls.clocked() as clock:
            output = await self._request(ids, await self._rating_params(), _VERDICT_PRIORITY)
        rated = cast("PoolingRequestOutput[PoolingOutput]", output)
        # One row for the text, one per token, or one per marked token (the model's configuration sets the mark).
        rows = rated.outputs.data.float().reshape(-1, rated.outputs.data.shape[-1])
        outputs = calls.finite(self.role, range(rows.shape[-1]), rows[-1].tolist())
        return Rating(outputs, len(prompt), rated.num_cached_tokens or 0, clock.timing())

    async def _rating_params(self) -> PoolingParams:
        """Return the parameters of `rate` requests. Raises EngineDied if vLLM cannot classify with the model's head."""
        from vllm import PoolingParams

        assert self.llm is not None
        tasks = await self.llm.get_supported_tasks()
        if (task := next((task for task in ("classify", "token_classify") if task in tasks), None)) is None:
            raise EngineDied(f"the {self.role} model cannot rate: its head supports {', '.join(tasks)}")
        return PoolingParams(task=task, use_activation=False)

    def _generation_params(self, sampling: Sampling, index: int, max_tokens: int) -> SamplingParams:
        has_logprobs = sampling.mean_logprob or sampling.token_logprobs
        return _params(
            max_tokens=max_tokens,
            **{name: getattr(sampling, name) for name in SAMPLING},
            seed=sampling.seed + index,
            stop=[self.tokenizer.native(text) for text in sampling.stop],
            include_stop_str_in_output=True,
            detokenize=bool(sampling.stop),
            skip_special_tokens=False,  # a stop string such as </think> may be special
            spaces_between_special_tokens=False,
            logprobs=NUM_RANKED if sampling.entropies else 0 if has_logprobs else None,
        )

    def _verdict_params(self, options: Sequence[int]) -> list[SamplingParams]:
        """Return parameters of `choose` requests, to be tried in order until the answer contains all options.

        Without token-level speculation, a single request returns the log-probabilities of all options. No other request
        in its batch may set `logprobs` above 0 (`Batches`): next to logprob_token_ids, the V1 runner would silently
        return -inf. With speculation, vLLM ignores logprob_token_ids, so increasing numbers of the most probable tokens
        are requested. Raises RequestRefused.
        """
        ids = list(options)
        if self.settings.speculation is None:
            return [_one_token(allowed_token_ids=ids, logprob_token_ids=ids)]
        return [_one_token(allowed_token_ids=ids, logprobs=number) for number in numbers_listed(self.vocabulary)]

    def _checked(self, prompt: Sequence[int]) -> list[int]:
        """Return a copy of the prompt as a list. Raises RequestRefused if an id is not a token of the model."""
        ids = list(prompt)
        try:
            self.check_ids(ids)
        except rejection_errors() as rejection:
            raise RequestRefused(str(rejection)) from rejection
        return ids

    async def _request(
        self, prompt: list[int], params: SamplingParams | PoolingParams, priority: int, lora: LoRARequest | None = None
    ) -> RequestOutput:
        """Return the finished output of one request.

        If the engine dies meanwhile, or ends the request without finishing it (`abort`, `error`), the request is sent
        to a new engine. Raises EngineDied and RequestRefused.
        """
        from vllm.v1.engine.exceptions import EngineDeadError

        while True:
            llm = self.llm
            if llm is None:
                raise EngineDied(f"the {self.role} engine was closed")
            try:
                return await self._send(llm, prompt, params, priority, lora)
            except EngineDeadError:
                await self.replace(llm)

    async def _send(
        self,
        llm: AsyncLLM,
        prompt: list[int],
        params: SamplingParams | PoolingParams,
        priority: int,
        lora: LoRARequest | None = None,
    ) -> RequestOutput:
        """Return the last output of a request. Raises EngineDeadError and RequestRefused."""
        from vllm.inputs import tokens_input
        from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

        optional = {"priority": priority} if self.settings.verdicts_first else {}
        optional |= {"lora_request": lora} if lora is not None else {}
        request_id = f"{self.role}-{next(self._request_numbers)}"
        output: RequestOutput | None = None
        try:
            ask = llm.encode if self.has_head else llm.generate
            async for latest in ask(tokens_input(prompt), params, request_id, **optional):
                output = latest
        except EngineGenerateError as error:  # an internal error of vLLM; invalid requests are rejected earlier
            raise EngineDeadError from error
        except rejection_errors() as rejection:
            raise RequestRefused(str(rejection)) from rejection
        if output is not None and self.has_head:
            return output
        if output is None or output.outputs[0].finish_reason not in ("stop", "length"):
            raise EngineDeadError(f"a request ended with {output and output.outputs[0].finish_reason!r}")
        return output

    async def _warm_up(self) -> None:
        """Send one request of each kind, so that compilation does not add to the first sample's latency."""
        prompt = self.tokenizer.encode("Hello")
        assert self.llm is not None
        if self.has_head:
            await self._send(self.llm, prompt, await self._rating_params(), _VERDICT_PRIORITY)
            return
        generation = self._generation_params(Sampling(2, 0.6, 0.95, ("\n\n",)), 0, 2)
        verdict = self._verdict_params(prompt[:1])[0]
        await self._send(self.llm, prompt, generation, _GENERATION_PRIORITY)
        await self._send(self.llm, prompt, verdict, _VERDICT_PRIORITY, self.lora)

    def _completion(self, output: CompletionOutput, sampling: Sampling) -> Completion:
        """Convert vLLM's CompletionOutput; the end-of-sequence token counts but is removed."""
        ids = tuple(output.token_ids)
        num_tokens = len(ids)
        finish: Finish = "length"
        if output.finish_reason == "stop":
            finish = "stop" if isinstance(output.stop_reason, str) else "eos"
        total = output.cumulative_logprob
        mean = total / num_tokens if total is not None and math.isfinite(total) and num_tokens else None
        ids = ids[:-1] if finish == "eos" else ids
        ranked = min(NUM_RANKED, self.vocabulary)
        return Completion(
            *(ids, self.tokenizer.decode(ids), finish, num_tokens),
            mean if sampling.mean_logprob else None,
            *speculated_tokens(output),
            token_logprobs=token_logprobs(output) if sampling.token_logprobs else None,
            entropies=entropies(output, ranked) if sampling.entropies else None,
        )


_NUM_LISTED = (20, 1000, 10_000)
"""Numbers of most probable tokens to request, in order, until they include every option of a verdict. Requesting all
tokens is the last resort: on a GPU the engine then sorts the whole vocabulary for every request of the batch, in memory
that is not reserved (3 MiB per row for 152,000 tokens)."""


def numbers_listed(vocabulary: int) -> list[int]:
    """Return the numbers of most probable tokens to request, in order; the last one is ALL_TOKENS."""
    return [*(number for number in _NUM_LISTED if number < vocabulary), ALL_TOKENS]


def rejection_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that vLLM raises for an invalid request."""
    from vllm import exceptions

    kinds = (getattr(exceptions, name, None) for name in ("VLLMClientError", "VLLMValidationError"))
    return (ValueError, *(kind for kind in kinds if kind is not None))


def _one_token(**parameters: int | list[int]) -> SamplingParams:
    return _params(max_tokens=1, temperature=0.0, detokenize=False, **parameters)


def _params(**parameters: float | list[int] | list[str] | None) -> SamplingParams:
    """Return the parameters of a request that reports only its final output. Raises RequestRefused."""
    from vllm.sampling_params import RequestOutputKind, SamplingParams

    try:
        params = SamplingParams(**parameters, output_kind=RequestOutputKind.FINAL_ONLY)
    except rejection_errors() as rejection:
        raise RequestRefused(str(rejection)) from rejection
    params.skip_clone = True  # used for one request, so vLLM need not copy it
    return params


def _timing(clock: CallClock, outputs: Sequence[RequestOutput]) -> Timing:
    """Return the times of a call.

    Queueing ends when the first of its requests is scheduled, and the first token is the earliest of all requests.
    """
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
    """Return a lower bound on the entropy at each token of vLLM's CompletionOutput, in nats.

    Raises VerdictUnavailable if a position has fewer than `num_ranked` log-probabilities, or one is not finite.
    """
    lists = ([entry.logprob for entry in ranked.values()] for ranked in output.logprobs)
    return tuple(ranked_entropy(logprobs, num_ranked) for logprobs in lists)


def given_logprobs(
    prompt_logprobs: Sequence[dict[int, Logprob]] | None, ids: Sequence[int], start: int
) -> tuple[float, ...]:
    """Return the log-probabilities of a prompt's ids from `start` on, from vLLM's `prompt_logprobs`.

    Raises EngineDied if the engine does not return them, because no other request would work either.
    """
    if prompt_logprobs is None or len(prompt_logprobs) != len(ids):
        raise EngineDied("this engine does not return the log-probabilities of a prompt")
    ranked = zip(ids[start:], prompt_logprobs[start:], strict=True)
    return tuple(float(entries[token].logprob) for token, entries in ranked)


def speculated_tokens(output: CompletionOutput) -> tuple[int | None, int | None]:
    """Return a completion's numbers of proposed and of accepted tokens; None if this vLLM does not count them."""
    counts = getattr(output, "spec_decode_metrics", None)
    if counts is None:
        return None, None
    return counts.num_draft_tokens, sum(size * times for size, times in enumerate(counts.histogram))


def model_runner_of(config: VllmConfig) -> str | None:
    """Return the model runner of a configuration. vLLM 0.32 uses v1 if Triton is missing or v2 lacks a feature."""
    is_second: bool | None = getattr(config, "use_v2_model_runner", None)
    return None if is_second is None else "v2" if is_second else "v1"


def _kv_tokens(cache: CacheConfig) -> int | None:
    """Return the size of a cache in tokens; None if vLLM does not report it.

    If layers of several kinds share a pool, the cache holds fewer tokens than the pool's blocks have room for. In that
    case vLLM's own number is used, which assumes requests of the maximum length.
    """
    if not cache.num_gpu_blocks:
        return None
    tokens = int(cache.num_gpu_blocks * cache.block_size)
    return min(tokens, getattr(cache, "kv_cache_size_tokens", None) or tokens)


START_SECONDS = 3600
"""Maximum duration of a start. vLLM's own limit of 600 s is too short for a large model on a slow filesystem."""
_DEFAULTS: Mapping[str, str] = {
    "VLLM_ENGINE_READY_TIMEOUT_S": str(START_SECONDS),
    # All processes of an engine are on this node. vLLM would read the node's address from the routing table; on compute
    # nodes without a route to the internet, processes may not be able to connect to that address.
    "VLLM_HOST_IP": "127.0.0.1",
    # FlashInfer does not support seeds per request, and every request here has one. If enabled, FlashInfer is still
    # compiled at the start, with a compiler that nodes often lack.
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
}
"""Default environment variables, which the user's environment overrides."""
_FLOAT32_DOTS = "TRITON_F32_DEFAULT"
"""Environment variable of Triton for float32 multiplication; the default uses 10 of 23 mantissa bits, even in float32
attention."""


def variables(settings: EngineSettings) -> dict[str, str | None]:
    """Return the environment variables for vLLM during an engine's start; None means unset."""
    environment: dict[str, str | None] = {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
        # On CUDA vLLM forks by default. A forked engine shares the worker's signal descriptor, so on Python 3.11 ending
        # the engine cancels the worker. It would also lack the mark for finding leftover processes.
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_COLOR": "0",
        "VLLM_CPU_KVCACHE_SPACE": None,  # would override kv_cache_bytes in both engines
        **{name: text for name, text in _DEFAULTS.items() if name not in os.environ},
        **processes.node_variables(),
    }
    if settings.device == "cpu":
        environment["VLLM_CPU_OMP_THREADS_BIND"] = settings.cpu_cores or "nobind"
        if settings.cpu_cores and _is_in_core(settings):  # vLLM binds only the threads of further processes
            cores = settings.cpu_cores.split(",")
            environment |= {"OMP_NUM_THREADS": str(len(cores)), "GOMP_CPU_AFFINITY": " ".join(cores)}
        if settings.enforce_eager:  # otherwise the first request waits many seconds for the compiler
            environment["TORCHDYNAMO_DISABLE"] = "1"
    if settings.device == "gpu":
        # Use nvidia-smi's GPU indices; by default CUDA counts from the fastest GPU.
        environment["CUDA_DEVICE_ORDER"] = os.environ.get("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
        if settings.dtype == "float32":
            environment[_FLOAT32_DOTS] = os.environ.get(_FLOAT32_DOTS, "ieee")
        if (devices := settings.visible_devices) is not None:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(devices)
    return environment


IN_CORE = "vllm.v1.executor.uniproc_executor.UniProcExecutor"
"""Executor that runs a model in the process of vLLM's core. By default, a CPU engine has a second process for the
model. This process takes as long to start as the first one, and polls for its next batch without pause on the cores on
which the other engine computes: with two cores, the bundled draft wrote a token in 7.5 ms instead of 1.6 ms."""
_ADAPTER_SLOTS = 2
"""One slot for the adapter, and an empty last one: if a batch on a CPU contains tokens of both the adapter and the base
model, vLLM applies the last slot's weights to the base model's tokens (vllm-project/vllm#48421)."""


def engine_arguments(model_path: str, revision: str | None, settings: EngineSettings) -> AsyncEngineArgs:
    """Return vLLM's arguments. Raises EngineDied if this vLLM does not support the requested speculation."""
    from vllm.engine.arg_utils import AsyncEngineArgs

    context = _max_model_len(model_path, revision, settings.max_context)
    values: dict[str, Argument] = {
        "model": model_path,
        "revision": revision,
        "tokenizer_revision": revision,
        "dtype": settings.dtype,
        "tensor_parallel_size": settings.tensor_parallel,
        "distributed_executor_backend": IN_CORE if _is_in_core(settings) else None,
        "gpu_memory_utilization": settings.memory_fraction,
        "kv_cache_memory_bytes": settings.kv_cache_bytes,
        "block_size": settings.block_size,
        "max_model_len": context,
        "max_num_seqs": settings.max_num_seqs,
        **_batching(settings, context),
        "enforce_eager": settings.enforce_eager,
        "enable_prefix_caching": True,
        "scheduling_policy": "priority" if settings.verdicts_first else "fcfs",
        "disable_log_stats": False,  # includes the times of each request
    }
    if settings.adapter is not None:
        values |= {
            "enable_lora": True,
            "max_loras": _ADAPTER_SLOTS,
            "max_lora_rank": served_rank(settings.adapter.rank),
        }
    if settings.speculation is not None:
        speculative_config = _speculative_config(model_path, revision, settings.speculation)
        values |= {"speculative_config": speculative_config, "max_logprobs": ALL_TOKENS}
    has_ranks = settings.device == "gpu" and settings.tensor_parallel > 1
    optional: dict[str, Argument] = {  # by version of vLLM
        # Omits encoders of images and sounds, with their weights and the memory that vLLM reserves for them.
        "language_model_only": True,
        # Ranks wait for the slowest one to load its weights; torch's own limit is 600 s.
        "distributed_timeout_seconds": START_SECONDS if has_ranks else None,
        # Otherwise vLLM counts proposed and accepted tokens only per engine.
        "per_request_spec_decode_metrics": None if settings.speculation is None else "summary",
    }
    supported = {field.name for field in dataclasses.fields(AsyncEngineArgs)}
    values |= {name: value for name, value in optional.items() if name in supported}
    arguments = {name: value for name, value in values.items() if value is not None}
    return AsyncEngineArgs(**arguments | {name: json.loads(value) for name, value in settings.arguments})


def _is_in_core(settings: EngineSettings) -> bool:
    """Return whether the model runs in the process of vLLM's core."""
    return settings.device == "cpu" and settings.tensor_parallel == 1


def lora_request(settings: EngineSettings) -> LoRARequest | None:
    """Return the LoRARequest of the adapter for verdicts; None without an adapter."""
    if settings.adapter is None:
        return None
    from vllm.lora.request import LoRARequest

    return LoRARequest("selection", 1, settings.adapter.path)


def _batching(settings: EngineSettings, context: int | None) -> dict[str, Argument]:
    """Return the arguments for batching. On a CPU, a prompt must not be split over two batches.

    If it is, vLLM 0.32 rewinds the random generator of a seeded request. CPU generators do not support that, and the
    engine dies ("CPU Generator does not use offset").
    """
    chunks: dict[str, Argument] = {} if settings.device == "gpu" else {"enable_chunked_prefill": False}
    return {**chunks, "max_num_batched_tokens": batched_tokens(settings, context)}


def _speculative_config(model_path: str, revision: str | None, speculation: Speculation) -> Mapping[str, str | int]:
    """Return vLLM's `speculative_config`. Raises EngineDied if this vLLM does not support it.

    Models of one family often pad their vocabularies to different sizes (R1-Distill-Qwen 1.5B and 32B do). Then only
    tokens in both vocabularies are proposed. A draft with a different vocabulary size must be greedy.
    """
    from vllm.config import SpeculativeConfig

    config = dict(speculation.config())
    if speculation.proposer == "draft" and speculation.model is not None:
        models = ((speculation.model, speculation.revision), (model_path, revision))
        sizes = [_text_config(*model).vocab_size for model in models]
        if sizes[0] != sizes[1] and speculation.sampling != "greedy":
            have = f"vocabularies of {sizes[0]} (draft) and {sizes[1]} (target) tokens"
            raise EngineDied(f"vLLM cannot sample draft tokens with {have}: omit --spec-sampling probabilistic")
        config |= {"use_heterogeneous_vocab": True} if sizes[0] != sizes[1] else {}
    supported = {field.name for field in dataclasses.fields(SpeculativeConfig)}
    if unknown := sorted(config.keys() - supported):
        raise EngineDied(f"this vLLM lacks {', '.join(unknown)} for --spec-decode {speculation.proposer}: use 0.32")
    return config


def _max_model_len(model_path: str, revision: str | None, max_context: int | None) -> int | None:
    """Return the context in tokens, limited to the model's maximum, above which vLLM does not start."""
    limit: int | None = getattr(_text_config(model_path, revision), "max_position_embeddings", None)
    return min(max_context, limit) if max_context and limit else max_context or limit


def _text_config(model_path: str, revision: str | None) -> PretrainedConfig:
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(model_path, revision=revision, trust_remote_code=False)
    text_config: PretrainedConfig = config.get_text_config()
    return text_config
