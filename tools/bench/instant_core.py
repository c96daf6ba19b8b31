"""Instant engines behind vLLM's front end: a client of an engine process that replies immediately, without a model.

`AsyncLLM`, its input and output processors, detokenization and the wire format are vLLM's own. In place of the engine's
process, a stand-in runs in this process. Its time is not counted, because the engine would run in another process.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

_BLOCKS = 1 << 20
"""KV cache blocks reported by the stand-in; enough for any number of samples."""
_VERDICTS_PER_REJECTION = 5


@dataclass
class Script:
    """Scripted replies of the instant engines."""

    steps: Sequence[Sequence[int]]
    """Token ids of the texts that the engines write: an even number of texts of equal length, each of which ends with
    the step separator.
    """
    num_verdicts: int = 0
    num_written: int = 0
    core_seconds: float = 0.0
    """CPU time of the stand-ins; in a run, this is time of the engine process."""

    def reply(self, params: Any, prompt_tokens: int) -> Sequence[int]:
        """Return the ids of a reply: the next text, or the chosen option of a verdict.

        Consecutive steps have distinct texts; even and odd steps are distinguished by the prompt's length.
        """
        if params.allowed_token_ids is None:
            self.num_written += 1
            is_odd = prompt_tokens // len(self.steps[0]) % 2
            return self.steps[(2 * self.num_written + is_odd) % len(self.steps)][: params.max_tokens]
        self.num_verdicts += 1
        options = params.allowed_token_ids
        is_score, is_rejection = len(options) == 10, self.num_verdicts % _VERDICTS_PER_REJECTION == 0
        return [options[-1 if is_score != is_rejection else 0]]


@dataclass
class _Running:
    """One request, answered token by token by the stand-in."""

    request_id: str
    reply: Sequence[int]
    listed_ids: Sequence[int] | None
    """Token ids with requested log-probabilities, in addition to the sampled token; None: no log-probabilities."""
    prompt_tokens: int
    num_sent: int = 0


class InstantCore:
    """Replacement of vLLM's `AsyncMPClient`. Packs and unpacks requests and outputs as if it sent them between
    processes.
    """

    def __init__(self, vllm_config: Any, script: Script) -> None:
        from vllm.v1.engine import EngineCoreOutputs
        from vllm.v1.serial_utils import MsgpackDecoder, MsgpackEncoder

        vllm_config.cache_config.num_gpu_blocks = _BLOCKS
        self.engine_ranks_managed = [0]
        self.resources = SimpleNamespace(engine_dead=False)
        self._script = script
        self._running: dict[str, _Running] = {}
        self._arrived = asyncio.Event()
        self._request_encoder, self._output_encoder = MsgpackEncoder(), MsgpackEncoder()
        self._decoder = MsgpackDecoder(EngineCoreOutputs)

    async def get_supported_tasks_async(self) -> tuple[str, ...]:
        """See AsyncMPClient."""
        return ("generate",)

    async def add_request_async(self, request: Any) -> None:
        """Start a request. It is packed as for an engine's process, because packing is part of the worker's work."""
        self._request_encoder.encode(request)
        params = request.sampling_params
        listed = params.logprob_token_ids if params.logprobs is None else ()
        ids = request.prompt_token_ids
        reply = self._script.reply(params, len(ids))
        self._running[request.request_id] = _Running(request.request_id, reply, listed, len(ids))
        self._arrived.set()

    async def abort_requests_async(self, request_ids: Sequence[str]) -> None:
        """See AsyncMPClient."""
        if request_ids:
            self._request_encoder.encode(request_ids)
        for request_id in request_ids:
            self._running.pop(request_id, None)

    async def get_output_async(self) -> Any:
        """Wait for a running request and return one batch, in which each running request gets its next token."""
        await asyncio.sleep(0)  # meanwhile, the samples answered by the last batch send their next requests
        while not self._running:
            self._arrived.clear()
            await self._arrived.wait()
            await asyncio.sleep(0)
        begun = time.thread_time()
        frames = [bytes(frame) for frame in self._output_encoder.encode(self._batch())]
        self._script.core_seconds += time.thread_time() - begun
        return self._decoder.decode(frames)

    def shutdown(self, timeout: float | None = None) -> None:
        """See AsyncMPClient."""

    def _batch(self) -> Any:
        from vllm.v1.engine import EngineCoreOutputs
        from vllm.v1.metrics.stats import SchedulerStats

        outputs = [self._output(request) for request in self._running.values()]
        for output in outputs:
            if output.finish_reason is not None:
                del self._running[output.request_id]
        return EngineCoreOutputs(outputs=outputs, scheduler_stats=SchedulerStats(num_running_reqs=len(outputs)))

    def _output(self, request: _Running) -> Any:
        from vllm.v1.engine import EngineCoreEvent, EngineCoreEventType, EngineCoreOutput, FinishReason
        from vllm.v1.metrics.stats import PrefillStats

        is_first, token = request.num_sent == 0, request.reply[request.num_sent]
        request.num_sent += 1
        kinds = (EngineCoreEventType.QUEUED, EngineCoreEventType.SCHEDULED)
        cached = request.prompt_tokens // 16 * 16
        return EngineCoreOutput(
            request.request_id,
            [token],
            new_logprobs=_logprobs(token, request.listed_ids),
            finish_reason=FinishReason.LENGTH if request.num_sent == len(request.reply) else None,
            events=[EngineCoreEvent.new_event(kind) for kind in kinds] if is_first else None,
            prefill_stats=PrefillStats(request.prompt_tokens, num_cached_tokens=cached) if is_first else None,
        )


def _logprobs(token: int, listed_ids: Sequence[int] | None) -> Any:
    """Return the log-probabilities of one position as an engine sends them, the sampled token first."""
    import numpy as np
    from vllm.v1.outputs import LogprobsLists

    if listed_ids is None:
        return None
    ids = np.array([[token, *listed_ids]], dtype=np.int32)
    return LogprobsLists(ids, np.full(ids.shape, -0.5, dtype=np.float32), np.ones(1, dtype=np.int32))


@contextlib.contextmanager
def instant_cores(script: Script) -> Iterator[None]:
    """Context in which every AsyncLLM gets an instant engine when it is created."""
    from vllm.v1.engine.async_llm import EngineCoreClient

    original = EngineCoreClient.__dict__["make_async_mp_client"]
    EngineCoreClient.make_async_mp_client = staticmethod(
        lambda vllm_config, **ignored: InstantCore(vllm_config, script)
    )
    try:
        yield
    finally:
        EngineCoreClient.make_async_mp_client = original
