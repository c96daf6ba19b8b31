"""Which samples a worker starts, and what becomes of them where time runs out or an engine dies."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from jobs.run.endings import read_state
from jobs.work import worker
from tests.jobs.runs import finished_ids, plan, planned_ids


def test_no_sample_is_started_that_would_not_end_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_ends_at", time.time)
    run = plan(tmp_path)
    with pytest.raises(worker.Unfinished, match="not a Slurm job"):
        worker.run_shard(str(run.path), 0)
    state = read_state(run)
    assert 1 <= len(state.finished) < 24, "until a sample has ended nobody knows how long one takes"
    assert state.unfinished == {}, "what began has ended"
    monkeypatch.undo()
    worker.run_shard(str(run.path), 0)
    assert finished_ids(run) == planned_ids(run)
