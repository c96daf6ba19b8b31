"""Failed samples are retried a bounded number of times; each counts once, also while journals are compacted."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from socket import gethostname
from typing import Any

import orjson
import pytest

from harness.engine import Role
from harness.engines import scripted as scripted_engine
from harness.engines.scripted import ScriptedEngine
from harness.engines.settings import EngineSettings
from harness.problems import benchmarks
from jobs.finished.grading import finish, finished_samples
from jobs.run import retries, trace_files
from jobs.run.endings import by_shard, compact, compact_own, num_unfinished, read_endings, read_state
from jobs.run.files import with_checksum
from jobs.run.folder import RunFolder
from jobs.run.journal import JournalWriter, read_journal
from jobs.run.spec import Attempt
from jobs.work.worker import run_shard
from tests.jobs.runs import finished_ids, finished_run, plan, planned_ids, slow_worker
from warehouse.loading.runs import load_run

FIRST = benchmarks.load("demo")[0].text


def granted(run: RunFolder, at_most: int) -> tuple[int, int]:
    """How many failed samples are retried, and how many are out of retries."""
    failed = read_endings(run).failed.to_pylist()
    retried = retries.grant(run, failed, at_most)
    return len(retried), len(failed) - len(retried)


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """While `on`, the engines' context is too small for the first problem: its samples fail."""
    made, switch = scripted_engine.dry_run_engine, {"on": True}

    def starting(role: Role, settings: EngineSettings) -> ScriptedEngine:
        engine = made(role, settings)
        assert isinstance(engine, ScriptedEngine)
        refused = engine._admit

        def admit(request: str, prompt: list[int], tokens: int) -> None:
            refused(request, prompt, 0 if switch["on"] and FIRST in engine.tokenizer.decode(prompt) else tokens)

        monkeypatch.setattr(engine, "_admit", admit)
        return engine

    monkeypatch.setattr(scripted_engine, "dry_run_engine", starting)
    return switch


@pytest.fixture
def failed_run(tmp_path: Path, narrow: dict[str, bool]) -> RunFolder:
    """Three of 24 samples failed, those of the first problem."""
    run = finished_run(tmp_path / "runs")
    assert finish(run) == 24
    return run


def verdicts(run: RunFolder) -> list[str]:
    [grades] = run.derived("grades")
    return [row["verdict"] for row in trace_files.read_rows(grades)]


def test_a_failed_sample_that_succeeds_on_its_second_try_counts_once(
    failed_run: RunFolder, narrow: dict[str, bool]
) -> None:
    database = failed_run.path.parent / "warehouse.duckdb"
    assert verdicts(failed_run).count("error") == 3
    load_run(failed_run, database)
    assert granted(failed_run, 2) == (3, 0)
    assert granted(failed_run, 2) == (0, 0), "nobody is granted two tries at once"
    assert num_unfinished(failed_run) == 3
    narrow["on"] = False
    assert run_shard(str(failed_run.path), 0) == 3
    assert finish(failed_run) == 3, "only retried samples are graded again"
    assert sorted(s["sample_id"] for s, _ in finished_samples(failed_run)) == planned_ids(failed_run)
    assert "error" not in verdicts(failed_run)
    assert len(read_endings(failed_run).failed) == 0
    report = load_run(failed_run, database)
    assert (report.num_finished, report.num_graded, report.num_duplicates) == (24, 24, 0)
    assert finish(failed_run) == 0


def test_tries_are_bounded(failed_run: RunFolder) -> None:
    for expected in ((3, 0), (3, 0), (0, 3)):
        assert granted(failed_run, 2) == expected
        assert run_shard(str(failed_run.path), 0) == expected[0]
        finish(failed_run)
    ended = by_shard(failed_run, read_endings(failed_run))
    assert (ended.finished, ended.failed, ended.num_unfinished) == ([24], [3], 0)
    assert len(list(finished_samples(failed_run))) == 24


def test_the_journal_of_a_try_that_was_killed_is_kept(failed_run: RunFolder, narrow: dict[str, bool]) -> None:
    granted(failed_run, 1)
    narrow["on"] = False
    run_shard(str(failed_run.path), 0)
    part = failed_run.trace_files()[-1]
    journal = failed_run.journal_dir / f"{part.stem}.jsonl"
    [attempt] = [trace_files.read_metadata(part)["attempt"]]
    begun = {**trace_files.read_rows(part)[0], "steps": [], "calls": [], "stop_reason": None, "latency_seconds": 0.0}
    lines = (
        b'{"event":"attempt","format":3,%b' % attempt[1:].encode(),
        b'{"event":"start","trace":%b}' % orjson.dumps(begun),
    )
    journal.write_bytes(b"".join(with_checksum(line, journal.stem) for line in lines))
    part.unlink()  # as if it had been killed before any of them ended
    compact(failed_run)
    assert journal.exists()
    assert len(read_state(failed_run).unfinished) == 1


def test_a_torn_grant_grants_nothing(failed_run: RunFolder) -> None:
    with failed_run.events_path.open("ab") as out:
        out.write(b'{"format":3,"event":"retries","at":1.0,"sam')
    assert num_unfinished(failed_run) == 0
    assert granted(failed_run, 1) == (3, 0)
    assert num_unfinished(failed_run) == 3


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

    with monkeypatch.context() as patched:
        patched.setattr("jobs.run.endings.compact_own", lambda run, path: None)
        run_shard(str(run.path), 0)
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
