"""Samples are timed alone after all others, once each, whatever is killed, and never count as the run's samples."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from harness.engine import EngineDied, Generation, Sampling
from harness.engines import scripted
from jobs.finished.grading import finish
from jobs.run import timing as folder
from jobs.run import trace_files
from jobs.run.endings import by_shard, read_endings, read_state
from jobs.run.folder import RunFolder
from jobs.run.timing import TimingFolder, timing_id
from jobs.work.worker import run_parts, run_shard
from tests.jobs.runs import finished_ids, finished_run, plan, planned_ids, slow_worker, texts


def timings(run: RunFolder) -> TimingFolder:
    return folder.TimingFolder(run.path)


def rows(run: RunFolder) -> list[dict[str, Any]]:
    return [row for path in run.trace_files() for row in trace_files.read_rows(path)]


def timed_ids(run: RunFolder) -> list[str]:
    """The ids of all records of timing samples, repeated ones several times."""
    return sorted(read_endings(timings(run)).finished.to_pylist())


def drawn_ids(run: RunFolder) -> list[str]:
    drawn = folder.read_draw(run)
    assert drawn is not None
    return sorted(timing_id(one.sample_id) for one in drawn if one.is_timed)


def test_the_drawn_samples_run_again_one_at_a_time_after_all_others(tmp_path: Path) -> None:
    run, alone = plan(tmp_path / "timed"), plan(tmp_path / "not timed")
    folder.request(run, 6)
    run_shard(str(run.path), 0)
    run_shard(str(alone.path), 0)
    assert timed_ids(run) == drawn_ids(run)
    assert len(drawn_ids(run)) == 6
    ends = sorted((row["started_at"], row["started_at"] + row["latency_seconds"]) for row in rows(timings(run)))
    assert all(earlier[1] <= later[0] + 1e-3 for earlier, later in pairwise(ends)), "never two at a time"
    assert max(row["started_at"] + row["latency_seconds"] for row in rows(run)) <= ends[0][0] + 1e-3
    assert texts(run) == texts(alone), "the samples of the run are what they would be without"
    assert not timings(alone).journal_dir.exists()
    assert not set(timed_ids(run)) & set(planned_ids(run))
    assert read_state(run).finished == set(planned_ids(run))
    assert not {row["seed"] for row in rows(run)} & {row["seed"] for row in rows(timings(run))}


def test_a_finished_run_is_timed_afterwards_and_only_once(tmp_path: Path) -> None:
    run = plan(tmp_path, shards=2)
    run_parts([(str(run.path), [0, 1])])
    folder.request(run, 5)
    ended = by_shard(run, read_endings(run))
    assert (ended.num_unfinished, ended.timing.left, ended.unfinished_shards) == (0, 5, [0])
    run_shard(str(run.path), 0)
    first = timed_ids(run)
    assert by_shard(run, read_endings(run)).unfinished_shards == []
    run_shard(str(run.path), 0)
    assert timed_ids(run) == first == drawn_ids(run)


def test_only_the_worker_that_ends_last_times_samples(tmp_path: Path) -> None:
    run = plan(tmp_path, shards=2)
    folder.request(run, 5)
    run_shard(str(run.path), 0)
    assert timed_ids(run) == []
    assert folder.progress(run).left == 5
    run_shard(str(run.path), 1)
    assert timed_ids(run) == drawn_ids(run)
    assert len(drawn_ids(run)) == 5


def test_a_killed_repeat_is_repeated_and_a_finished_one_is_kept(tmp_path: Path) -> None:
    run = finished_run(tmp_path)
    folder.request(run, 8)
    worker = slow_worker(run)
    deadline = time.monotonic() + 60
    while folder.progress(run).done < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    worker.kill()
    worker.wait()
    kept = folder.finished(run)
    assert 2 <= len(kept) < 8
    finish(run)
    in_files = {row["sample_id"] for row in rows(timings(run))}
    assert in_files == kept, "the warehouse reads trace files alone"
    draw = folder.read_draw(run)
    run_shard(str(run.path), 0)
    assert folder.read_draw(run) == draw
    assert timed_ids(run) == drawn_ids(run), "every one once, those of the killed worker among them"
    assert kept <= set(timed_ids(run))
    assert {row["num_attempts"] for row in rows(timings(run))} == {1}, "none was resumed"


def test_prefix_caches_are_empty_when_the_timing_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = plan(tmp_path)
    folder.request(run, 3)
    resets: list[int] = []
    forget = scripted.ScriptedEngine.reset_prefix_cache

    async def noting(engine: scripted.ScriptedEngine) -> bool:
        resets.append(len(finished_ids(run)))
        return await forget(engine)

    monkeypatch.setattr(scripted.ScriptedEngine, "reset_prefix_cache", noting)
    run_shard(str(run.path), 0)
    assert resets == [24, 24], "once for each engine, after the last sample and before the first that is timed"


@pytest.mark.parametrize("num_restarts", [1, 100])
def test_a_repeat_under_which_an_engine_was_started_again_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_restarts: int
) -> None:
    run = finished_run(tmp_path, method="vanilla")
    folder.request(run, 3)
    calls: list[int] = []
    generate = scripted.ScriptedEngine.generate

    async def restarting(engine: scripted.ScriptedEngine, prompt: Sequence[int], sampling: Sampling) -> Generation:
        calls.append(1)
        engine.restarts += len(calls) <= num_restarts
        return await generate(engine, prompt, sampling)

    monkeypatch.setattr(scripted.ScriptedEngine, "generate", restarting)
    if num_restarts == 100:
        with pytest.RaisesGroup(pytest.RaisesExc(EngineDied, match="each of 3 repeats")):
            run_shard(str(run.path), 0)
        assert timed_ids(run) == []
        monkeypatch.undo()
    run_shard(str(run.path), 0)
    assert timed_ids(run) == drawn_ids(run)
    assert {row["num_attempts"] for row in rows(timings(run))} == {1}
    assert {len(row["calls"]) for row in rows(timings(run))} == {1}, "calls of the first repeat are not among them"
