"""Lets the processes of an engine that waits for its turn leave the cores to the engine that works.

A worker process of vLLM asks for its next batch without a pause, and sleeps only where none has come for a second
(`SpinCondition` in vllm.distributed.device_communicators.shm_broadcast, vLLM 0.31 and 0.32). The engines of one sample
work by turns of less than a second. Where they share cores, as on a CPU, the one that waits takes half of a core from
the one that works: of two cores, the bundled draft wrote a token in 7.5 ms instead of 1.6.

Here a process asks without a pause for two milliseconds after its last message, and then five thousand times a second.
A model that computes for longer than that between two batches loses a fifth of a millisecond for each. Waiting for
vLLM's message at once would be simpler, but that message gets lost at times, and the process then sleeps for five
seconds; so after the second it looks again ten times a second.
"""

from __future__ import annotations

import os
import time
from typing import Any

ENABLED = "HARNESS_ENGINE_POLITE_WAIT"
"""Environment variable: set to 1 in the processes of an engine that shares its cores."""
_SPIN_SECONDS = 0.002
_PAUSE_SECONDS = 0.0002
_MOST_MILLISECONDS = 100


def install() -> None:
    """Change how this process waits for batches, where the environment says so; before vLLM makes its queues."""
    if os.environ.get(ENABLED) != "1":
        return
    from vllm.distributed.device_communicators import shm_broadcast

    condition = getattr(shm_broadcast, "SpinCondition", None)
    before = getattr(condition, "wait", None)
    if condition is None or before is None:  # another version of vLLM, whose processes wait as it has them wait
        return

    def wait(self: Any, timeout_ms: int | None = None) -> None:
        last_read, longest = getattr(self, "last_read", None), getattr(self, "busy_loop_s", 0.0)
        if last_read is None:
            before(self, timeout_ms)
        elif _SPIN_SECONDS < time.monotonic() - last_read <= longest:
            time.sleep(_PAUSE_SECONDS)
        else:
            before(self, _MOST_MILLISECONDS if timeout_ms is None else min(timeout_ms, _MOST_MILLISECONDS))

    condition.wait = wait
