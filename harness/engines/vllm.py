"""vLLM engines in processes of their own. It and `vllm_arguments.py` alone import vllm, and only inside functions.

An engine that dies is started once more and its requests are sent again, which is safe because every request carries
its seed. What is asked of vLLM here holds for 0.31 and later, on CPUs and GPUs.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import math
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from harness.engine import (
    Choice,
    Completion,
    EngineDied,
    Finish,
    Generation,
    RequestRefused,
    Role,
    Sampling,
    VerdictUnavailable,
)
from harness.engines import processes
from harness.engines import vllm_arguments as arguments
from harness.engines.requests import Clock, speculated, together
from harness.engines.settings import EngineSettings
from harness.engines.variables import variables
from harness.tokenizer import HFTokenizer

_logger = logging.getLogger(__name__)
_EXIT_GRACE_SECONDS = 5.0
_LOOK_SECONDS = 1.0
"""Between two looks at whether an engine has died."""
_VERDICT, _WRITING = 0, 1
"""Priorities; lower goes first."""


class VLLMEngine:
    """One model on vLLM, in the worker's event loop."""

    def __init__(
        self, model_path: str, role: Role, settings: EngineSettings, log_path: Path, revision: str | None
    ) -> None:
        """Not started; see `start`."""
        self.role, self.settings, self.log_path = role, settings, log_path
        self.tokenizer = HFTokenizer(model_path, revision)
        self.context_tokens = 0
        self.kv_tokens: int | None = None
        self.start_seconds = 0.0
        """How long the last start took."""
        self._model_path, self._revision = model_path, revision
        self._llm: Any = None
        self._lora: Any = None
        self._processes: set[Any] = set()
        self._before: set[Any] | None = None
        self._revival: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._mourner: asyncio.Task[None] | None = None
        self._ids = itertools.count()
        self._in_flight = 0

    @classmethod
    async def start(
        cls, model_path: str, role: Role, settings: EngineSettings, log_path: Path, revision: str | None = None
    ) -> VLLMEngine:
        """Start an engine; its output goes to `log_path`. Raises EngineDied with the last of it."""
        engine = cls(model_path, role, settings, log_path, revision)
        try:
            await engine._launch()
        except BaseException:
            await engine.close()
            raise
        return engine

    @property
    def restarts(self) -> int:
        """How often the engine had to be started again."""
        return int(self._revival is not None)

    async def generate(self, prompt: Sequence[int], sampling: Sampling) -> Generation:
        """See Engine.generate."""
        room = self.context_tokens - len(prompt)
        if room < 1:
            raise RequestRefused(f"a prompt of {len(prompt)} tokens in a context of {self.context_tokens}")
        # One request per completion, not vLLM's n: that reports the cache hits of the completion that ends last,
        # which finds in the cache what the first one has just put there.
        every = [
            arguments.generation_params(
                sampling, i, min(room, sampling.max_tokens), mean_logprob=self.settings.mean_logprobs
            )
            for i in range(sampling.n)
        ]
        async with self._counted() as clock:
            outputs = await together([self._answer(prompt, params, _WRITING) for params in every])
        completions = tuple(self._completion(output.outputs[0]) for output in outputs)
        cached = min(output.num_cached_tokens or 0 for output in outputs)
        return Generation(completions, len(prompt), cached, clock.timing(outputs))

    async def choose(self, prompt: Sequence[int], options: Sequence[int]) -> Choice:
        """See Engine.choose."""
        if len(set(options)) != len(options):
            raise RequestRefused(f"options must be distinct tokens: {list(options)}")
        async with self._counted() as clock:
            for params in self._verdicts(options):
                output = await self._answer(prompt, params, _VERDICT, self._lora)
                found = (output.outputs[0].logprobs or [{}])[0]
                if found.keys() >= set(options):
                    break
        logprobs = tuple(found[i].logprob if i in found else -math.inf for i in options)
        if not all(math.isfinite(x) for x in logprobs):
            raise VerdictUnavailable(f"the {self.role} engine gave {logprobs} for the options {list(options)}")
        return Choice(logprobs, len(prompt), output.num_cached_tokens or 0, clock.timing([output]))

    def _verdicts(self, options: Sequence[int]) -> list[Any]:
        """Parameters to ask a verdict with; the next where an answer lacks an option."""
        if self.settings.speculation is None:
            return [arguments.verdict_params(options)]
        return [arguments.listed_verdict_params(options, num_listed) for num_listed in arguments.NUM_LISTED]

    async def close(self) -> None:
        """See Engine.close."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._end())
        await asyncio.shield(self._closing)

    # Requests

    async def _answer(self, prompt: Sequence[int], params: Any, priority: int, lora: Any = None) -> Any:
        """The finished output of one request, sent again where the engine died under it."""
        from vllm.v1.engine.exceptions import EngineDeadError

        while True:
            llm = self._llm
            if llm is None:
                raise EngineDied(f"the {self.role} engine was closed")
            try:
                return await self._asked(llm, prompt, params, priority, lora)
            except EngineDeadError:
                await self._revive(llm)

    async def _asked(self, llm: Any, prompt: Sequence[int], params: Any, priority: int, lora: Any = None) -> Any:
        from vllm.inputs import tokens_input
        from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

        further = {"priority": priority} if self.settings.verdicts_first else {}
        further |= {"lora_request": lora} if lora is not None else {}
        name = f"{self.role}-{next(self._ids)}"
        output: Any = None
        try:
            async for latest in llm.generate(tokens_input(list(prompt)), params, name, **further):
                output = latest
        except EngineGenerateError as error:
            if llm.errored:
                raise EngineDeadError from error
            raise RequestRefused(f"{error}: {error.__cause__}") from error
        except arguments.rejection_errors() as refusal:
            raise RequestRefused(str(refusal)) from refusal
        if output is None or output.outputs[0].finish_reason not in ("stop", "length"):
            reason = output and output.outputs[0].finish_reason
            raise RequestRefused(f"the {self.role} engine ended the request with {reason!r}")
        return output

    def _completion(self, output: Any) -> Completion:
        ids = tuple(output.token_ids)
        num_tokens = len(ids)
        finish: Finish = "length"
        if output.finish_reason == "stop":
            finish = "stop" if isinstance(output.stop_reason, str) else "eos"
        total = output.cumulative_logprob
        mean = total / num_tokens if total is not None and math.isfinite(total) and num_tokens else None
        ids = ids[:-1] if finish == "eos" else ids
        return Completion(ids, self.tokenizer.decode(ids), finish, num_tokens, mean, *speculated(output))

    @contextlib.asynccontextmanager
    async def _counted(self) -> AsyncIterator[Clock]:
        self._in_flight += 1
        clock = Clock(self._in_flight)
        try:
            yield clock
        finally:
            self._in_flight -= 1
            clock.stop()

    # For measurements

    async def bare(self, prompt: list[int], sampling: Sampling) -> int:
        """Exactly `max_tokens` from vLLM itself, nothing of this class around it; returns the cached prompt tokens."""
        from vllm.inputs import tokens_input

        params = arguments.fixed_length_params(sampling)
        output: Any = None
        async for latest in self._llm.generate(tokens_input(prompt), params, f"bare-{next(self._ids)}"):
            output = latest
        return output.num_cached_tokens or 0

    async def forget(self) -> None:
        """Empty the prefix cache."""
        await self._llm.reset_prefix_cache()

    # Life and death

    async def _launch(self) -> None:
        begun = time.monotonic()
        thread = asyncio.ensure_future(asyncio.to_thread(self._build))
        try:
            llm = await asyncio.shield(thread)
        except asyncio.CancelledError:
            await self._abandon(thread)
            raise
        self._llm = llm
        # Kept, because an event loop holds its tasks weakly; it ends by itself where another engine has taken over.
        self._mourner = asyncio.create_task(self._release_latecomers(llm))
        cache = llm.vllm_config.cache_config
        self.context_tokens = int(llm.model_config.max_model_len)
        self.kv_tokens = int(cache.num_gpu_blocks * cache.block_size) if cache.num_gpu_blocks else None
        await self._serve_adapter()
        await self._warm_up()
        self.start_seconds = time.monotonic() - begun

    async def _serve_adapter(self) -> None:
        """Load the adapter now: a bad one that comes with a request would kill the engine."""
        lora = arguments.lora_request(self.settings)
        if lora is None:
            return
        try:
            await self._llm.add_lora(lora)
        except Exception as error:  # whatever vLLM raises
            raise EngineDied(f"the {self.role} engine cannot serve the adapter {lora.lora_path}: {error}") from error
        self._lora = lora

    async def _warm_up(self) -> None:
        """One request of each kind: what is still to be compiled is no part of the first sample's latency."""
        from vllm.v1.engine.exceptions import EngineDeadError

        prompt = self.tokenizer.encode("Hello")
        try:
            writing = arguments.generation_params(
                Sampling(2, 0.6, 0.95, ("\n\n",)), 0, 2, mean_logprob=self.settings.mean_logprobs
            )
            await self._asked(self._llm, prompt, writing, _WRITING)
            await self._asked(self._llm, prompt, self._verdicts(prompt[:1])[0], _VERDICT, self._lora)
        except EngineDeadError as error:
            lines = processes.last_lines(self.log_path)
            raise EngineDied(f"the {self.role} engine did not survive its first request:\n{lines}") from error

    def _build(self) -> Any:
        """Blocks for as long as the start takes."""
        with processes.starting(self.log_path, variables(self.settings)):
            self._before = processes.children()
            try:
                from vllm.v1.engine.async_llm import AsyncLLM

                llm = AsyncLLM.from_engine_args(
                    arguments.engine_arguments(self._model_path, self._revision, self.settings)
                )
                logging.getLogger("vllm").setLevel(logging.ERROR)  # in this process; the engine's log has it all
                return llm
            except Exception as error:  # whatever vLLM raises: the cause is in the output
                lines = processes.last_lines(self.log_path)
                cause = processes.root_cause(self.log_path) or error
                raise EngineDied(f"the {self.role} engine did not start: {cause}\n{lines}") from error
            finally:
                self._processes = processes.children() - self._before

    async def _abandon(self, thread: asyncio.Future[Any]) -> None:
        """End a start that nobody waits for any more: its processes are killed until it gives up."""
        while not thread.done():
            if self._before is not None:
                await asyncio.to_thread(processes.kill, processes.children() - self._before)
            await asyncio.wait({thread}, timeout=0.5)
        if thread.exception() is None:
            await asyncio.to_thread(self._shut_down, thread.result())

    async def _revive(self, dead: Any) -> None:
        """Start the engine again; everyone who met the dead one waits for the same start. Raises EngineDied."""
        if self._closing is not None:
            raise EngineDied(f"the {self.role} engine was closed")
        if self._llm is not dead:
            return
        if self._revival is None:
            _logger.warning("the %s engine died and is started again; its output: %s", self.role, self.log_path)
            self._revival = asyncio.create_task(self._restart())
        elif self._revival.done():
            lines = processes.last_lines(self.log_path)
            raise EngineDied(f"the {self.role} engine died for the second time. Its last output:\n{lines}")
        await asyncio.shield(self._revival)

    async def _restart(self) -> None:
        await asyncio.to_thread(self._shut_down, self._llm, 0.0)
        await self._launch()

    async def _end(self) -> None:
        if self._revival is not None:
            self._revival.cancel()
            with contextlib.suppress(asyncio.CancelledError, EngineDied):
                await self._revival
        llm, self._llm = self._llm, None
        if llm is not None:
            self._release_callers(llm)
        await asyncio.to_thread(self._shut_down, llm)

    async def _release_latecomers(self, llm: Any) -> None:
        """vLLM tells those who wait of its engine's death once; a request that came a moment later waits for ever."""
        while self._llm is llm:
            if llm.errored:
                self._release_callers(llm)
            await asyncio.sleep(_LOOK_SECONDS)

    def _release_callers(self, llm: Any) -> None:
        """Requests under way end now, and vLLM does not report its own shutdown as a failure."""
        from vllm.v1.engine.exceptions import EngineDeadError

        if llm.output_handler is not None:
            llm.output_handler.cancel()
        llm.output_processor.propagate_error(EngineDeadError())

    def _shut_down(self, llm: Any, grace_seconds: float = _EXIT_GRACE_SECONDS) -> None:
        try:
            if llm is not None:
                llm.shutdown()
                llm.shutdown = lambda: None  # its destructor would call it again, and fail, at the interpreter's exit
        finally:
            processes.kill(self._processes, grace_seconds)
