"""Timing samples: a latency model, an estimate of its own, and nothing else of the run changes."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import numpy as np
import pytest

from jobs.finished.grading import finish
from jobs.run import timing as folder
from jobs.run import trace_files
from jobs.run.folder import RunFolder
from jobs.work.worker import run_shard
from tests.jobs.runs import plan
from tests.warehouse.cells import load, select
from warehouse.comparison.contrasts import Settings, compare_runs
from warehouse.comparison.latency_at_one import LatencyModel, TimedCall, TimedSample, fit
from warehouse.comparison.show import record
from warehouse.database import Record
from warehouse.loading.runs import load_run


@pytest.fixture(scope="module")
def timed(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunFolder, RunFolder, Path]:
    """A speculative run and the target alone, 8 × 3 samples of which 8 are timed, and the folder of their database."""
    output = tmp_path_factory.mktemp("timed")
    both = plan(output), plan(output, method="vanilla", model="target")
    for run in both:
        with_timing_samples(run, 8)
        finish(run)
    load(output, *both)
    return *both, output


def with_timing_samples(run: RunFolder, number: int) -> None:
    run_shard(str(run.path), 0)
    folder.request(run, number)
    run_shard(str(run.path), 0)


def test_the_estimate_is_of_all_samples_from_the_timed_ones(timed: tuple[RunFolder, RunFolder, Path]) -> None:
    run, _, where = timed
    [row] = select(where, "FROM latency_at_one WHERE run_id = $run", run=run.path.name)
    assert (row["n"], row["num_samples"], row["num_drawn"], row["num_timed"]) == (8, 24, 8, 8)
    timed_alone = folder.TimingFolder(run.path).trace_files()
    measured = [row["latency_seconds"] for path in timed_alone for row in trace_files.read_rows(path)]
    assert row["mean_timed_seconds"] == pytest.approx(np.mean(measured))
    assert row["low_95"] < row["mean_seconds"] < row["high_95"]
    assert min(measured) < row["mean_seconds"] < max(measured)


def test_timing_samples_change_no_other_estimate_or_total(
    timed: tuple[RunFolder, RunFolder, Path], tmp_path: Path
) -> None:
    run, _, where = timed
    planned = {unit.sample_id for shard in run.shards() for unit in shard}
    for table in ("sample", "step", "call", "timed_sample", "sample_tokens"):
        found = select(where, f"SELECT DISTINCT sample_id FROM {table} WHERE run_id = $run", run=run.path.name)
        assert {row["sample_id"] for row in found} == planned, table
    bare = tmp_path / run.path.name
    shutil.copytree(run.path, bare)
    shutil.rmtree(bare / "timing")
    load_run(RunFolder(bare), tmp_path / "w.duckdb")
    own = "FROM estimate WHERE baseline_run_id IS NULL AND measure <> 'latency_at_one' AND run_id = $run ORDER BY ALL"
    names = ("verdict_counts", "token_split", "latency_split", "call_speed", "call_total", "run_conditions")
    for query in (own, *(f"FROM {name} WHERE run_id = $run ORDER BY ALL" for name in names)):
        of_both = (select(folder, query, run=run.path.name) for folder in (where, tmp_path))
        of_first, of_second = ([_rounded(row) for row in of_one] for of_one in of_both)
        assert of_first == of_second, query


def _rounded(row: Record) -> Record:
    """A row of which numbers have 12 digits, because DuckDB adds them in any order."""
    return {name: float(f"{value:.12g}") if isinstance(value, float) else value for name, value in row.items()}


def test_speed_ups_pair_the_problems_of_both_runs(timed: tuple[RunFolder, RunFolder, Path]) -> None:
    run, base, where = timed
    [row] = select(where, "FROM speed_up_at_one")
    assert (row["run_id"], row["baseline_run_id"], row["n"]) == (run.path.name, base.path.name, 8)
    assert row["speed_up"] == pytest.approx(row["baseline_mean_seconds"] / row["mean_seconds"])
    comparison = compare_runs([run.path.name, base.path.name], where / "w.duckdb", Settings())
    [compared] = [record(row) for row in comparison.rows if row.speed]
    assert compared["speed_up_at_one"] == pytest.approx(row["speed_up"])
    assert compared["speed_up_at_one_low_95"] == pytest.approx(row["low_95"])
    assert (compared["num_timed_at_one"], compared["num_timed_at_one_of_baseline"]) == (8, 8)


def test_a_damaged_file_of_timing_samples_is_named_and_the_samples_stay(tmp_path: Path) -> None:
    run = plan(tmp_path)
    with_timing_samples(run, 5)
    [path] = folder.TimingFolder(run.path).trace_files()
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    report = load_run(run, tmp_path / "w.duckdb")
    assert [file.name for file in report.skipped] == [path.relative_to(run.path).as_posix()]
    assert report.num_finished == 24
    assert (select(tmp_path, "FROM latency_at_one"), folder.progress(run).left) == ([], 5)


TRUTH = LatencyModel(
    {"draft": np.array([0.2, 0.001, 0.01, 0.002]), "target": np.array([0.1, 0.004, 0.05, 0.0])},
    sample_overhead_seconds=0.5,
)


def samples(number: int) -> list[TimedSample]:
    """Made by TRUTH."""
    draw = random.Random(1)
    made = []
    for _ in range(number):
        calls = []
        for _ in range(draw.randint(2, 8)):
            for model, speed in TRUTH.speeds.items():
                new, output, further = draw.randint(0, 300), draw.randint(1, 200), draw.randint(0, 5)
                counts = (1, new, output, output * further)
                calls.append(TimedCall(model, counts, float(speed @ counts)))
        made.append(TimedSample(tuple(calls), 0.5 + sum(call.seconds for call in calls)))
    return made


def test_a_fit_finds_the_speeds_that_made_the_calls() -> None:
    model = fit(samples(20))
    assert model.sample_overhead_seconds == pytest.approx(0.5)
    for name, speed in TRUTH.speeds.items():
        assert model.speeds[name] == pytest.approx(speed, rel=1e-3, abs=1e-6), name


def test_time_during_which_a_sample_does_not_wait_is_no_overhead() -> None:
    calls = TimedCall("target", (1, 10, 1, 0), 3.0), TimedCall("draft", (1, 0, 16, 0), 2.0, overlapped_seconds=1.5)
    assert fit([TimedSample(calls, 5.0)]).sample_overhead_seconds == pytest.approx(5 - 3 - 0.5)


def test_a_draft_begun_during_a_verdict_adds_what_it_takes_beyond_it() -> None:
    model = LatencyModel({"draft": np.array([0, 0, 1.0, 0]), "target": np.array([0, 1.0, 0, 0])}, 0.0)
    verdict = np.array([[1, 10, 1, 0]] * 2)
    longer_and_shorter = np.array([[1, 0, 16, 0], [1, 0, 4, 0]])
    work = {("after", "target"): verdict, ("under", "target"): verdict, ("ahead", "draft"): longer_and_shorter}
    assert model.seconds(work, 2) == pytest.approx([10 + 6, 10])
