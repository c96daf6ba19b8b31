from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")


def timed(call: Callable[[], _T]) -> tuple[_T, float]:
    """Return a call's result and its processor seconds, without the garbage of earlier tests and other threads."""
    gc.collect()
    gc.disable()
    try:
        started = time.thread_time()
        return call(), time.thread_time() - started
    finally:
        gc.enable()
