"""The plan of a run folder, and which changes of it are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.run.folder import RunBusyError
from jobs.run.shards import assign_to_shards
from jobs.work.worker import run_shard
from tests.jobs.runs import plan


def test_the_shards_of_a_run_with_workers_are_not_assigned_again(tmp_path: Path) -> None:
    run = plan(tmp_path, shards=2)
    before = run.shards()
    fewer = assign_to_shards([unit for shard in before for unit in shard], 1)
    with run.shard_lock(1), pytest.raises(RunBusyError, match="--shards 1: workers are running"):
        run.assign_again(fewer)
    assert run.shards() == before
    run.assign_again(fewer)
    assert run.shards() == fewer
    with pytest.raises(ValueError, match="no shard 1: its samples were assigned again"):
        run_shard(str(run.path), 1)
