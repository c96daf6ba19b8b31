"""A run from plan to grades with scripted engines: killed, resumed, run twice, and always each sample exactly once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from harness.engine import Role, Sampling
from harness.engines import factory
from harness.engines.scripted import ScriptedEngine
from harness.engines.settings import EngineSettings
from harness.trace import Trace
from jobs.after.grading import finish, finished_samples
from jobs.run import trace_files
from jobs.run.endings import by_shard, read_endings
from jobs.run.folder import RunBusyError, RunFolder
from jobs.run.journal import JournalWriter
from jobs.run.shards import assign_to_shards
from jobs.run.spec import Attempt
from jobs.run.state import compact, read_state
from jobs.watch.progress import Follower
from jobs.watch.show import progress_line
from jobs.work.worker import ShardBusyError, run_shard
from tests.jobs.runs import ENGINES, plan, planned_ids


def finished_ids(run: RunFolder) -> list[str]:
    return sorted(sample["sample_id"] for sample in finished_samples(run))


@pytest.fixture
def journals_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a worker was killed at its very end: nothing has become a trace file yet."""
    monkeypatch.setattr("jobs.run.state.compact_own", lambda run, path: None)


def texts(run: RunFolder) -> dict[str, str]:
    return {sample["sample_id"]: sample["text"] for sample in finished_samples(run)}


def test_a_run_ends_with_every_planned_sample_graded_once(tmp_path: Path) -> None:
    run = plan(tmp_path, shards=2)
    assert sum(run_shard(str(run.path), shard) for shard in (0, 1)) == 24
    assert finish(run) == 24
    assert finished_ids(run) == planned_ids(run)
    [grades] = run.grades_dir.glob("*.parquet")
    assert sorted(row["sample_id"] for row in trace_files.read_rows(grades)) == planned_ids(run)


def test_engines_that_take_turns_write_the_same_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(factory.SCRIPTED_SECONDS, "0.002")
    freely, in_turn = plan(tmp_path), plan(tmp_path, engine=replace(ENGINES, take_turns=True))
    assert freely.path != in_turn.path, "another run: its times mean something else"
    for run in (freely, in_turn):
        run_shard(str(run.path), 0)
        compact(run)
    assert texts(freely) == texts(in_turn)
    spans = sorted(
        (call["submitted_at"] + call["queued_seconds"], call["submitted_at"] + call["end_seconds"], call["model"])
        for part in in_turn.trace_files()
        for row in trace_files.read_rows(part)
        for call in row["calls"]
    )
    together = [
        (mine, other)
        for i, (_, end, mine) in enumerate(spans)
        for begin, _, other in spans[i + 1 :]
        if begin < end - 0.001
    ]
    assert ("draft", "draft") in together, "samples still share an engine"
    assert {(mine, other) for mine, other in together if mine != other} == set()


def test_a_trace_file_holds_what_the_models_were_shown_and_when(tmp_path: Path) -> None:
    run = plan(tmp_path)
    run_shard(str(run.path), 0)
    compact(run)
    texts_of = {problem.id: problem.text for problem in run.problems()}
    for part in run.trace_files():
        for row in trace_files.read_rows(part):
            for role in ("draft", "target"):
                assert texts_of[row["problem_id"]] in row[f"{role}_prompt"]
            assert abs(row["started_at"] - time.time()) < 60


def test_a_worker_leaves_a_trace_file_and_no_journal(tmp_path: Path) -> None:
    run = plan(tmp_path)
    run_shard(str(run.path), 0)
    assert list(run.journal_dir.iterdir()) == []
    assert len(run.trace_files()) == 1
    assert finished_ids(run) == planned_ids(run)


def test_a_damaged_trace_file_costs_its_samples_and_nothing_else(tmp_path: Path) -> None:
    run = plan(tmp_path, shards=2)
    for shard in (0, 1):
        run_shard(str(run.path), shard)
    damaged = run.trace_files()[0]
    damaged.write_bytes(damaged.read_bytes()[:-100])
    assert by_shard(run, read_endings(run)).num_unfinished == 12
    assert len(finished_ids(run)) == 12
    for shard in (0, 1):
        run_shard(str(run.path), shard)
    assert finish(run) == 24
    assert finished_ids(run) == planned_ids(run)


def test_a_finished_run_does_nothing_more(tmp_path: Path) -> None:
    run = plan(tmp_path)
    run_shard(str(run.path), 0)
    finish(run)
    files = sorted(p for p in run.path.rglob("*") if p.is_file())
    assert run_shard(str(run.path), 0) == 0
    assert finish(run) == 0
    assert sorted(p for p in run.path.rglob("*") if p.is_file()) == files


def test_the_number_of_shards_may_change_between_attempts(tmp_path: Path) -> None:
    run = plan(tmp_path, shards=3)
    run_shard(str(run.path), 1)
    run.assign_again(assign_to_shards([unit for shard in run.shards() for unit in shard], 2))
    for shard in (0, 1):
        run_shard(str(run.path), shard)
    compact(run)
    assert finished_ids(run) == planned_ids(run)


_KILLED_WORKER = """
import sys
from harness.engines import factory, scripted, simulated_model
from jobs.work.worker import run_shard
slow = factory._scripted
def slowly(role, settings):
    engine = slow(role, settings)
    engine.seconds_per_call = 0.02
    return engine
factory._scripted = slowly
run_shard(sys.argv[1], 0)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_killed_in_the_middle_and_started_again_nothing_is_lost_or_done_twice(
    tmp_path: Path, number: signal.Signals
) -> None:
    undisturbed = plan(tmp_path / "undisturbed")
    run_shard(str(undisturbed.path), 0)
    compact(undisturbed)

    run = plan(tmp_path / "killed")
    worker = subprocess.Popen([sys.executable, "-c", _KILLED_WORKER, str(run.path)], stderr=subprocess.DEVNULL)
    _wait_for_steps(run, 15)
    os.kill(worker.pid, number)
    worker.wait(timeout=30)
    before = read_state(run)
    assert before.unfinished, "the kill came in the middle of samples"
    kept = {sample_id: len(trace.steps) for sample_id, trace in before.unfinished.items()}

    run_shard(str(run.path), 0)
    compact(run)
    finished = {row["sample_id"]: row for part in run.trace_files() for row in trace_files.read_rows(part)}
    for sample_id, steps in kept.items():
        assert finished[sample_id]["num_attempts"] == (2 if steps else 1)
        assert len(finished[sample_id]["steps"]) >= steps
    assert Counter(finished_ids(run)) == Counter(planned_ids(run))
    assert list(run.journal_dir.iterdir()) == [], "the first attempt's journal is of no more use"
    assert texts(run) == texts(undisturbed), "a resumed sample draws the same steps as an undisturbed one"


def test_two_workers_cannot_share_a_shard(tmp_path: Path) -> None:
    run = plan(tmp_path, samples=60)  # work for longer than a launch waits
    worker = subprocess.Popen([sys.executable, "-c", _KILLED_WORKER, str(run.path)], stderr=subprocess.DEVNULL)
    try:
        _wait_for_steps(run, 1)
        with pytest.raises(ShardBusyError, match="another process"):
            run_shard(str(run.path), 0)
    finally:
        worker.kill()
        worker.wait()


def test_compacting_beside_a_running_worker_takes_nothing_from_it(tmp_path: Path) -> None:
    run = plan(tmp_path)
    worker = subprocess.Popen([sys.executable, "-c", _KILLED_WORKER, str(run.path)], stderr=subprocess.DEVNULL)
    while worker.poll() is None:
        compact(run)
        time.sleep(0.05)
    assert worker.returncode == 0
    compact(run)
    assert finished_ids(run) == planned_ids(run)
    assert run.journals() == []


@pytest.mark.usefixtures("journals_stay")
def test_compactions_and_readers_at_once_agree(tmp_path: Path) -> None:
    """Whoever reads while journals become trace files sees every finished sample all the time."""
    run = plan(tmp_path, samples=8, shards=4)
    for shard in range(4):
        run_shard(str(run.path), shard)
    with ThreadPoolExecutor(6) as pool:
        compacted = [pool.submit(compact, run) for _ in range(3)]
        states = [pool.submit(read_state, run) for _ in range(20)]
        assert sum(job.result() for job in compacted) == 64, "each sample was written by one of them"
        assert all(len(state.result().finished) == 64 for state in states)
    assert finished_ids(run) == planned_ids(run)


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


def test_a_sample_that_lived_through_an_engine_restart_is_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its latency holds an engine's start, so views of latency leave it out."""
    run = plan(tmp_path)
    made = factory._scripted

    def restarting(role: Role, settings: EngineSettings) -> ScriptedEngine:
        engine = made(role, settings)
        assert isinstance(engine, ScriptedEngine)
        write = engine.write

        def restart_at_the_third_call(prompt: str, sampling: Sampling) -> Sequence[str]:
            engine.restarts = int(engine.counters.calls >= 3)
            return write(prompt, sampling)

        engine.write = restart_at_the_third_call
        return engine

    monkeypatch.setattr(factory, "_scripted", restarting)
    run_shard(str(run.path), 0)
    [part] = run.trace_files()
    attempts = Counter(row["num_attempts"] for row in trace_files.read_rows(part))
    assert 1 <= attempts[2] <= 8, "those in flight at the restart"
    assert attempts[1] == 24 - attempts[2]


def test_an_attempt_that_finished_nothing_leaves_nothing_behind(tmp_path: Path) -> None:
    run = plan(tmp_path)
    JournalWriter(run.journal_dir / "a.jsonl", Attempt("a", run.path.name, 0, "host", 1, 0.0, None)).close()
    assert compact(run) == 0
    assert list(run.journal_dir.iterdir()) == []


@pytest.mark.usefixtures("journals_stay")
def test_a_sample_that_two_attempts_finished_counts_once(tmp_path: Path) -> None:
    run = plan(tmp_path)
    run_shard(str(run.path), 0)
    [journal] = run.journals()
    journal.with_name("29990101-second.jsonl").write_bytes(journal.read_bytes())
    compact(run)
    assert len(run.trace_files()) == 2
    assert finished_ids(run) == planned_ids(run)


@pytest.mark.usefixtures("journals_stay")
def test_progress_counts_as_done_before_what_the_journals_hold(tmp_path: Path) -> None:
    run = plan(tmp_path)
    run_shard(str(run.path), 0)
    follower = Follower(run)
    assert len(follower.progress.ended) == follower._done_before == 24


@pytest.mark.usefixtures("journals_stay")
def test_progress_follows_the_journal_and_ends_complete(tmp_path: Path) -> None:
    run = plan(tmp_path)
    follower = Follower(run)
    assert follower.poll().total == 24
    assert progress_line(follower.progress) == "0/24 samples · 0 steps · engines are starting"
    journal = JournalWriter(run.journal_dir / "0.jsonl", Attempt("0", run.path.name, 0, "host", 1, 0.0, None))
    journal.start(Trace(planned_ids(run)[0], "demo/0", 0, seed=1))
    journal.close()
    assert progress_line(follower.poll()) == "0/24 samples · 0 steps · 1 in flight"
    run_shard(str(run.path), 0)
    progress = follower.poll()
    assert len(progress.ended) == 24
    assert progress.judged > 0
    assert progress.acceptance is not None
    assert progress.tokens["draft"] > 0
    assert by_shard(run, read_endings(run)).num_unfinished == 0


def test_a_sample_keeps_its_identity_whatever_the_plan(tmp_path: Path) -> None:
    few, many = plan(tmp_path / "few", samples=1), plan(tmp_path / "many", samples=3, shards=4)
    assert set(planned_ids(few)) < set(planned_ids(many))
    assert len(set(planned_ids(many))) == 24


def _wait_for_steps(run: RunFolder, steps: int) -> None:
    follower = Follower(run)
    deadline = time.monotonic() + 60
    while follower.poll().steps < steps:
        assert time.monotonic() < deadline, "the worker made no progress"
        time.sleep(0.02)


def test_a_run_that_looks_ahead_draws_the_same_samples_in_a_folder_of_its_own(tmp_path: Path) -> None:
    without, ahead = (plan(tmp_path, method="specreason", lookahead=chosen) for chosen in (False, True))
    assert without.path != ahead.path
    assert planned_ids(without) == planned_ids(ahead)
    for run in (without, ahead):
        run_shard(str(run.path), 0)
    assert texts(without) == texts(ahead)
    purposes = [
        Counter(c["purpose"] for part in run.trace_files() for r in trace_files.read_rows(part) for c in r["calls"])
        for run in (without, ahead)
    ]
    assert purposes[1].pop("lookahead") > 0
    assert purposes[0] == purposes[1]


def test_a_run_from_before_a_parameter_of_speed_keeps_its_name(tmp_path: Path) -> None:
    spec = plan(tmp_path, method="specreason").spec()
    older = replace(spec, params={name: value for name, value in spec.params.items() if name != "lookahead"})
    assert spec.params["lookahead"] is False
    assert older.run_id == spec.run_id
