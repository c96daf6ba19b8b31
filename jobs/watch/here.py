"""Workers of a run on this machine, which Slurm does not know: those that are alive hold the locks of its shards."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING

from jobs.run import locks
from jobs.run.folder import RunFolder
from jobs.run.journal import read_journal
from jobs.watch import reasons, starts

if TYPE_CHECKING:
    from jobs.watch.status import RunStatus


def add_workers(run: RunFolder, result: RunStatus) -> None:
    """Add what workers on this machine have locked, and what ended others; which of them had which shard is lost."""
    paths = {shard.shard: run.shard_lock_path(shard.shard) for shard in result.shards}
    # This machine lists only its own locks, so what a worker elsewhere holds cannot be told.
    held, are_listed = locks.held_here(paths.values()), locks.are_listed() and not _has_journals_of_others(run)
    for shard in result.shards:
        is_held = paths[shard.shard] in held
        shard.has_worker = is_held if are_listed else None
        if is_held and shard.num_unfinished:
            shard.state, shard.starting = "running", starts.phase_of(starts.logs_of(run, shard.shard), 0.0)
    if are_listed and not held:
        result.how_to_resume = _how_to_resume(run, result)
    stopped = [shard for shard in result.shards if shard.state == "stopped"]
    error, log = reasons.local_error(run) if stopped else ("", None)
    for shard in stopped:
        shard.last_error, shard.log = error, str(log or "")


def _has_journals_of_others(run: RunFolder) -> bool:
    """Return whether a worker of another machine has written a journal that is not compacted yet."""
    for path in run.journals():
        with contextlib.suppress(FileNotFoundError):  # compacted since the listing
            if (read_journal(path).attempt or {}).get("hostname", socket.gethostname()) != socket.gethostname():
                return True
    return False


def _how_to_resume(run: RunFolder, result: RunStatus) -> str:
    """Return the line on a run that no worker of this machine has; empty where it is done, or was not begun."""
    is_begun = bool(result.finished or run.journals())
    if not is_begun or result.is_finished or result.is_timing:
        return ""
    return (
        "no worker on this machine is at work on it; unless a launch or suite with it is still running, to resume it, "
        "run its launch command again"
    )
