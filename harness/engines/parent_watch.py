"""Ends an engine's processes when the worker that started them has ended.

vLLM's engine processes outlive a worker that is killed and keep the GPU's memory. vLLM loads `install` as a plug-in in
every process of an engine; there it waits for the worker's end and then kills its own process. In other processes it
does nothing.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time

PARENT = "HARNESS_ENGINE_PARENT"
"""Environment variable: process id of the worker; set while an engine is started, inherited by all its processes."""
ENTRY_POINT = "speculative_harness_parent_watch"
_POLL_SECONDS = 1.0


def install() -> None:
    """Start watching, where the environment names a worker other than this process."""
    text = os.environ.get(PARENT, "")
    if not text.isdigit() or int(text) == os.getpid():
        return
    threading.Thread(target=_watch, args=(int(text),), name="parent-watch", daemon=True).start()


def _watch(worker: int) -> None:
    try:
        descriptor = os.pidfd_open(worker)  # unlike a process id, it is never reused for another process
    except ProcessLookupError:
        pass
    except (AttributeError, OSError):  # this system lacks the call
        while _exists(worker):
            time.sleep(_POLL_SECONDS)
    else:
        waiting = select.poll()
        waiting.register(descriptor, select.POLLIN)
        waiting.poll()
    os.kill(os.getpid(), signal.SIGKILL)


def _exists(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
