"""What surrounds a vLLM request: its times, several requests as one call, and its counts of speculated tokens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

from harness.engine import Timing

_T = TypeVar("_T")


class CallClock:
    """Wall times of one call, refined by the engine's own times of its requests where vLLM reports them."""

    def __init__(self, in_flight: int) -> None:
        """Start the clock. `in_flight` is the number of calls under way, this one included."""
        self._in_flight = in_flight
        self._submitted_at, self._begun = time.time(), time.monotonic()
        self._end_seconds = 0.0

    def stop(self) -> None:
        """Stop the clock: the call has ended."""
        self._end_seconds = time.monotonic() - self._begun

    def timing(self, outputs: Sequence[Any]) -> Timing:
        """Return the timing of the call whose requests gave these vLLM outputs.

        Queueing and first token are those of the request that was served first.
        """
        queued, first = 0.0, self._end_seconds
        metrics = [m for m in (output.metrics for output in outputs) if getattr(m, "first_token_ts", 0.0)]
        if metrics:
            arrived = min(m.queued_ts for m in metrics)
            queued = max(0.0, min(m.scheduled_ts for m in metrics) - arrived)
            first = max(queued, min(m.first_token_ts for m in metrics) - arrived)
        end = self._end_seconds
        return Timing(self._submitted_at, min(queued, end), min(first, end), end, self._in_flight)


async def gather_or_cancel(requests: Sequence[Awaitable[_T]]) -> list[_T]:
    """Return all results. When one request fails or the caller is cancelled, the other requests are cancelled."""
    if len(requests) == 1:
        return [await requests[0]]
    tasks = [asyncio.ensure_future(request) for request in requests]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def speculated_tokens(output: Any) -> tuple[int | None, int | None]:
    """Return the tokens proposed for a completion and those confirmed; None where this vLLM does not count them."""
    counts = getattr(output, "spec_decode_metrics", None)
    if counts is None:
        return None, None
    return counts.num_draft_tokens, sum(size * times for size, times in enumerate(counts.histogram))
