"""Workers of a run that Slurm does not know: those that are alive hold the locks of its shards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobs.run import locks
from jobs.run.folder import RunFolder
from jobs.watch import reasons, starts

if TYPE_CHECKING:
    from jobs.watch.status import RunStatus


def add_workers(run: RunFolder, result: RunStatus) -> None:
    """Add what workers have locked, and what ended others; which of them had which shard is lost."""
    for shard in result.shards:
        shard.has_worker = locks.is_held(run.shard_lock_path(shard.shard))
        if shard.has_worker and shard.num_unfinished:
            shard.state, shard.starting = "running", starts.phase_of(starts.logs_of(run, shard.shard), 0.0)
    if all(shard.has_worker is False for shard in result.shards):
        result.how_to_resume = _how_to_resume(run, result)
    stopped = [shard for shard in result.shards if shard.state == "stopped"]
    error, log = reasons.local_error(run) if stopped else ("", None)
    for shard in stopped:
        shard.last_error, shard.log = error, str(log or "")


def _how_to_resume(run: RunFolder, result: RunStatus) -> str:
    """Return the line on a run that no worker has; empty where it is done, or was not begun."""
    is_begun = bool(result.finished or run.journals())
    if not is_begun or result.is_finished or result.is_timing:
        return ""
    return (
        "no worker is at work on it; unless a launch or suite with it is still running, to resume it, "
        "run its launch command again"
    )
