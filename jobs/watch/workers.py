"""What the workers of running shards are at, by their journals and the logs of their engines."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.run.folder import RunFolder
from jobs.run.submissions import files_of_shards
from jobs.watch import starts
from jobs.watch.turns import begun

if TYPE_CHECKING:
    from jobs.watch.status import ShardStatus

SILENT_SECONDS = 600.0
"""Time without an accepted step after which the status of a worker says so."""
_CLOCK_SECONDS = 2.0
"""Slurm counts a task's time in whole seconds."""


def note_turns(run: RunFolder, shards: Sequence[ShardStatus]) -> None:
    """Note which shards of tasks with several workers wait until one is free, and which have made no step for long."""
    by_task: dict[tuple[str, int], list[ShardStatus]] = {}
    for shard in shards:
        if shard.task and shard.state == "running":
            by_task.setdefault((shard.task.name, shard.task.index), []).append(shard)
    journals, now = run.journals() if by_task else [], time.time()
    for of_task in by_task.values():
        elapsed = max(shard.task.elapsed_seconds for shard in of_task if shard.task)
        written = begun(run, [shard.shard for shard in of_task], journals, now - elapsed - _CLOCK_SECONDS)
        for shard in of_task:
            shard.waits_for_turn = bool(written) and shard.shard not in written
            shard.state = "queued" if shard.waits_for_turn else "running"
            silent = min(elapsed, now - written.get(shard.shard, 0.0))
            shard.silent_seconds = silent if silent >= SILENT_SECONDS and not shard.waits_for_turn else None


def note_starts(run: RunFolder, shards: Sequence[ShardStatus]) -> None:
    """Note what the workers of running shards are at while their engines start.

    Only logs of workers without a journal are read: of a large array that is at work, no log is opened.
    """
    running = [shard for shard in shards if shard.state == "running" and shard.task]
    journals, now = run.journals() if running else [], time.time()
    for shard in running:
        since = now - (shard.task.elapsed_seconds if shard.task else 0.0) - _CLOCK_SECONDS
        if _last_written_at(run, shard, journals) < since:
            shard.starting = starts.phase_of(starts.logs_of(run, shard.shard), since)


def note_silence(run: RunFolder, shards: Sequence[ShardStatus]) -> None:
    """Note which running shards have accepted no step for long, by the times of the journals."""
    long_running = [
        shard
        for shard in shards
        if shard.state == "running" and shard.task and shard.task.elapsed_seconds >= SILENT_SECONDS
    ]
    journals, now = run.journals() if long_running else [], time.time()
    for shard in long_running:
        elapsed = shard.task.elapsed_seconds if shard.task else 0.0
        silent = min(elapsed, now - _last_written_at(run, shard, journals))
        shard.silent_seconds = silent if silent >= SILENT_SECONDS else None


def _last_written_at(run: RunFolder, shard: ShardStatus, journals: Sequence[Path]) -> float:
    """Return when a journal of the shard's samples was last written, in seconds since the epoch; 0 without one."""
    times = [0.0]
    for path in files_of_shards(run, [shard.shard], journals):
        with contextlib.suppress(FileNotFoundError):  # compacted since the listing
            times.append(path.stat().st_mtime)
    return max(times)
