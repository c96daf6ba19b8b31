"""Progress is read from the journals as they grow."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from harness.trace import Trace
from jobs.run.endings import by_shard, read_endings
from jobs.run.journal import JournalWriter
from jobs.run.spec import Attempt
from jobs.watch.follow import Follower
from jobs.work.worker import run_shard
from tests.jobs.runs import plan, planned_ids


@pytest.mark.usefixtures("journals_stay")
def test_progress_follows_the_journal_and_ends_complete(tmp_path: Path) -> None:
    run = plan(tmp_path)
    follower = Follower(run)
    assert follower.poll().total == 24
    journal = JournalWriter(run.journal_dir / "0.jsonl", Attempt("0", run.path.name, 0, "host", 1, 0.0, None))
    journal.start(Trace(planned_ids(run)[0], "demo/0", 0, seed=1))
    journal.close()
    assert follower.poll().line.endswith("· 1 in flight")
    run_shard(str(run.path), 0)
    progress = follower.poll()
    assert len(progress.ended) == 24
    assert progress.pace.rates(time.time())[0]["draft"] > 0
    assert by_shard(run, read_endings(run)).num_unfinished == 0
