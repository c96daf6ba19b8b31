"""Whether a worker may begin another sample of a run that has a budget.

What others have used is read from the files of their attempts, more rarely the more is left. The own attempt counts
until now. Samples under way end: what they have cost would otherwise be lost to the latencies, and those that are cut
off would be the long ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Mapping

from jobs.run import budget
from jobs.run.budget import Budget, Meter, Stop
from jobs.run.device_time import AttemptTime, of_record
from jobs.run.folder import RunFolder
from jobs.run.spec import Attempt

_LONGEST_SECONDS, _SHORTEST_SECONDS = 60.0, 1.0
"""Time between two looks; the longest also bounds how late a budget that was changed meanwhile is seen."""
_SHORTEST_SHARE = 0.01
"""The share of a budget below which the time between two looks does not fall, up to the shortest time above."""


class BudgetWatch:
    """The budget of a run, as one worker sees it."""

    def __init__(self, run: RunFolder) -> None:
        """Nothing is read yet."""
        self._run = run
        self._meter = Meter(run)
        self._attempt: Attempt | None = None
        self._stop: Stop | None = None
        self._next_look_at = 0.0

    @property
    def is_used_up(self) -> bool:
        """True if this worker has found the budget used up."""
        return self._stop is not None

    def look(self) -> bool:
        """Look now; returns whether a sample may begin, which after the first refusal it may not."""
        if self._stop is not None or not budget.path_of(self._run).exists():
            return self._stop is None
        now = time.time()
        self._next_look_at = now + _LONGEST_SECONDS
        in_force = budget.read(self._run)
        if in_force is None:
            return True
        own = self._own(now)
        used = self._meter.used(in_force, own)
        left = in_force.max_gpu_hours - used.device_hours
        if left <= 0:
            self._refuse(in_force, Stop(in_force.max_gpu_hours, used, max(1, len(in_force.runs))))
        elif stop := self._meter.stop():  # another worker has counted a moment more
            self._refuse(None, stop)
        else:
            self._next_look_at = now + _pause(left, in_force, own)
        return self._stop is None

    async def may_begin(self) -> bool:
        """Return whether another sample may begin; looks where it is time to, and keeps the event loop going.

        A run without a budget does not leave the event loop: its samples begin at once, as without this question.
        """
        now = time.time()
        if self._stop is None and now >= self._next_look_at:
            if budget.path_of(self._run).exists():
                await asyncio.to_thread(self.look)
            else:
                self._next_look_at = now + _LONGEST_SECONDS
        return self._stop is None

    def begin(self, attempt: Attempt) -> None:
        """Count an attempt of this worker from now on."""
        self._attempt, self._next_look_at = attempt, 0.0

    def end(self) -> None:
        """Record what the attempt has used, where the run has a budget."""
        attempt, own = self._attempt, self._own(time.time())
        self._attempt = None
        if attempt is None or not budget.path_of(self._run).exists():
            return
        with contextlib.suppress(OSError):  # such as a full disk, which the journal has named
            budget.record_attempt(self._run, own[attempt.attempt_id], attempt.attempt_id)

    def _own(self, now: float) -> dict[str, AttemptTime]:
        attempt = self._attempt
        if attempt is None:
            return {}
        record = {name: getattr(attempt, name) for name in ("started_at", "engines", "num_devices", "device")}
        return {attempt.attempt_id: of_record(record, now)}

    def _refuse(self, in_force: Budget | None, stop: Stop) -> None:
        self._stop = stop
        if in_force is not None:
            with contextlib.suppress(OSError):
                budget.record_used_up(self._run, in_force)
        print(f"{self._run.path.name}: no further sample is begun: {stop}", file=sys.stderr, flush=True)


def _pause(left: float, in_force: Budget, own: Mapping[str, AttemptTime]) -> float:
    """Return the seconds until the next look: half of the time in which this worker alone would use up the rest.

    Other workers use it up sooner. They look too, and the first that finds it used up says so to all.
    """
    devices = max((one.num_devices for one in own.values()), default=1)
    shortest = min(_SHORTEST_SECONDS, 3600 * _SHORTEST_SHARE * in_force.max_gpu_hours)
    return min(_LONGEST_SECONDS, max(shortest, 3600 * left / devices / 2))
