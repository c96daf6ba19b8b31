"""vLLM's front end in the worker's event loop, without what nothing here reads.

Every token of every request passes through the worker's one event loop. Measured over engines that answer at once, by
`python -m tools.bench.loop`: what is spared here is most of what the loop had to do.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from harness.engines import decode_stream

_logger = logging.getLogger(__name__)
_COLLECTOR_THRESHOLDS = (10_000, 20, 50)
"""A token of a request makes some ten objects that are gone again with the next one. Python's default would look
through all young objects for every 70 tokens."""
_NUMBERS_OF_STEP = ("num_running_reqs", "num_waiting_reqs", "kv_cache_usage")
"""Fields of vLLM's SchedulerStats. A field that some version of vLLM lacks is read as None, so it never changes."""
_usual_thresholds = gc.get_threshold()
_open: list[Any] = []
"""The AsyncLLMs that are open in this process."""


def before_start() -> None:
    """Let vLLM read its environment variables anew: an engine is about to start."""
    from vllm import envs

    envs.disable_envs_cache()


def after_start(llm: Any) -> Callable[[Sequence[int]], None]:
    """Spare the event loop what a started AsyncLLM would do for a server.

    Returns vLLM's own check of a prompt's ids, which raises ValueError. vLLM makes it for every request. Here one call
    sends several requests with one prompt, and checks it once.
    """
    from vllm import envs

    _prime_decode_streams()
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


def report_work(llm: Any, note_work: Callable[[], None]) -> None:
    """Call `note_work` whenever an AsyncLLM learns that its engine has done something.

    That is an output of any request (`generate` itself yields only the last one of each), or a step of the scheduler
    after which its numbers differ. The numbers come with every step, because vLLM's statistics are on, and so they show
    the chunks of a long prompt, which have no output: the cache fills. An engine that only repeats steps in which it
    schedules nothing has the same numbers each time, and does not work.
    """
    processor = llm.output_processor
    latest: tuple[object, ...] = ()
    process_outputs, update_scheduler_stats = processor.process_outputs, processor.update_scheduler_stats

    def process(*arguments: Any, **named: Any) -> Any:
        note_work()
        return process_outputs(*arguments, **named)

    def update(stats: Any) -> None:
        nonlocal latest
        numbers = tuple(getattr(stats, name, None) for name in _NUMBERS_OF_STEP)
        if stats is not None and numbers != latest:
            latest = numbers
            note_work()
        update_scheduler_stats(stats)

    processor.process_outputs, processor.update_scheduler_stats = process, update


def after_end(llm: Any) -> None:
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


def _accept(ids: Sequence[int], **ignored: Any) -> None:
    """Accept any ids: they have been checked already, or are checked later."""


@cache
def _prime_decode_streams() -> None:
    """Say once where this version of vLLM is not known."""
    if notice := decode_stream.install():
        _logger.warning(notice)
