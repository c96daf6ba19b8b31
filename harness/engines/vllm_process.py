"""The lifetime of a vLLM engine: its processes are started, replaced once when they die or stop working, and ended.

A replacement is safe because every request carries its seed: what the dead engine left unanswered is sent again and
draws the same tokens. Written for vLLM 0.31 and later, on CPUs and GPUs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from harness.engine import EngineDied, Role
from harness.engines import front_end, processes, stall, start_log
from harness.engines.settings import EngineSettings
from harness.engines.speculation import SAMPLING_FIELD
from harness.engines.variables import START_SECONDS, variables
from harness.engines.vllm_arguments import engine_arguments, lora_request

_logger = logging.getLogger(__name__)
_EXIT_GRACE_SECONDS = 5.0
_DEATH_POLL_SECONDS = 1.0
_DEATH_GRACE_SECONDS = 2.0
"""How long the rest of a dead engine has to end in its own way."""


class VLLMProcess:
    """One AsyncLLM with the processes below it."""

    def __init__(
        self,
        model_path: str,
        role: Role,
        settings: EngineSettings,
        log_path: Path,
        revision: str | None,
        warm_up: Callable[[VLLMProcess], Awaitable[None]],
    ) -> None:
        """Nothing is started yet (see `start`). `warm_up` sends the first requests of every start.

        Raises ValueError where the environment sets a wrong limit (harness.engines.stall).
        """
        self.llm: Any = None
        """vLLM's AsyncLLM; None before the start and after `close`."""
        self.lora: Any = None
        """The LoRARequest of the adapter for verdicts; None where there is none."""
        self.check_ids: Callable[[Sequence[int]], None] = lambda ids: None
        """Raises vLLM's error for a prompt with ids that the model does not have."""
        self.processes: processes.EngineProcesses | None = None
        """The processes of the last start; None before it."""
        self.context_tokens = self.vocabulary = 0
        self.kv_tokens: int | None = None
        self.draft_sample_method: str | None = None
        """How this vLLM samples the tokens that a model proposes; None where no model proposes any."""
        self.model_runner: str | None = None
        """vLLM's model runner that computes, `v1` or `v2`; None where this vLLM does not say."""
        self._model_path, self._role, self._settings, self._revision = model_path, role, settings, revision
        self._log_path, self._warm_up = log_path, warm_up
        self._replacement: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._death_watch: asyncio.Task[None] | None = None
        self._stall_limit_seconds = stall.limit_seconds()
        self._stall_clock: stall.StallClock | None = None
        """None until the engine has answered its first requests."""
        self._stall: str | None = None
        """How the engine of the last start stopped working; None where it did not."""

    @property
    def restarts(self) -> int:
        """Number of times that the engine was replaced: 0 or 1."""
        return int(self._replacement is not None)

    async def start(self) -> None:
        """Start the engine and warm it up. Raises EngineDied with the end of its output."""
        is_ready = False
        try:
            await self._start()
            is_ready = True
        finally:
            start_log.end(self._log_path, self._role, is_ready=is_ready)

    async def replace(self, dead: Any) -> None:
        """Start another engine in place of the dead AsyncLLM; concurrent callers wait for the same start.

        Raises EngineDied when the engine was closed, has died for the second time, or does not start.
        """
        if self._closing is not None:
            raise EngineDied(f"the {self._role} engine was closed")
        if self.llm is not dead:
            return
        if self._replacement is None:
            how = f"stopped working ({self._stall})" if self._stall else "died"
            _logger.warning("the %s engine %s and is started again; its output: %s", self._role, how, self._log_path)
            self._replacement = asyncio.create_task(self._restart())
        elif self._replacement.done():
            lines = processes.last_lines(self._log_path)
            how = f": {self._stall}\nIts" if self._stall else ". Its"
            raise EngineDied(f"the {self._role} engine died for the second time{how} last output:\n{lines}")
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
        self.check_ids = front_end.after_start(llm)
        # The reference is kept because an event loop holds its tasks weakly. The task ends by itself once another
        # engine has taken over.
        self._death_watch = asyncio.create_task(self._watch_for_death(llm))
        cache = llm.vllm_config.cache_config
        if self._settings.speculation is not None and self._settings.speculation.drafts:
            self.draft_sample_method = getattr(llm.vllm_config.speculative_config, SAMPLING_FIELD, "greedy")
        self.model_runner = model_runner_of(llm.vllm_config)
        self.context_tokens = int(llm.model_config.max_model_len)
        self.vocabulary = int(llm.model_config.get_vocab_size())
        self.kv_tokens = _kv_tokens(cache)
        try:
            async with asyncio.timeout(START_SECONDS):
                await self._load_adapter()
                await self._first_requests()
        except TimeoutError as error:
            lines = processes.last_lines(self._log_path)
            message = f"the {self._role} engine did not answer its first requests within {START_SECONDS:,} s"
            raise EngineDied(f"{message}. Its last output:\n{lines}") from error
        self._stall_clock = clock = stall.StallClock(self._stall_limit_seconds)
        front_end.report_work(llm, clock.note_work)

    def _build(self) -> Any:
        """Return a started AsyncLLM. Blocks for as long as the start takes."""
        with processes.starting(self._log_path, variables(self._settings)) as engine_processes:
            self.processes = engine_processes
            start_log.begin(self._log_path, self._role)
            try:
                from vllm.v1.engine import core_client
                from vllm.v1.engine.async_llm import AsyncLLM

                # Read when the module was imported, perhaps before the variable was set.
                core_client.VLLM_ENGINE_READY_TIMEOUT_S = int(os.environ["VLLM_ENGINE_READY_TIMEOUT_S"])
                front_end.before_start()
                arguments = engine_arguments(self._model_path, self._revision, self._settings)
                llm = AsyncLLM.from_engine_args(arguments)
                logging.getLogger("vllm").setLevel(logging.ERROR)  # in this process; the engine's log has everything
                return llm
            except Exception as error:  # whatever vLLM raises: the cause is in the output
                lines = processes.last_lines(self._log_path)
                cause = processes.root_cause(self._log_path) or error
                raise EngineDied(f"the {self._role} engine did not start: {cause}\n{lines}") from error
            finally:
                engine_processes.started()

    async def _load_adapter(self) -> None:
        """Load the adapter before any request: a bad one that came with a request would kill the engine."""
        lora = lora_request(self._settings)
        if lora is None:
            return
        try:
            await self.llm.add_lora(lora)
        except Exception as error:  # whatever vLLM raises
            raise EngineDied(f"the {self._role} engine cannot serve the adapter {lora.lora_path}: {error}") from error
        self.lora = lora

    async def _first_requests(self) -> None:
        from vllm.v1.engine.exceptions import EngineDeadError

        try:
            await self._warm_up(self)
        except EngineDeadError as error:
            lines = processes.last_lines(self._log_path)
            raise EngineDied(f"the {self._role} engine did not survive its first request:\n{lines}") from error

    async def _abandon_start(self, thread: asyncio.Future[Any]) -> None:
        """End a start that is no longer needed: kill its processes until it gives up."""
        while not thread.done():
            if self.processes is not None:
                await asyncio.to_thread(self.processes.kill)
            await asyncio.wait({thread}, timeout=0.5)
        if thread.exception() is None:
            await asyncio.to_thread(self._shut_down, thread.result())

    async def _restart(self) -> None:
        await asyncio.to_thread(self._shut_down, self.llm, 0.0)
        await self.start()

    async def _close(self) -> None:
        if self._replacement is not None:
            self._replacement.cancel()
            with contextlib.suppress(asyncio.CancelledError, EngineDied):
                await self._replacement
        llm, self.llm = self.llm, None
        if llm is not None:
            self._fail_requests(llm)
        await asyncio.to_thread(self._shut_down, llm)

    async def _watch_for_death(self, llm: Any) -> None:
        """Fail the requests of an engine that is dead or has stopped working, and end what is left of it.

        vLLM fails requests only once, and a request sent a moment later would hang. Where one of several processes is
        killed, the others go on for many seconds, or wait for it forever.
        """
        engine_processes, is_ended = self.processes, False
        while self.llm is llm:
            if self._stall is None and not llm.errored and self._stall_clock is not None:
                self._stall = self._stall_clock.stalled(llm.output_processor.get_num_unfinished_requests())
            has_lost_one = engine_processes is not None and engine_processes.has_lost_one()
            if llm.errored or has_lost_one or self._stall is not None:
                self._fail_requests(llm)
                if engine_processes is not None and not is_ended:
                    is_ended = True
                    await asyncio.to_thread(engine_processes.kill, _DEATH_GRACE_SECONDS)
            await asyncio.sleep(_DEATH_POLL_SECONDS)

    def _fail_requests(self, llm: Any) -> None:
        """End all running requests now, so that vLLM does not report its own shutdown as a failure."""
        from vllm.v1.engine.exceptions import EngineDeadError

        if llm.output_handler is not None:
            llm.output_handler.cancel()
        llm.output_processor.propagate_error(EngineDeadError())

    def _shut_down(self, llm: Any, grace_seconds: float = _EXIT_GRACE_SECONDS) -> None:
        engine_processes = self.processes
        try:
            if engine_processes is not None and not grace_seconds:
                engine_processes.kill()  # vLLM would first wait for them
            if llm is not None:
                llm.shutdown()
                llm.shutdown = lambda: None  # its destructor would call it again, and fail, at the interpreter's exit
        finally:
            if engine_processes is not None:
                engine_processes.kill(grace_seconds)
            front_end.after_end(llm)


def model_runner_of(config: Any) -> str | None:
    """Return the model runner of a configuration. vLLM 0.32 uses v1 without Triton, and for features that v2 lacks."""
    is_second: bool | None = getattr(config, "use_v2_model_runner", None)
    return None if is_second is None else "v2" if is_second else "v1"


def _kv_tokens(cache: Any) -> int | None:
    """Return the tokens that a cache holds; None where vLLM does not say.

    Where layers of several kinds take blocks of one pool, fewer than its blocks have: vLLM's own figure is for requests
    of the longest length.
    """
    if not cache.num_gpu_blocks:
        return None
    tokens = int(cache.num_gpu_blocks * cache.block_size)
    return min(tokens, getattr(cache, "kv_cache_size_tokens", None) or tokens)
