"""The state of a run while its journals are compacted into trace files, some of them damaged."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from socket import gethostname
from typing import Any

import pytest

from jobs.run import trace_files
from jobs.run.endings import compact, compact_own, read_state
from jobs.run.folder import RunFolder
from jobs.run.journal import JournalWriter, read_journal
from jobs.run.spec import Attempt
from jobs.work.worker import run_shard
from tests.jobs.runs import finished_ids, finished_run, plan, planned_ids, slow_worker


def test_compacting_beside_a_running_worker_takes_nothing_from_it(tmp_path: Path) -> None:
    run = plan(tmp_path)
    worker = slow_worker(run)
    while worker.poll() is None:
        compact(run)
        time.sleep(0.05)
    assert worker.returncode == 0
    compact(run)
    assert finished_ids(run) == planned_ids(run)
    assert run.journals() == []


def test_a_worker_that_ends_during_a_compaction_loses_nothing_to_the_older_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compaction reads the journal, the worker finishes and compacts it, and the compaction writes what it read."""
    run = plan(tmp_path)
    started, proceed = threading.Event(), threading.Event()
    write = trace_files.write_table

    def write_late(path: Path, schema: Any, rows: Any, metadata: Any = None) -> None:
        if threading.current_thread() is not threading.main_thread():
            started.set()
            proceed.wait(60)
        write(path, schema, rows, metadata)

    run_shard_without_compaction(run, monkeypatch)
    [journal] = run.journals()
    whole = journal.read_bytes()
    journal.write_bytes(whole[: whole.index(b"\n", 2 * len(whole) // 3) + 1])
    monkeypatch.setattr("jobs.run.endings.trace_files.write_table", write_late)
    with ThreadPoolExecutor(1) as pool:
        compaction = pool.submit(compact, run)
        assert started.wait(60)
        journal.write_bytes(whole)
        compact_own(run, journal)
        proceed.set()
        compaction.result()
    assert sorted(read_state(run).finished) == planned_ids(run)
    compact(run)
    assert run.journals() == []
    assert finished_ids(run) == planned_ids(run)


def run_shard_without_compaction(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("jobs.run.endings.compact_own", lambda run, path: None)
        run_shard(str(run.path), 0)


@pytest.mark.usefixtures("journals_stay")
def test_compactions_and_readers_at_once_agree(tmp_path: Path) -> None:
    """Whoever reads while journals become trace files sees every finished sample all the time."""
    run = finished_run(tmp_path, samples=8, shards=4)
    with ThreadPoolExecutor(6) as pool:
        compacted = [pool.submit(compact, run) for _ in range(3)]
        states = [pool.submit(read_state, run) for _ in range(20)]
        assert sum(job.result() for job in compacted) == 64, "each sample was written by one of them"
        assert all(len(state.result().finished) == 64 for state in states)
    assert finished_ids(run) == planned_ids(run)


def test_an_attempt_that_finished_nothing_leaves_nothing_behind(tmp_path: Path) -> None:
    run = plan(tmp_path)
    JournalWriter(run.journal_dir / "a.jsonl", Attempt("a", run.path.name, 0, gethostname(), 1, 0.0, None)).close()
    assert compact(run) == 0
    assert list(run.journal_dir.iterdir()) == []


@pytest.mark.usefixtures("journals_stay")
def test_a_sample_that_two_attempts_finished_counts_once(tmp_path: Path) -> None:
    run = finished_run(tmp_path)
    second = Attempt("29990101-second", run.path.name, 0, "host", 1, 0.0, None)
    writer = JournalWriter(run.journal_dir / "29990101-second.jsonl", second)
    for trace in read_journal(run.journals()[0]).finished.values():
        writer.start(replace(trace, stop_reason=None))
        writer.end(trace)
    writer.close()
    compact(run)
    assert len(run.trace_files()) == 2
    assert finished_ids(run) == planned_ids(run)
