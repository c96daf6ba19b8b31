"""A worker that is killed, resumed or started twice: each sample is run exactly once."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.engine import Role, Sampling
from harness.engines import scripted as scripted_engine
from harness.engines.scripted import ScriptedEngine
from harness.engines.settings import EngineSettings
from harness.settings.roles import ModelSettings
from jobs.finished.grading import finish
from jobs.run import trace_files
from jobs.run.endings import compact, read_state
from jobs.run.spec import assign_to_shards
from jobs.work.worker import ShardBusyError, run_shard
from tests.harness.cards import card, put_nvidia_smi
from tests.jobs.runs import finished_ids, finished_run, plan, planned_ids, slow_worker, texts, wait_for_steps


def test_a_finished_run_does_nothing_more(tmp_path: Path) -> None:
    run = finished_run(tmp_path)
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


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The texts of a run, by sample."""
    run = finished_run(tmp_path_factory.mktemp("undisturbed"))
    return texts(run)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_killed_in_the_middle_and_started_again_nothing_is_lost_or_done_twice(
    tmp_path: Path, undisturbed: dict[str, str], number: signal.Signals
) -> None:
    run = plan(tmp_path)
    worker = slow_worker(run)
    wait_for_steps(run, 15)
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
    assert texts(run) == undisturbed, "a resumed sample draws the same steps as an undisturbed one"


def test_two_workers_cannot_share_a_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.work.run_part._LOCK_SECONDS", 0.1)
    run = plan(tmp_path, samples=20)
    worker = slow_worker(run)
    try:
        wait_for_steps(run, 1)
        with pytest.raises(ShardBusyError, match="another process"):
            run_shard(str(run.path), 0)
    finally:
        worker.kill()
        worker.wait()


def test_an_attempt_counts_the_cards_that_its_engines_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_nvidia_smi(tmp_path / "bin", monkeypatch, [card(i, "NVIDIA H100") for i in range(8)])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5,6")
    run = finished_run(tmp_path, settings={"target": ModelSettings(tensor_parallel=2)}, samples=1)
    attempt = json.loads(trace_files.read_metadata(run.trace_files()[0])["attempt"])
    assert (attempt["device"], attempt["num_devices"]) == ("NVIDIA H100", 2)
    assert [gpu["uuid"][:12] for gpu in attempt["hardware"]["gpus"]] == ["GPU-00000003", "GPU-00000005", "GPU-00000006"]


def test_a_sample_that_lived_through_an_engine_restart_is_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its latency holds an engine's start, so views of latency leave it out."""
    run = plan(tmp_path)
    made = scripted_engine.dry_run_engine

    def restarting(role: Role, settings: EngineSettings) -> ScriptedEngine:
        engine = made(role, settings)
        assert isinstance(engine, ScriptedEngine)
        write = engine.write

        def restart_at_the_third_call(prompt: str, sampling: Sampling) -> Sequence[str]:
            engine.restarts = int(len(engine.requests) >= 3)
            return write(prompt, sampling)

        engine.write = restart_at_the_third_call
        return engine

    monkeypatch.setattr(scripted_engine, "dry_run_engine", restarting)
    run_shard(str(run.path), 0)
    [part] = run.trace_files()
    attempts = Counter(row["num_attempts"] for row in trace_files.read_rows(part))
    assert 1 <= attempts[2] <= 8, "those in flight at the restart"
    assert attempts[1] == 24 - attempts[2]
