"""Samples are timed alone after all others, once each, whatever is killed, and never count as the run's samples."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from harness.engine import EngineDied, Generation, Sampling
from harness.engines import scripted
from jobs.finished.grading import finish
from jobs.run import timing as folder
from jobs.run.endings import by_shard, read_endings, read_state
from jobs.run.folder import RunFolder
from jobs.run.timing import Drawn, Ended, TimingFolder, draw, timing_id
from jobs.work.worker import run_parts, run_shard
from tests.jobs.runs import finished_ids, finished_run, launched, plan, planned_ids, slow_worker, texts, trace_rows


def timings(run: RunFolder) -> TimingFolder:
    return folder.TimingFolder(run.path)


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
    ends = sorted((row["started_at"], row["started_at"] + row["latency_seconds"]) for row in trace_rows(timings(run)))
    assert all(earlier[1] <= later[0] + 1e-3 for earlier, later in pairwise(ends)), "never two at a time"
    assert max(row["started_at"] + row["latency_seconds"] for row in trace_rows(run)) <= ends[0][0] + 1e-3
    assert texts(run) == texts(alone), "the samples of the run are what they would be without"
    assert not timings(alone).journal_dir.exists()
    assert not set(timed_ids(run)) & set(planned_ids(run))
    assert read_state(run).finished == set(planned_ids(run))
    assert not {row["seed"] for row in trace_rows(run)} & {row["seed"] for row in trace_rows(timings(run))}


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
    in_files = {row["sample_id"] for row in trace_rows(timings(run))}
    assert in_files == kept, "the warehouse reads trace files alone"
    draw = folder.read_draw(run)
    run_shard(str(run.path), 0)
    assert folder.read_draw(run) == draw
    assert timed_ids(run) == drawn_ids(run), "every one once, those of the killed worker among them"
    assert kept <= set(timed_ids(run))
    assert {row["num_attempts"] for row in trace_rows(timings(run))} == {1}, "none was resumed"


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
    assert {row["num_attempts"] for row in trace_rows(timings(run))} == {1}
    assert {len(row["calls"]) for row in trace_rows(timings(run))} == {1}, (
        "calls of the first repeat are not among them"
    )


def ended(number: int, levels: int = 3) -> list[Ended]:
    rng = random.Random(7)
    return [Ended(f"s{i}", str(i % levels), rng.randrange(10, 5000)) for i in range(number)]


def timed(drawn: list[Drawn]) -> set[str]:
    return {one.sample_id for one in drawn if one.is_timed}


def test_as_many_are_timed_as_were_asked_for_and_every_sample_has_a_stratum() -> None:
    for total, asked in ((80, 12), (80, 13), (80, 1), (7, 5), (1, 1), (480, 200)):
        drawn = draw(ended(total), asked, "seed")
        assert len(timed(drawn)) == asked
        assert len({one.sample_id for one in drawn}) == total


def test_strata_are_alike_in_size_and_give_equally_many() -> None:
    drawn = draw(ended(83), 26, "seed")
    sizes, numbers = Counter(one.stratum for one in drawn), Counter(one.stratum for one in drawn if one.is_timed)
    assert max(sizes.values()) - min(sizes.values()) <= 1
    assert max(numbers.values()) - min(numbers.values()) <= 1
    assert min(numbers.values()) >= 4


def test_the_draw_depends_on_the_seed_and_not_on_the_order() -> None:
    samples = ended(80)
    first = timed(draw(samples, 20, "seed"))
    assert timed(draw(samples[::-1], 20, "seed")) == first
    assert timed(draw(samples, 20, "other")) != first


def test_every_sample_of_a_stratum_is_equally_likely() -> None:
    samples = ended(20, levels=1)
    counts = Counter(one for seed in range(2000) for one in timed(draw(samples, 5, str(seed))))
    assert set(counts) == {one.sample_id for one in samples}
    assert all(abs(count / 2000 - 0.25) < 0.05 for count in counts.values())


SMALL: dict[str, Any] = {"limit": 4, "samples": 2, "token_budget": 600}


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--latency-sample", "9"), "--latency-sample 9: the run has only 8 samples"),
        (("--latency-sample", "0"), "--latency-sample 0: Input should be greater than or equal to 1"),
        (("--latency-sample", "4", "--concurrency", "1"), "every sample already runs alone"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(arguments: tuple[str, ...], why: str, tmp_path: Path) -> None:
    done = launched(tmp_path / "runs", *arguments, **SMALL)
    assert done.exit_code == 2, done.output
    assert why in done.output
    assert not (tmp_path / "runs").exists()


def test_it_is_no_part_of_the_run_times_one_that_is_finished_and_draws_once(tmp_path: Path) -> None:
    assert launched(tmp_path, **SMALL).exit_code == 0
    [path] = tmp_path.glob("demo-*")
    run = RunFolder(path)
    spec = run.spec_path.read_bytes()
    assert launched(tmp_path, **SMALL, latency_sample=4).exit_code == 0
    assert [path] == list(tmp_path.glob("demo-*"))
    assert run.spec_path.read_bytes() == spec
    assert folder.progress(run) == folder.Progress(4, 4)
    assert launched(tmp_path, **SMALL, latency_sample=4).exit_code == 0
    assert folder.progress(run) == folder.Progress(4, 4)
    done = launched(tmp_path, **SMALL, latency_sample=5)
    assert done.exit_code == 2, done.output
    assert "valid: 4" in done.output
