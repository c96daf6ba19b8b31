"""Tables of runs that were timed by a sample of samples: read from it, never mixed with other measurements."""

from __future__ import annotations

import csv
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from harness import reproduce
from tests.warehouse import runs
from tests.warehouse.suites.timed_runs import PLAIN, SPECULATIVE, finished, time
from warehouse.database import reader, rows
from warehouse.loading.runs import load_run, load_runs
from warehouse.loading.staging import answer_of
from warehouse.suites import published as papers
from warehouse.suites.measured import estimated, runs_like

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


def loaded(output: Path, *, own: bool = True, base: bool = True) -> Path:
    """Load SpecCoT and its baseline, in batches that took 50 and 200 s a sample; which of them were timed alone."""
    folders = []
    for spec, trace, batch, seconds, is_timed in (
        (SPECULATIVE, runs.speculative, 50.0, (9.0, 10.0, 11.0, 10.0), own),
        (PLAIN, runs.vanilla, 200.0, (19.0, 20.0, 21.0, 20.0), base),
    ):
        run = finished(output, spec, trace, batch)
        if is_timed:
            time(run, trace, seconds)
        folders.append(run)
    list(load_runs(folders, output / "w.duckdb"))
    return output / "w.duckdb"


def line_of(told: str) -> str:
    [line] = [line for line in told.splitlines() if line.strip().startswith("SpecCoT, QwQ-32B")]
    return line


@pytest.mark.usefixtures("large_plan")
def test_a_table_reads_times_from_the_timing_samples_in_every_format(tmp_path: Path) -> None:
    loaded(tmp_path)
    told = table(tmp_path)
    assert " 8.5 (" in line_of(told), "10 s less 1.5 s of the answer, not the 50 s of the batches"
    assert " 2.4 (" in line_of(told), "20 / 8.5"
    assert told.count("--every-sample-alone") == 1, "how to have the geometric mean"
    cells = {row["row"]: row for row in csv.DictReader(table(tmp_path, "--format", "csv").splitlines())}
    own = cells["SpecCoT, QwQ-32B"]
    assert float(own["gsm8k latency"]) == pytest.approx(8.5)
    assert float(own["gsm8k latency published"]) == 10.1
    assert (own["target"], own["gsm8k num_finished"], own["gsm8k num_samples"]) == ("qwq-32b", "6", "6")
    latex = table(tmp_path, "--format", "latex", "--metric", "latency", "--no-intervals")
    assert re.search(r"8\.5; .* 10\.1", latex)


@pytest.mark.usefixtures("large_plan")
def test_no_ratio_mixes_two_ways_of_timing(tmp_path: Path) -> None:
    loaded(tmp_path, base=False)
    line = line_of(table(tmp_path))
    assert " 8.5 (" in line
    assert "2.4 (" not in line
    assert "23.5 (" not in line, "200 / 8.5"


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
    assert ", and 0.1 for 4 " in told, told
    assert "0.3 GPU-hours" in told


def measured(database: Path, name: str, stopwatch: str = "measured") -> Any:
    with reader(database) as connection:
        own, base = (
            runs_like(connection, {"method": spec.method, "dataset": "gsm8k", "params": spec.params})[0]
            for spec in (SPECULATIVE, PLAIN)
        )
        return estimated(connection, name, own, base, stopwatch, "measured")


def test_every_measure_of_times_is_that_of_the_timed_chains(tmp_path: Path) -> None:
    database = loaded(tmp_path)
    assert measured(database, "latency_seconds").estimate == pytest.approx(10.0, rel=0.02)
    assert measured(database, "latency_seconds", "scot").estimate == pytest.approx(8.5, rel=0.02)
    rates = np.mean([18 / seconds for seconds in (9.0, 10.0, 11.0, 10.0)])
    assert measured(database, "tokens_per_second").estimate == pytest.approx(rates, rel=0.02)
    called = runs.speculative(runs.planned(runs.create(tmp_path / "x"))[0]).calls
    thought = sum(call.end_seconds for call in called[:-1])
    drafting = called[1].end_seconds / thought
    assert measured(database, "drafting_share").estimate == pytest.approx(drafting)
    assert measured(database, "latency_saved").estimate == pytest.approx(0.5, rel=0.02)
    saved = measured(database, "latency_saved_seconds")
    assert saved.estimate == pytest.approx(10.0, rel=0.02)
    assert saved.low < saved.estimate < saved.high
    ratio = measured(database, "ratio_of_means")
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
    with reader(tmp_path / "w.duckdb") as connection:
        found = {
            row["sample_id"]: (row["tokens"], row["seconds"])
            for row in rows(
                connection,
                "SELECT sample_id, sum(num_tokens) AS tokens, sum(seconds) AS seconds FROM sample_answer GROUP BY ALL",
            )
        }
    assert found
    attempt = asdict(runs.attempt(run.path.name))
    for one in traces:
        assert answer_of(asdict(one), attempt) == pytest.approx(found.get(one.sample_id, (0.0, 0.0))), one


def test_a_small_run_with_a_latency_sample_stands_in_the_table_of_its_scale(tmp_path: Path) -> None:
    """A run of so few samples is planned with every sample alone, unless a latency sample is asked for."""
    run = finished(tmp_path, PLAIN, runs.vanilla, 200.0)
    time(run, runs.vanilla, (19.0, 20.0, 21.0, 20.0))
    load_run(run, tmp_path / "w.duckdb")
    lines = table(tmp_path, "--latency-sample", "4").splitlines()
    assert [line for line in lines if line.strip().startswith("QwQ-32B") and "20.0 (" in line]
