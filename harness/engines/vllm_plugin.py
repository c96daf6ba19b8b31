"""What this project changes in vLLM: in the worker's event loop, and in the processes of an engine.

vLLM loads `install` as a plug-in in every process of an engine. It is for engines on a CPU.

**Waiting.** A worker process of vLLM asks for its next batch without a pause, and sleeps only where none has come for a
second (`SpinCondition` in vllm.distributed.device_communicators.shm_broadcast, vLLM 0.31 and 0.32). The engines of one
sample work by turns of less than a second. Where they share cores, as on a CPU, the one that waits takes half of a core
from the one that works: of two cores, the bundled draft wrote a token in 7.5 ms instead of 1.6. Here a process asks
without a pause for two milliseconds after its last message, and then five thousand times a second. A model that
computes for longer than that between two batches loses a fifth of a millisecond for each. Waiting for vLLM's message at
once would be simpler, but that message gets lost at times, and the process then sleeps for five seconds; so after the
second it looks again ten times a second.

**The event loop.** Every token of every request passes through the worker's one event loop. Measured over engines that
answer at once, by `python -m tools.bench.loop`: what is spared here is most of what the loop had to do.

**The decode stream.** For a request with a stop string vLLM turns ids into text one by one. At the first of them its
stream decodes the whole prompt twice, in the worker's event loop: 2 ms at 8,000 tokens, 25 ms at 32,000
(vllm-project/vllm#51281). What follows a prompt depends on its last few ids only, so the stream here is given these.
The text is vLLM's own. It differs in one case. Behind a prompt that ends inside a character, vLLM's stream returns the
whole prompt together with the first new text, and finds stop strings in it (vllm-project/vllm#48853). Here only what
follows the last whole character is returned. Only code that is known is changed: with another version of vLLM
everything stays as it is, and a warning says so.
"""

from __future__ import annotations

import gc
import hashlib
import inspect
import json
import logging
import os
import re
import time
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from harness.engines.processes import is_engine_process

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from tokenizers.decoders import DecodeStream
    from vllm.distributed.device_communicators.shm_broadcast import SpinCondition
    from vllm.v1.engine.async_llm import AsyncLLM
    from vllm.v1.metrics.stats import SchedulerStats

ENTRY_POINT = "speculative_harness_parent_watch"
"""The plug-in's name among those of vLLM."""
POLITE_WAIT = "HARNESS_ENGINE_POLITE_WAIT"
"""Environment variable: set to 1 in the processes of an engine that shares its cores."""
_SPIN_SECONDS = 0.002
_PAUSE_SECONDS = 0.0002
_MOST_MILLISECONDS = 100
_P = ParamSpec("_P")
_R = TypeVar("_R")


def install() -> None:
    """In a process of an engine on a CPU, wait for batches politely.

    vLLM also calls it in the worker itself, where nothing is changed: an engine of the user's own may run there.
    """
    if is_engine_process() and os.environ.get(POLITE_WAIT) == "1":
        wait_politely()


def wait_politely() -> None:
    """Change how this process waits for batches; before vLLM makes its queues."""
    from vllm.distributed.device_communicators.shm_broadcast import SpinCondition

    before = SpinCondition.wait

    def wait(self: SpinCondition, timeout_ms: int | None = None) -> None:
        if _SPIN_SECONDS < time.monotonic() - self.last_read <= self.busy_loop_s:
            time.sleep(_PAUSE_SECONDS)
        else:
            before(self, _MOST_MILLISECONDS if timeout_ms is None else min(timeout_ms, _MOST_MILLISECONDS))

    SpinCondition.wait = wait


_logger = logging.getLogger(__name__)
_COLLECTOR_THRESHOLDS = (10_000, 20, 50)
"""A token of a request makes some ten objects that are gone again with the next one. Python's default would look
through all young objects for every 70 tokens."""
_NUMBERS_OF_STEP = ("num_running_reqs", "num_waiting_reqs", "kv_cache_usage")
"""Fields of vLLM's SchedulerStats. A field that some version of vLLM lacks is read as None, so it never changes."""
_usual_thresholds = gc.get_threshold()
_open: list[AsyncLLM] = []
"""The AsyncLLMs that are open in this process."""


def before_start() -> None:
    """Let vLLM read its environment variables anew: an engine is about to start."""
    from vllm import envs

    envs.disable_envs_cache()


def after_start(llm: AsyncLLM) -> Callable[[Sequence[int]], None]:
    """Spare the event loop what a started AsyncLLM would do for a server.

    Returns vLLM's own check of a prompt's ids, which raises ValueError. vLLM makes it for every request. Here one call
    sends several requests with one prompt, and checks it once.
    """
    from vllm import envs

    _warn_of_decode_streams()
    llm.logger_manager = None  # counters that a server shows; the times of each request are kept without it
    envs.enable_envs_cache()  # several are read for every token
    # What exists by now stays. The collector would walk through all of vLLM and torch again and again.
    _open.append(llm)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECTOR_THRESHOLDS)
    check: Callable[[Sequence[int]], None] | None = getattr(llm.renderer, "validate_token_ids", None)
    if check is None:
        return _accept
    llm.renderer.validate_token_ids = _accept
    return check


def report_work(llm: AsyncLLM, note_work: Callable[[], None]) -> None:
    """Call `note_work` whenever an AsyncLLM learns that its engine has done something.

    That is an output of any request (`generate` itself yields only the last one of each), or a step of the scheduler
    after which its numbers differ. The numbers come with every step, because vLLM's statistics are on, and so they show
    the chunks of a long prompt, which have no output: the cache fills. An engine that only repeats steps in which it
    schedules nothing has the same numbers each time, and does not work.
    """
    processor = llm.output_processor
    latest: tuple[float | None, ...] = ()
    update_scheduler_stats = processor.update_scheduler_stats

    def update(stats: SchedulerStats | None) -> None:
        nonlocal latest
        numbers = tuple(getattr(stats, name, None) for name in _NUMBERS_OF_STEP)
        if stats is not None and numbers != latest:
            latest = numbers
            note_work()
        update_scheduler_stats(stats)

    processor.process_outputs = _noted(processor.process_outputs, note_work)
    processor.update_scheduler_stats = update


def _noted(call: Callable[_P, _R], note: Callable[[], None]) -> Callable[_P, _R]:
    def noted(*arguments: _P.args, **named: _P.kwargs) -> _R:
        note()
        return call(*arguments, **named)

    return noted


def after_end(llm: AsyncLLM) -> None:
    """Let the collector see again what a closed AsyncLLM has left."""
    if llm not in _open:
        return
    _open.remove(llm)
    gc.unfreeze()
    gc.collect()
    if _open:
        gc.freeze()
    else:
        gc.set_threshold(*_usual_thresholds)


def _accept(ids: Sequence[int], parameter: str = "") -> None:
    """Accept any ids: they have been checked already, or are checked later."""


@cache
def _warn_of_decode_streams() -> None:
    """Prime decode streams. Say once where this version of vLLM is not known."""
    if notice := prime_decode_streams():
        _logger.warning(notice)


_KNOWN_DETOKENIZERS = {"789828f59fe4d0590bef927f7cc0211c7d24508f3d5ae2caded237183a76a2ef": "0.31, 0.32, 0.33"}
"""SHA-256 of the source of vLLM's FastIncrementalDetokenizer, which makes the streams and steps them, by version."""
_SIZES = (16, 128)
"""Numbers of ids to prime a stream with: the second where the first have no visible text."""
_MOST_UNFINISHED = 8
"""Most ids at the end of a prompt that are taken for the beginning of a character, which has at most four bytes."""
_UNFINISHED = "\ufffd"
"""Stands at the end of a text for bytes that are not a whole character yet, and for bytes that can become none."""
_LOCAL_DECODERS = frozenset({"ByteLevel", "Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"})
"""Decoders under which a token's text depends on its neighbors only: on a run of bytes, and on being the first."""
_BYTE_TOKEN = re.compile(r"<0x[0-9A-F]{2}>")


class PrimedStream:
    """A stand-in for `tokenizers.decoders.DecodeStream` that becomes one at its first step."""

    original: type[DecodeStream] | None = None
    """The class that it stands in for."""

    def __init__(self, ids: Sequence[int] | None = None, skip_special_tokens: bool = False) -> None:
        self._ids, self._skips_special = ids, skip_special_tokens

    def step(self, tokenizer: Tokenizer, token_id: int) -> str | None:
        """Return the text that an id completes; None where it completes none."""
        assert self.original is not None
        stream = _primed(self.original, tokenizer, self._ids, self._skips_special)
        self._ids = None
        vars(self)["step"] = stream.step  # from now on without a call in between
        return stream.step(tokenizer, token_id)


def prime_decode_streams() -> str | None:
    """Let vLLM's detokenizers make primed streams. Returns why not, in one line, where this vLLM is not known.

    vLLM looks the class up in `tokenizers.decoders` for each request, so that it can be replaced there.
    """
    import vllm
    from tokenizers import decoders
    from vllm.v1.engine import detokenizer

    if PrimedStream.original is not None:
        return None
    source = inspect.getsource(detokenizer.FastIncrementalDetokenizer)
    if hashlib.sha256(source.encode()).hexdigest() not in _KNOWN_DETOKENIZERS:
        known = ", ".join(_KNOWN_DETOKENIZERS.values())
        return (
            f"vLLM {vllm.__version__} makes text of tokens in a way that is not known here (known: {known}): each "
            "request decodes its whole prompt once more, 2 ms of the worker's time at 8,000 tokens"
        )
    PrimedStream.original = decoders.DecodeStream
    setattr(decoders, "DecodeStream", PrimedStream)  # noqa: B010 - mypy knows it as a class
    return None


def _primed(
    make: type[DecodeStream], tokenizer: Tokenizer, ids: Sequence[int] | None, skips_special: bool
) -> DecodeStream:
    """Return a stream of the class `make` that continues after `ids`."""
    is_local, has_bytes = _locality(tokenizer)
    if not ids or not is_local:
        return make(ids=ids, skip_special_tokens=skips_special)
    text = ""
    for size in _SIZES:
        start = max(0, len(ids) - size)
        while has_bytes and start > 0 and _BYTE_TOKEN.fullmatch(tokenizer.id_to_token(ids[start]) or ""):
            start -= 1  # one invalid byte spoils the whole run of bytes that it is in
        for end in range(len(ids), max(start, len(ids) - _MOST_UNFINISHED), -1):
            text = tokenizer.decode(ids[start:end], skip_special_tokens=skips_special)
            if not text.endswith(_UNFINISHED):
                break
        # The first bytes may be the end of a character. Behind any whole character they have no influence.
        if text and not text.endswith(_UNFINISHED):
            stream = make(ids=ids[start:end], skip_special_tokens=skips_special)
            for token_id in ids[end:]:
                stream.step(tokenizer, token_id)
            return stream
    # Either nothing of it is visible, or it ends in so many invalid bytes that no character can begin in them.
    return make(ids=None if text else ids, skip_special_tokens=skips_special)


@lru_cache(16)
def _locality(tokenizer: Tokenizer) -> tuple[bool, bool]:
    """Return whether the tokenizer's decoders are all local, and whether it has tokens for single bytes."""
    state = json.loads(tokenizer.decoder.__getstate__()) if tokenizer.decoder is not None else {}
    kinds = {str(decoder.get("type")) for decoder in state.get("decoders", [state])}
    return kinds <= _LOCAL_DECODERS, "ByteFallback" in kinds
