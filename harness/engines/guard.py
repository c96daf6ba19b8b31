"""A process beside a worker that kills what is left of the worker's engines when the worker has ended.

It finds them by a mark in the environment that they were started with, so neither their names nor their parents matter,
nor whether they have loaded a plug-in, wait inside native code or are still starting. It needs a few megabytes, and
ends right after the worker. Run as a script, it imports nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

_POLL_SECONDS = 0.5
_SCAN_SECONDS = 0.2
_MAX_SECONDS = 60.0
_EMPTY_SCANS = 2
"""Number of scans in succession that find nothing before the guard ends: a process may be starting another one."""
_SPARED = b"multiprocessing.resource_tracker"
"""Ends by itself with the processes that use it, and removes their shared memory then."""
_started: dict[int, subprocess.Popen[bytes]] = {}


def start(mark: str) -> None:
    """Start this process's guard, once, for engines whose environment contains `mark`; only on Linux."""
    if os.getpid() in _started or not Path("/proc/self/environ").is_file():
        return
    _started[os.getpid()] = subprocess.Popen(
        # Isolated and without site-packages: the start takes milliseconds.
        [sys.executable, "-I", "-S", "-B", __file__, str(os.getpid()), mark],
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def kill_marked(mark: bytes) -> int:
    """Kill every process whose environment contains the mark; returns their number."""
    killed = 0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):  # it has ended, or belongs to another user
            if mark in (entry / "environ").read_bytes() and _SPARED not in (entry / "cmdline").read_bytes():
                os.kill(int(entry.name), signal.SIGKILL)
                killed += 1
    return killed


def _main(worker: int, mark: bytes) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # sent to the worker's whole group; this process ends with the worker
    while os.getppid() == worker:
        time.sleep(_POLL_SECONDS)
    deadline, empty_scans = time.monotonic() + _MAX_SECONDS, 0
    while empty_scans < _EMPTY_SCANS and time.monotonic() < deadline:
        empty_scans = 0 if kill_marked(mark) else empty_scans + 1
        time.sleep(_SCAN_SECONDS)


if __name__ == "__main__":
    _main(int(sys.argv[1]), sys.argv[2].encode())
