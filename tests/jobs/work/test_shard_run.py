"""Which samples a worker starts, and what becomes of them where time runs out or an engine dies."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from harness.engine import EngineDied, Role
from harness.engines import scripted as scripted_engine
from harness.engines.scripted import ScriptedEngine
from harness.engines.settings import EngineSettings
from jobs.run import trace_files
from jobs.run.endings import read_endings, read_state
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


def test_an_attempt_records_the_model_runner_of_engines_that_have_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ScriptedEngine, "model_runner", "v1", raising=False)
    run = plan(tmp_path, samples=1)
    worker.run_shard(str(run.path), 0)
    [attempt] = [json.loads(trace_files.read_metadata(path)["attempt"]) for path in run.trace_files()]
    assert {role: attempt["engines"][role]["model_runner"] for role in ("draft", "target")} == {
        "draft": "v1",
        "target": "v1",
    }


def test_with_time_enough_all_samples_are_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_ends_at", lambda: time.time() + 3600)
    run = plan(tmp_path)
    assert worker.run_shard(str(run.path), 0) == 24


def test_an_engine_that_dies_ends_the_worker_and_is_in_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Failed machinery is not a failed sample: what was under way is resumed."""
    make_engine = scripted_engine.dry_run_engine

    def mortal(role: Role, settings: EngineSettings) -> ScriptedEngine:
        engine = make_engine(role, settings)
        assert isinstance(engine, ScriptedEngine)
        write = engine.write

        def write_until_death(prompt: str, sampling: object) -> object:
            if len(engine.requests) > 40:
                raise EngineDied("out of memory")
            return write(prompt, sampling)  # type: ignore[arg-type]

        engine.write = write_until_death  # type: ignore[assignment]
        return engine

    monkeypatch.setattr(scripted_engine, "dry_run_engine", mortal)
    run = plan(tmp_path)
    with pytest.raises(BaseExceptionGroup) as raised:
        worker.run_shard(str(run.path), 0)
    assert raised.group_contains(EngineDied)
    assert len(read_endings(run).failed) == 0
    monkeypatch.undo()
    worker.run_shard(str(run.path), 0)
    assert finished_ids(run) == planned_ids(run)
