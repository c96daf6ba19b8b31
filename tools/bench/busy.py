"""Sampling profiler of the event loop: time spent waiting for engines, in vLLM's front end, or in the harness.

A thread samples the loop's stack at fixed intervals. Unlike a tracing profiler, this does not slow down the run.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType

import harness

_HARNESS = str(Path(harness.__file__).resolve().parent)
_BENCH = str(Path(__file__).resolve().parent)
_INTERVAL_SECONDS = 0.005
WAITING = "waiting"
"""This process is idle: the engines compute, or their answers are in transit."""


class Watch:
    """Context manager that profiles a run in the event loop of this thread."""

    def __init__(self) -> None:
        self.seconds = 0.0
        """Wall time."""
        self.busy_seconds = 0.0
        """Processor time of the event loop's thread."""
        self._seen: Counter[str] = Counter()
        self._ended = threading.Event()

    def __enter__(self) -> Watch:
        self._loop_thread = threading.get_ident()
        self._thread = threading.Thread(target=self._look, name="bench-watch", daemon=True)
        self._begun, self._busy = time.monotonic(), time.thread_time()
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.seconds = time.monotonic() - self._begun
        self.busy_seconds = time.thread_time() - self._busy
        self._ended.set()
        self._thread.join()

    @property
    def shares(self) -> dict[str, float]:
        """Shares of the wall time by place, largest first: waiting, vllm, harness/<file>, python (asyncio itself)."""
        total = sum(self._seen.values()) or 1
        return {place: count / total for place, count in self._seen.most_common()}

    def share(self, place: str) -> float:
        """Return one place's share of the wall time, including the places below it (`place/…`)."""
        return sum(s for name, s in self.shares.items() if name == place or name.startswith(f"{place}/"))

    def _look(self) -> None:
        while not self._ended.wait(_INTERVAL_SECONDS):
            frame = sys._current_frames().get(self._loop_thread)
            if frame is not None:
                self._seen[place(frame)] += 1


def place(frame: FrameType) -> str:
    """Classify a stack by its innermost frame in vLLM or the harness."""
    name = frame.f_code.co_filename
    if name.endswith("selectors.py"):
        return WAITING
    at: FrameType | None = frame
    while at is not None:
        name = at.f_code.co_filename
        if "/vllm/" in name and not name.startswith(_HARNESS):
            return "vllm"
        if name.startswith(_BENCH):
            return "benchmark"
        if name.startswith(_HARNESS):
            return "harness/" + str(Path(name).relative_to(_HARNESS).with_suffix(""))
        at = at.f_back
    return "python"
