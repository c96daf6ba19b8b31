"""Changes to vLLM in the worker's event loop.

**Event loop.** Every token of every request passes through the worker's single event loop. The work avoided here is
most of the loop's work, as measured with instantaneous engines by `python -m tools.bench.loop`.

**Decode stream.** For a request with a stop string, vLLM converts ids to text one by one. For the first id, vLLM's
stream decodes the whole prompt twice, in the worker's event loop: 2 ms at 8,000 tokens, 25 ms at 32,000
(vllm-project/vllm#51281). The text after a prompt depends only on the prompt's last few ids, so the stream gets only
these. The text is vLLM's own, except after a prompt that ends inside a character: vLLM's stream returns the whole
prompt with the first new text, and finds stop strings in the prompt (vllm-project/vllm#48853); the replacement returns
only the text after the last whole character. Only known code is changed: unknown vLLM versions are left unchanged, with
a warning.
"""

from __future__ import annotations

import gc
import hashlib
import inspect
import json
import logging
import re
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from tokenizers.decoders import DecodeStream
    from vllm.v1.engine.async_llm import AsyncLLM
    from vllm.v1.metrics.stats import SchedulerStats

_P = ParamSpec("_P")
_R = TypeVar("_R")

_logger = logging.getLogger(__name__)
_COLLECTOR_THRESHOLDS = (10_000, 20, 50)
"""Each generated token allocates about ten short-lived objects. Python's default threshold would scan all young objects
every 70 tokens."""
_NUMBERS_OF_STEP = ("num_running_reqs", "num_waiting_reqs", "kv_cache_usage")
"""Fields of vLLM's SchedulerStats. Fields missing from a version are read as None and never change."""
_usual_thresholds = gc.get_threshold()
_open: list[AsyncLLM] = []
"""The open AsyncLLMs of this process."""


def before_start() -> None:
    """Make vLLM read its environment variables again before an engine starts."""
    from vllm import envs

    envs.disable_envs_cache()


def after_start(llm: AsyncLLM) -> Callable[[Sequence[int]], None]:
    """Turn off those activities of a started AsyncLLM that only servers need.

    Returns vLLM's own check of a prompt's ids, which raises ValueError. vLLM runs it for every request; here it runs
    once for several requests with the same prompt.
    """
    from vllm import envs

    _warn_of_decode_streams()
    llm.logger_manager = None  # counters for servers; the times of each request do not depend on them
    envs.enable_envs_cache()  # several of vLLM's variables are read for every token
    # Freeze all current objects. The collector would otherwise scan all of vLLM and torch repeatedly.
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
    """Call `note_work` whenever an AsyncLLM receives evidence of work from its engine.

    Evidence is any output of a request, including intermediate outputs, which `generate` does not yield, and any
    scheduler step with changed statistics. Chunks of a long prompt have no output, but they fill the cache, which
    changes the statistics. Statistics stay constant if an engine repeats steps without scheduling anything.
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
    """Return a closed AsyncLLM's remaining objects to the garbage collector."""
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
    """Accept any ids: they are checked elsewhere."""


@cache
def _warn_of_decode_streams() -> None:
    """Prime decode streams, with a single warning for an unknown vLLM version."""
    if notice := prime_decode_streams():
        _logger.warning(notice)


_KNOWN_DETOKENIZERS = {"789828f59fe4d0590bef927f7cc0211c7d24508f3d5ae2caded237183a76a2ef": "0.31, 0.32, 0.33"}
"""vLLM versions by the SHA-256 of the source of FastIncrementalDetokenizer, which creates and advances the streams."""
_SIZES = (16, 128)
"""Numbers of a prompt's last ids for priming a stream; the second is used if the first gives no usable text."""
_MOST_UNFINISHED = 8
"""Maximum number of ids treated as a character's beginning at the end of a prompt; a character has up to four bytes."""
_UNFINISHED = "\ufffd"
"""Placeholder at the end of a text for incomplete or invalid bytes."""
_LOCAL_DECODERS = frozenset({"ByteLevel", "Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"})
"""Decoders for which a token's text depends only on whether it is the first, and on adjacent tokens for bytes."""
_BYTE_TOKEN = re.compile(r"<0x[0-9A-F]{2}>")


class PrimedStream:
    """A stand-in for `tokenizers.decoders.DecodeStream` that creates the real stream at its first step."""

    original: type[DecodeStream] | None = None
    """The replaced class."""

    def __init__(self, ids: Sequence[int] | None = None, skip_special_tokens: bool = False) -> None:
        self._ids, self._skips_special = ids, skip_special_tokens

    def step(self, tokenizer: Tokenizer, token_id: int) -> str | None:
        """Return the text completed by an id, if any."""
        assert self.original is not None
        stream = _primed(self.original, tokenizer, self._ids, self._skips_special)
        self._ids = None
        vars(self)["step"] = stream.step  # avoids this wrapper from now on
        return stream.step(tokenizer, token_id)


def prime_decode_streams() -> str | None:
    """Make vLLM's detokenizers use primed streams. Returns a one-line notice if this vLLM is unknown.

    vLLM looks up the class in `tokenizers.decoders` for each request, so it can be replaced there.
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
            f"vLLM {vllm.__version__} has an unknown detokenizer (known: {known}), so each request with a stop "
            "string detokenizes its whole prompt: 2 ms of the worker's time at 8,000 tokens"
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
            start -= 1  # one invalid byte affects its whole run of bytes
        for end in range(len(ids), max(start, len(ids) - _MOST_UNFINISHED), -1):
            text = tokenizer.decode(ids[start:end], skip_special_tokens=skips_special)
            if not text.endswith(_UNFINISHED):
                break
        # The first bytes may be the end of a character. After any whole character they have no influence.
        if text and not text.endswith(_UNFINISHED):
            stream = make(ids=ids[start:end], skip_special_tokens=skips_special)
            for token_id in ids[end:]:
                stream.step(tokenizer, token_id)
            return stream
    # Either there is no visible text, or it ends in too many invalid bytes for a character to start in them.
    return make(ids=None if text else ids, skip_special_tokens=skips_special)


@lru_cache(16)
def _locality(tokenizer: Tokenizer) -> tuple[bool, bool]:
    """Return whether all decoders of the tokenizer are local, and whether it has tokens for single bytes."""
    state = json.loads(tokenizer.decoder.__getstate__()) if tokenizer.decoder is not None else {}
    kinds = {str(decoder.get("type")) for decoder in state.get("decoders", [state])}
    return kinds <= _LOCAL_DECODERS, "ByteFallback" in kinds
