"""A worker that is killed, resumed, started twice or out of time: each sample is run once, as it was asked for."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from harness.engine import Role, Sampling
from harness.engines import scripted
from harness.engines import scripted as scripted_engine
from harness.engines.scripted import ScriptedEngine
from harness.engines.settings import EngineSettings
from harness.settings.roles import ModelSettings
from jobs.finished.grading import finish
from jobs.run.endings import compact, read_state
from jobs.run.spec import assign_to_shards
from jobs.work import worker
from jobs.work.worker import run_shard
from tests.harness.cards import card, put_nvidia_smi
from tests.jobs.runs import (
    ENGINES,
    attempts,
    finished_ids,
    finished_run,
    plan,
    planned_ids,
    slow_worker,
    texts,
    trace_rows,
    wait_for_steps,
)


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
    finished = {row["sample_id"]: row for row in trace_rows(run)}
    for sample_id, steps in kept.items():
        assert finished[sample_id]["num_attempts"] == (2 if steps else 1)
        assert len(finished[sample_id]["steps"]) >= steps
    assert Counter(finished_ids(run)) == Counter(planned_ids(run))
    assert list(run.journal_dir.iterdir()) == [], "the first attempt's journal is of no more use"
    assert texts(run) == undisturbed, "a resumed sample draws the same steps as an undisturbed one"


def test_an_attempt_counts_the_cards_that_its_engines_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_nvidia_smi(tmp_path / "bin", monkeypatch, [card(i, "NVIDIA H100") for i in range(8)])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5,6")
    run = finished_run(tmp_path, settings={"target": ModelSettings(tensor_parallel=2)}, samples=1)
    [attempt] = attempts(run)
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
    found = Counter(row["num_attempts"] for row in trace_rows(run))
    assert 1 <= found[2] <= 8, "those in flight at the restart"
    assert found[1] == 24 - found[2]


def test_no_sample_is_started_that_would_not_end_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_ends_at", time.time)
    run = plan(tmp_path)
    with pytest.raises(worker.Unfinished, match="not a Slurm job"):
        run_shard(str(run.path), 0)
    state = read_state(run)
    assert 1 <= len(state.finished) < 24, "until a sample has ended nobody knows how long one takes"
    assert state.unfinished == {}, "what began has ended"
    monkeypatch.undo()
    run_shard(str(run.path), 0)
    assert finished_ids(run) == planned_ids(run)


def test_engines_that_take_turns_write_the_same_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(scripted.SCRIPTED_SECONDS, "0.002")
    freely, in_turn = plan(tmp_path), plan(tmp_path, engine=replace(ENGINES, take_turns=True))
    assert freely.path != in_turn.path, "another run: its times mean something else"
    for run in (freely, in_turn):
        run_shard(str(run.path), 0)
    assert texts(freely) == texts(in_turn)
    spans = sorted(
        (call["submitted_at"] + call["queued_seconds"], call["submitted_at"] + call["end_seconds"], call["model"])
        for row in trace_rows(in_turn)
        for call in row["calls"]
    )
    pairs = [(one, other) for number, one in enumerate(spans) for other in spans[number + 1 :]]
    together = [(mine, other) for (_, end, mine), (begin, _, other) in pairs if begin < end - 0.001]
    assert ("draft", "draft") in together, "samples still share an engine"
    assert {(mine, other) for mine, other in together if mine != other} == set()


def test_a_run_that_looks_ahead_draws_the_same_samples_in_a_folder_of_its_own(tmp_path: Path) -> None:
    without, ahead = (plan(tmp_path, method="specreason", lookahead=chosen) for chosen in (False, True))
    assert without.path != ahead.path
    assert planned_ids(without) == planned_ids(ahead)
    for run in (without, ahead):
        run_shard(str(run.path), 0)
    assert texts(without) == texts(ahead)
    purposes = [Counter(c["purpose"] for row in trace_rows(run) for c in row["calls"]) for run in (without, ahead)]
    assert purposes[1].pop("lookahead") > 0
    assert purposes[0] == purposes[1]


def test_a_run_from_before_a_parameter_of_speed_keeps_its_name(tmp_path: Path) -> None:
    spec = plan(tmp_path, method="specreason").spec()
    older = replace(spec, params={name: value for name, value in spec.params.items() if name != "lookahead"})
    assert spec.params["lookahead"] is False
    assert older.run_id == spec.run_id


def test_log_probabilities_are_null_unless_they_are_asked_for_and_change_no_text(tmp_path: Path) -> None:
    seen = {}
    for logprobs in (None, True):
        run = finished_run(tmp_path, engine=replace(ENGINES, logprobs=logprobs))
        candidates = [one for row in trace_rows(run) for step in row["steps"] for one in step["candidates"]]
        assert candidates
        assert all((one["mean_logprob"] is not None) == bool(logprobs) for one in candidates)
        seen[logprobs] = texts(run)
    assert seen[None] == seen[True]
