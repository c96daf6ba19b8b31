"""Why a worker on this machine failed, in one line, when its launcher sees it end."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from jobs.run.folder import RunFolder
from jobs.watch import starts
from jobs.watch.reasons import last_exception

_MIN_FREE_BYTES = 4 << 20


class WorkerKilled(RuntimeError):
    """A worker ended without a word; never raised, but written to its log by the process that saw it end."""


def full_disk(free_bytes: int) -> str:
    """Return what a full disk is too small for; empty where it is not full."""
    if free_bytes >= _MIN_FREE_BYTES:
        return ""
    return f"{free_bytes >> 10} KiB free, too little for journals, logs and results"


def explained(run: RunFolder, error: BaseException, log: Path) -> str:
    """Return why a worker failed, given what submitit raised for it, and the path of its log.

    A worker that was killed has written nothing. What is known of its end is added to its log, for `jobs status`.
    """
    if reason := reason_of(str(error)):
        return f"{reason}. Log: {log}"
    if full := full_disk(shutil.disk_usage(run.path).free):
        return f"the disk is full: {full}. Run folder: {run.path}"
    phases = starts.in_words(starts.broken_off(run))
    reason = f"ended without an error message{f' ({phases})' if phases else ''}: killed, canceled or out of memory"
    with contextlib.suppress(OSError), log.open("a", encoding="utf-8") as file:
        file.write(f"{WorkerKilled.__module__}.{WorkerKilled.__qualname__}: {reason}\n")
    return f"{reason} (dmesg may say more). Log: {log}"


def reason_of(traceback: str) -> str:
    """Return the exception that a traceback names last, without the frames and groups around it; empty without one.

    Of an exception of this project that is the message, of others class, message and place.
    """
    exception = last_exception(traceback.splitlines())
    if exception is None:
        return ""
    return exception.message if exception.is_ours and exception.message else str(exception)
