"""A clock that stands still except where an event loop would wait, so that what is recorded is the same every time."""

from __future__ import annotations

import multiprocessing.connection
import selectors
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

EPOCH = 1_700_000_000.0
"""Seconds since the epoch at which the clock begins."""


class Clock:
    """Seconds since its beginning. Event loops that are made while it is installed move it instead of waiting."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Replace the clocks of `time` and the waiting of event loops."""
        with pytest.MonkeyPatch.context() as patch:
            # Waiting for processes, such as those that grade, takes the machine's time.
            patch.setattr(multiprocessing.connection, "time", SimpleNamespace(monotonic=time.monotonic))
            patch.setattr(time, "time", lambda: EPOCH + self.seconds)
            # Small numbers: near the epoch a float is coarser than the resolution that an event loop relies on.
            patch.setattr(time, "monotonic", lambda: self.seconds)
            patch.setattr(time, "perf_counter", lambda: self.seconds)
            patch.setattr(selectors, "DefaultSelector", self._selector())
            yield

    def _selector(self) -> type[selectors.BaseSelector]:
        clock = self

        class Selector(selectors.DefaultSelector):
            def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
                ready = super().select(None if timeout is None else 0)
                if not ready and timeout:
                    clock.seconds += timeout
                return ready

        return Selector
