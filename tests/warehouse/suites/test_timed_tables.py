"""Tables of runs that were timed by a sample of samples: read from it, never mixed with other measurements."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from harness import reproduce
from harness.methods import defaults, method_parameters
from harness.trace import Trace
from jobs.run import timing, trace_files
from jobs.run.folder import RunFolder
from jobs.run.spec import EngineSpec, ModelSpec, RunSpec, Unit
from jobs.run.timing import Drawn, timing_id
from tests.warehouse import runs
from tests.warehouse.cells import select
from warehouse.database import reader
from warehouse.loading.runs import load_run, load_runs
from warehouse.loading.staging import answer_of
from warehouse.suites import published as papers
from warehouse.suites.measured import estimated, runs_like

SMALL, LARGE = (
    ModelSpec(model=name, path=name, revision=None, fingerprint=f"{name}@r") for name in ("org/small", "org/large")
)
PLAIN = replace(
    runs.SPEC, dataset="gsm8k", dataset_size=1319, token_budget=8192, seed=0, engine=EngineSpec("vllm"),
    draft=None, target=LARGE, method="vanilla", params=method_parameters("vanilla", {}), concurrency=64,
)  # fmt: skip
SPECULATIVE = replace(PLAIN, method="speccot", params={**defaults("speccot"), "drafts": 2}, draft=SMALL)


def made(
    output: Path, spec: RunSpec, trace: Callable[..., Trace], batch_seconds: float, alone: Sequence[float] = ()
) -> RunFolder:
    """A finished run whose samples took so long beside each other, and of which the first ones were timed alone."""
    run = runs.finished(output, spec, partial(trace, latency=batch_seconds))
    if alone:
        units = [unit for shard in run.shards() for unit in shard]
        timed = list(zip(units, alone, strict=False))
        timing.request(run, len(alone))
        file = timing.TimingFolder(run.path).trace_files_dir / "t0.parquet"
        file.parent.mkdir(parents=True)
        timing.write_draw(run, [Drawn(unit.sample_id, 0, place < len(alone)) for place, unit in enumerate(units)])
        traces = [replace(trace(unit, latency=seconds), sample_id=timing_id(unit.sample_id)) for unit, seconds in timed]
        metadata = {"attempt": json.dumps(asdict(runs.attempt(run.path.name, "t0")))}
        trace_files.write_table(file, trace_files.TRACES, [asdict(one) for one in traces], metadata)
    return run


TABLE = (
    "speccot-table2", "--table", "--draft", "org/small", "--target", "org/large", "--drafts", "2",
    "--column", "gsm8k", "--scale", "100x2",
)  # fmt: skip


@pytest.fixture
def large_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three problems × 2 samples count as enough for a latency sample."""
    monkeypatch.setattr(papers, "LEAST_SAMPLES", 1)


def table(output: Path, *more: str) -> str:
    command = [*TABLE[:-1], "3x2", "--database", str(output / "w.duckdb"), "--output", str(output), *more]
    result = CliRunner(env={"COLUMNS": "2000"}).invoke(reproduce.main, command)
    assert result.exit_code == 0, result.output
    return result.output


OWN_SECONDS, BASE_SECONDS = (9.0, 10.0, 11.0, 10.0), (19.0, 20.0, 21.0, 20.0)


def loaded(output: Path, base_seconds: Sequence[float]) -> Path:
    """Load SpecCoT and its baseline, in batches that took 50 and 200 s a sample; how long some took alone."""
    own = made(output, SPECULATIVE, runs.speculative, 50.0, OWN_SECONDS)
    list(load_runs([own, made(output, PLAIN, runs.vanilla, 200.0, base_seconds)], output / "w.duckdb"))
    return output


@pytest.fixture(scope="module")
def timed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both, timed."""
    return loaded(tmp_path_factory.mktemp("timed"), BASE_SECONDS)


def line_of(told: str) -> str:
    [line] = [line for line in told.splitlines() if line.strip().startswith("SpecCoT, QwQ-32B ")]
    return line


@pytest.mark.usefixtures("large_plan")
def test_a_table_reads_times_from_the_timing_samples_in_every_format(timed: Path) -> None:
    told = table(timed)
    assert " 8.5 (" in line_of(told), "10 s less 1.5 s of the answer, not the 50 s of the batches"
    assert " 2.4 (" in line_of(told), "20 / 8.5"
    assert told.count("--every-sample-alone") == 1, "how to have the geometric mean"
    cells = {row["row"]: row for row in csv.DictReader(table(timed, "--format", "csv").splitlines())}
    own = cells["SpecCoT, QwQ-32B"]
    assert float(own["gsm8k latency"]) == pytest.approx(8.5)
    assert float(own["gsm8k latency published"]) == 10.1
    assert (own["target"], own["gsm8k num_finished"], own["gsm8k num_samples"]) == ("qwq-32b", "6", "6")
    latex = table(timed, "--format", "latex", "--metric", "latency", "--no-intervals")
    assert re.search(r"8\.5; .* 10\.1", latex)


@pytest.mark.usefixtures("large_plan")
def test_no_ratio_mixes_two_ways_of_timing(tmp_path: Path) -> None:
    """Neither 20 / 8.5 nor 200 / 8.5."""
    line = line_of(table(loaded(tmp_path, ())))
    assert [number in line for number in (" 8.5 (", "2.4 (", "23.5 (")] == [True, False, False]


@pytest.mark.usefixtures("large_plan")
def test_a_dry_run_says_by_recorded_runs_what_a_latency_sample_takes(tmp_path: Path) -> None:
    for spec, seconds in ((replace(PLAIN, concurrency=1, tag="alone"), 1441.0), (PLAIN, 721.0)):
        run = runs.create(tmp_path, spec)
        runs.write_part(run, [runs.vanilla(unit, latency=seconds) for unit in runs.planned(run)], device="H100")
        load_run(run, tmp_path / "w.duckdb")
    more = ("--dry-run", "--latency-sample", "4", "--tag", "new", "--database", str(tmp_path / "w.duckdb"))
    width = ("--target.tensor-parallel", "1")
    words = [TABLE[0], *TABLE[2:-1], "3x2", "--output", str(tmp_path), *more, *width]
    told = CliRunner(env={"COLUMNS": "2000"}).invoke(reproduce.main, words).output
    assert ", plus 0.1 for 4 " in told, told
    assert "0.3 GPU-hours" in told


def test_every_measure_of_times_is_that_of_the_timed_chains(timed: Path) -> None:
    with reader(timed / "w.duckdb") as connection:
        own, base = (
            runs_like(connection, {"method": spec.method, "dataset": "gsm8k", "params": spec.params})[0]
            for spec in (SPECULATIVE, PLAIN)
        )

        def measured(name: str, stopwatch: str = "measured") -> Any:
            return estimated(connection, name, own, base, stopwatch, "measured")

        saved, ratio = measured("latency_saved_seconds"), measured("ratio_of_means")
        called = runs.speculative(Unit("f" * 16, "toy/0", 0)).calls
        for name, expected in (
            ("latency_seconds", 10.0),
            ("tokens_per_second", np.mean([18 / seconds for seconds in OWN_SECONDS])),
            ("latency_saved", 0.5),
            ("latency_saved_seconds", 10.0),
        ):
            assert measured(name).estimate == pytest.approx(expected, rel=0.02), name
        assert measured("latency_seconds", "scot").estimate == pytest.approx(8.5, rel=0.02)
        thought = sum(call.end_seconds for call in called[:-1])
        assert measured("drafting_share").estimate == pytest.approx(called[1].end_seconds / thought)
    assert saved.low < saved.estimate < saved.high
    assert ratio.low < 2.0 < ratio.high


@pytest.mark.parametrize("method", ["vanilla", "speccot"])
def test_the_answer_of_a_timed_chain_is_counted_as_that_of_a_sample(tmp_path: Path, method: str) -> None:
    """The rule stands in SQL for samples, and in Python for timing samples, of which there are few."""
    run = runs.create(tmp_path, PLAIN if method == "vanilla" else SPECULATIVE)
    trace = runs.vanilla if method == "vanilla" else runs.speculative
    traces = [trace(unit) for unit in runs.planned(run)]
    for number, one in enumerate(traces):
        if method == "vanilla" and number % 2:
            one.steps[-1].text = "I think.</think>\n\nSo 2."
    runs.write_part(run, traces)
    load_run(run, tmp_path / "w.duckdb")
    sql = "SELECT sample_id, sum(num_tokens) AS tokens, sum(seconds) AS seconds FROM sample_answer GROUP BY ALL"
    found = {row["sample_id"]: (row["tokens"], row["seconds"]) for row in select(tmp_path, sql)}
    assert found
    attempt = asdict(runs.attempt(run.path.name))
    for one in traces:
        assert answer_of(asdict(one), attempt) == pytest.approx(found.get(one.sample_id, (0.0, 0.0))), one


def test_a_small_run_with_a_latency_sample_stands_in_the_table_of_its_scale(tmp_path: Path) -> None:
    """A run of so few samples is planned with every sample alone, unless a latency sample is asked for."""
    load_run(made(tmp_path, PLAIN, runs.vanilla, 200.0, BASE_SECONDS), tmp_path / "w.duckdb")
    lines = table(tmp_path, "--latency-sample", "4").splitlines()
    assert [line for line in lines if line.strip().startswith("QwQ-32B") and "20.0 (" in line]
