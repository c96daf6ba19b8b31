"""When an engine with unfinished requests has stopped working: the call would never return, and its node stay taken.

A process that waits for a hung card is alive, so nothing else notices it. What counts as work is the engine's to say
(see `harness.engines.front_end.report_work`).
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable

from harness.plural import counted

LIMIT = "HARNESS_ENGINE_STALL_SECONDS"
"""Environment variable: seconds without any work after which an engine is ended; 0 for never. No result depends on it,
so it is no setting of a run."""
_DEFAULT_LIMIT_SECONDS = 1800.0
"""Far above the longest step: vLLM itself ends an engine whose ranks compute longer than 300 s on one."""
_MOST_SECONDS_PER_LOOK = 10.0
"""What one look adds at most. Where this process did not run itself, suspended with its job or short of a processor, it
has not seen whether the engine worked."""


def limit_seconds() -> float:
    """Return the limit that the environment sets. Raises ValueError."""
    text = os.environ.get(LIMIT, "").strip()
    try:
        limit = float(text) if text else _DEFAULT_LIMIT_SECONDS
    except ValueError:
        limit = math.nan
    if not 0 <= limit < math.inf:
        raise ValueError(f"{LIMIT}={text}: expected a number of seconds, or 0 to never end an engine that stalls")
    return limit


class StallClock:
    """How long one engine has done nothing although requests were unfinished."""

    def __init__(self, limit: float, now: Callable[[], float] = time.monotonic) -> None:
        """`limit`: seconds, 0 for none; `now`: a clock in seconds that is never set back."""
        self._limit, self._now = limit, now
        self._looked_at = now()
        self._idle_seconds = 0.0
        self._has_worked = self._was_waiting = False

    def note_work(self) -> None:
        """Take note that the engine has done something. It is called for every batch, so it reads no clock."""
        self._has_worked = True

    def stalled(self, num_unfinished: int) -> str | None:
        """Return in words that the limit has passed with so many requests unfinished; None where it has not.

        Call it every second or so. The time counts from the look that first sees an unfinished request, or that follows
        the last work. An engine without requests is not stalled, however long it waits for some.
        """
        now = self._now()
        elapsed, self._looked_at = now - self._looked_at, now
        if self._has_worked or not num_unfinished:
            self._idle_seconds = 0.0
        elif self._was_waiting:
            self._idle_seconds += min(elapsed, _MOST_SECONDS_PER_LOOK)
        self._has_worked, self._was_waiting = False, num_unfinished > 0
        if not self._limit or self._idle_seconds < self._limit:
            return None
        return f"no output for {self._limit:,.10g} s with {counted(num_unfinished, 'request')} unfinished"
