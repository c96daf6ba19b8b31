"""The lifetime of a vLLM engine: its processes are started, replaced once when they die or stop working, and ended.

A replacement is safe because every request carries its seed: what the dead engine left unanswered is sent again and
draws the same tokens. Written for vLLM 0.31 and later, on CPUs and GPUs.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.engine import EngineDied, Role
from harness.engines import calls, processes, vllm_plugin
from harness.engines.settings import EngineSettings, batched_tokens
from harness.engines.speculation import SAMPLING_FIELD, Speculation

if TYPE_CHECKING:
    from vllm import AsyncEngineArgs
    from vllm.config import CacheConfig, VllmConfig
    from vllm.lora.request import LoRARequest
    from vllm.v1.engine.async_llm import AsyncLLM

Argument = str | float | Mapping[str, str | int] | None
"""A value of one of vLLM's arguments."""
ALL_TOKENS = -1
"""vLLM's number for the log-probabilities of the whole vocabulary."""

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

        Raises ValueError where the environment sets a wrong limit (harness.engines.calls).
        """
        self.llm: AsyncLLM | None = None
        """vLLM's AsyncLLM; None before the start and after `close`."""
        self.lora: LoRARequest | None = None
        """That of the adapter for verdicts; None where there is none."""
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
        self._stall_limit_seconds = calls.limit_seconds()
        self._stall_clock: calls.StallClock | None = None
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
            processes.log_end_of_start(self._log_path, self._role, is_ready=is_ready)

    async def replace(self, dead: AsyncLLM) -> None:
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
        self.check_ids = vllm_plugin.after_start(llm)
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
                await self._load_adapter(llm)
                await self._first_requests()
        except TimeoutError as error:
            lines = processes.last_lines(self._log_path)
            message = f"the {self._role} engine did not answer its first requests within {START_SECONDS:,} s"
            raise EngineDied(f"{message}. Its last output:\n{lines}") from error
        self._stall_clock = clock = calls.StallClock(self._stall_limit_seconds)
        vllm_plugin.report_work(llm, clock.note_work)

    def _build(self) -> AsyncLLM:
        """Return a started AsyncLLM. Blocks for as long as the start takes."""
        with processes.starting(self._log_path, variables(self._settings)) as engine_processes:
            self.processes = engine_processes
            processes.log_start(self._log_path, self._role)
            try:
                from vllm.v1.engine import core_client
                from vllm.v1.engine.async_llm import AsyncLLM

                # Read when the module was imported, perhaps before the variable was set.
                core_client.VLLM_ENGINE_READY_TIMEOUT_S = int(os.environ["VLLM_ENGINE_READY_TIMEOUT_S"])
                vllm_plugin.before_start()
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

    async def _load_adapter(self, llm: AsyncLLM) -> None:
        """Load the adapter before any request: a bad one that came with a request would kill the engine."""
        lora = lora_request(self._settings)
        if lora is None:
            return
        try:
            await llm.add_lora(lora)
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

    async def _abandon_start(self, thread: asyncio.Future[AsyncLLM]) -> None:
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

    async def _watch_for_death(self, llm: AsyncLLM) -> None:
        """Fail the requests of an engine that is dead or has stopped working, and end what is left of it.

        vLLM fails requests only once, and a request sent a moment later would hang. Its other processes go on for many
        seconds after one has died.
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
        """End all running requests now, so that vLLM does not report its own shutdown as a failure."""
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
                llm.shutdown = lambda: None  # its destructor would call it again, and fail, at the interpreter's exit
        finally:
            if engine_processes is not None:
                engine_processes.kill(grace_seconds)
            vllm_plugin.after_end(llm)


def model_runner_of(config: VllmConfig) -> str | None:
    """Return the model runner of a configuration. vLLM 0.32 uses v1 without Triton, and for features that v2 lacks."""
    is_second: bool | None = getattr(config, "use_v2_model_runner", None)
    return None if is_second is None else "v2" if is_second else "v1"


def _kv_tokens(cache: CacheConfig) -> int | None:
    """Return the tokens that a cache holds; None where vLLM does not say.

    Where layers of several kinds take blocks of one pool, fewer than its blocks have: vLLM's own figure is for requests
    of the longest length.
    """
    if not cache.num_gpu_blocks:
        return None
    tokens = int(cache.num_gpu_blocks * cache.block_size)
    return min(tokens, getattr(cache, "kv_cache_size_tokens", None) or tokens)


START_SECONDS = 3600
"""How long a start may take. vLLM's own limit of 600 s is too short for a large model on a slow filesystem."""
_DEFAULTS: Mapping[str, str] = {
    "VLLM_ENGINE_READY_TIMEOUT_S": str(START_SECONDS),
    # All processes of an engine are on this node. vLLM would ask the routing table for the node's address, which
    # compute nodes without a route to the internet answer in ways that other processes cannot connect to.
    "VLLM_HOST_IP": "127.0.0.1",
    # FlashInfer cannot draw with a seed per request, which every request here has. Where it is on, a start compiles it
    # all the same, with a compiler that nodes often lack.
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
}
"""What the user's own environment overrides."""
_FLOAT32_DOTS = "TRITON_F32_DEFAULT"
"""How Triton multiplies numbers in float32; by itself with 10 bits of the 23, also in attention, which in float32 is
Triton's."""


def variables(settings: EngineSettings) -> dict[str, str | None]:
    """Return the environment variables that vLLM reads while an engine starts; None stands for unset."""
    environment: dict[str, str | None] = {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
        # On CUDA vLLM forks by default. A forked engine shares the worker's signal descriptor, so on Python 3.11 ending
        # the engine cancels the worker. It would also lack the mark by which what is left of an engine is found.
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_COLOR": "0",
        "VLLM_CPU_KVCACHE_SPACE": None,  # would override kv_cache_bytes in both engines
        vllm_plugin.POLITE_WAIT: None,
        vllm_plugin.PREPARED_PRODUCTS: None,
        **{name: text for name, text in _DEFAULTS.items() if name not in os.environ},
        **processes.node_variables(),
    }
    if settings.device == "cpu":
        environment["VLLM_CPU_OMP_THREADS_BIND"] = settings.cpu_cores or "nobind"
        environment[vllm_plugin.POLITE_WAIT] = "1"
        environment["VLLM_USE_SPINLOOP_EXT"] = "0"  # would take a core for 0.1 s before each such wait
        if settings.enforce_eager:  # otherwise the first request waits many seconds for a compiler
            environment["TORCHDYNAMO_DISABLE"] = "1"
            environment[vllm_plugin.PREPARED_PRODUCTS] = "1"
    if settings.device == "gpu":
        # Numbers of cards are then nvidia-smi's; by itself CUDA counts from the fastest card.
        environment["CUDA_DEVICE_ORDER"] = os.environ.get("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
        if settings.dtype == "float32":
            environment[_FLOAT32_DOTS] = os.environ.get(_FLOAT32_DOTS, "ieee")
        if (devices := settings.visible_devices) is not None:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(devices)
            environment["HIP_VISIBLE_DEVICES"] = ",".join(devices)  # on ROCm vLLM insists that both say the same
    if (allowed := os.environ.get("VLLM_PLUGINS")) is not None:
        environment["VLLM_PLUGINS"] = ",".join(filter(None, [allowed, vllm_plugin.ENTRY_POINT]))
    return environment


_SPECULATION_METRICS = "per_request_spec_decode_metrics"
"""Makes vLLM report proposed and confirmed tokens per request; older versions report them per engine only."""
_RANKS_TIMEOUT = "distributed_timeout_seconds"
"""How long ranks wait for each other; torch's own limit is 600 s."""
_TEXT_ONLY = "language_model_only"
"""Leaves the encoders of images and sounds out, with their weights and the memory that vLLM sets aside for them."""
_HETEROGENEOUS_VOCABULARIES = "use_heterogeneous_vocab"
_ADAPTER_SLOTS = 2
"""One slot for the adapter and one that stays empty: on the CPU, vLLM applies the last slot's weights to tokens of the
base model where a batch also holds the adapter's (vllm-project/vllm#48421)."""


def engine_arguments(model_path: str, revision: str | None, settings: EngineSettings) -> AsyncEngineArgs:
    """Return vLLM's arguments. Raises EngineDied where this vLLM cannot speculate as asked."""
    from vllm.engine.arg_utils import AsyncEngineArgs

    context = _max_model_len(model_path, revision, settings.max_context)
    values: dict[str, Argument] = {
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
        values |= {"speculative_config": speculative_config, "max_logprobs": ALL_TOKENS}
    arguments = {name: value for name, value in values.items() if value is not None}
    supported = {f.name for f in dataclasses.fields(AsyncEngineArgs)}
    if _TEXT_ONLY in supported:
        arguments[_TEXT_ONLY] = True
    if settings.device == "gpu" and settings.tensor_parallel > 1 and _RANKS_TIMEOUT in supported:
        arguments[_RANKS_TIMEOUT] = START_SECONDS  # ranks wait for the one that loads its weights last
    if settings.speculation is not None and _SPECULATION_METRICS in supported:
        arguments[_SPECULATION_METRICS] = "summary"
    return AsyncEngineArgs(**arguments | {name: json.loads(value) for name, value in settings.arguments})


def lora_request(settings: EngineSettings) -> LoRARequest | None:
    """Return the LoRARequest of the adapter for verdicts; None without an adapter."""
    if settings.adapter is None:
        return None
    from vllm.lora.request import LoRARequest

    return LoRARequest("selection", 1, settings.adapter.path)


def _batching(settings: EngineSettings, context: int | None) -> dict[str, Argument]:
    """Return the arguments on batching. On a CPU no prompt may be split over two batches.

    vLLM 0.32 rewinds the generator of a seeded request whose prompt was split. CPU generators do not support that, and
    the engine dies ("CPU Generator does not use offset").
    """
    tokens = batched_tokens(settings, context)
    if settings.device == "gpu":
        return {"max_num_batched_tokens": tokens}
    return {"enable_chunked_prefill": False, "max_num_batched_tokens": tokens}


def _speculative_config(model_path: str, revision: str | None, speculation: Speculation) -> Mapping[str, str | int]:
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
