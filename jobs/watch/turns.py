"""Which shards of a running task were begun, where the task has several workers, which take them as they are free."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from jobs.run.endings import started_in_journal
from jobs.run.folder import RunFolder
from jobs.run.submissions import files_of_shards


def begun(run: RunFolder, shards: Sequence[int], journals: Iterable[Path], since: float) -> dict[int, float]:
    """Return when the worker of each of these shards wrote last, for those that were begun.

    Only journals count that were written after `since`, the start of the task. Times are in seconds since the epoch.
    """
    written: dict[int, float] = {}
    units = run.units_by_shard()
    for path in files_of_shards(run, shards, journals):
        with contextlib.suppress(FileNotFoundError):  # compacted since the listing
            modified_at = path.stat().st_mtime
            if modified_at < since:
                continue
            ids = pa.array(started_in_journal(path.read_bytes()), pa.string())
            held = pc.unique(units.filter(pc.is_in(units["sample_id"], value_set=ids))["shard"]).to_pylist()
            written |= {shard: max(modified_at, written.get(shard, 0.0)) for shard in held}
    return written
