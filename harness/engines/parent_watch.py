"""Ends the processes of an engine when the worker that started it, or the process above them, has ended.

vLLM's engine processes outlive a worker that is killed and keep the GPU's memory, and its ranks outlive an engine core
that is killed by many seconds. vLLM loads `install` as a plug-in in every process of an engine; there it waits for the
end of the worker and of the parent process, and then kills its own process. In other processes it does nothing. Only
the standard library is imported.

The plug-in cannot act in a process that has not loaded it yet, or whose native code keeps Python's lock;
harness.engines.guard covers these.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import select
import signal
import threading
import time

PARENT = "HARNESS_ENGINE_PARENT"
"""Environment variable: process id of the worker; set while an engine is started, inherited by all its processes."""
ENTRY_POINT = "speculative_harness_parent_watch"
THREAD = "parent-watch"
"""Name of the watching thread, for Python and for the operating system (`ps -T`)."""
_POLL_SECONDS = 1.0
_PR_SET_NAME = 15
_watched_forks: list[int] = []
"""The process that registered the watch of forks; a forked process keeps both."""


def install() -> None:
    """Start watching, where the environment names a worker other than this process."""
    worker = worker_above()
    if worker is None:
        return
    parent = os.getppid()
    starter = multiprocessing.parent_process()
    if starter is not None and starter.pid is not None and not _exists(starter.pid):
        os.kill(os.getpid(), signal.SIGKILL)  # it ended before this process could watch it
    threading.Thread(target=_watch, args=(worker, parent), name=THREAD, daemon=True).start()


def watch_forks() -> None:
    """Make every process that is forked from this one during the start of an engine watch its parents too.

    Engines are spawned (harness.engines.variables). Should vLLM fork one all the same, the forked process takes its
    plug-ins for loaded, and shares the descriptor by which this process learns about its own signals.
    """
    if not _watched_forks:
        _watched_forks.append(os.getpid())
        os.register_at_fork(after_in_child=_after_fork)


def _after_fork() -> None:
    if worker_above() is None:
        return
    with contextlib.suppress(ValueError):
        # Python 3.12 and later do so by themselves. Before, a signal to this process, such as vLLM's SIGTERM at the
        # engine's end, reached the worker's event loop as one of its own, and cancelled the run.
        signal.set_wakeup_fd(-1)
    install()


def worker_above() -> int | None:
    """Return the process id of the worker that started this process as part of an engine; None elsewhere."""
    text = os.environ.get(PARENT, "")
    return int(text) if text.isdigit() and int(text) != os.getpid() else None


def _watch(worker: int, parent: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_NAME, THREAD.encode())
    waiting = select.poll()
    try:
        for process in {worker, parent}:
            # Unlike a process id, a descriptor is never reused for another process.
            waiting.register(os.pidfd_open(process), select.POLLIN)
        if os.getppid() == parent:  # otherwise it ended before its descriptor was opened
            waiting.poll()
    except ProcessLookupError:
        pass
    except (AttributeError, OSError):  # this system lacks the call, as Linux before 5.3
        while _exists(worker) and os.getppid() == parent:
            time.sleep(_POLL_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


def _exists(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
