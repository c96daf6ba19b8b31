"""Tables of runs that were timed by a sample of samples: read from it, never mixed with other measurements."""

from __future__ import annotations

import csv
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from harness import reproduce
from harness.settings.launch_settings import Launch
from tests.warehouse import runs
from tests.warehouse.suites.timed_runs import PLAIN, SPECULATIVE, finished, time
from warehouse.database import reader, rows
from warehouse.loading.runs import load_run
from warehouse.loading.staging import answer_of
from warehouse.suites import published as papers
from warehouse.suites.measured import estimated, runs_like
from warehouse.suites.published import suite_run

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
    result = CliRunner(env={"COLUMNS": "220"}).invoke(reproduce.main, command)
    assert result.exit_code == 0, result.output
    return result.output


def loaded(output: Path, *, own: bool = True, base: bool = True) -> Path:
    """Load SpecCoT and its baseline, in batches that took 50 and 200 s a sample; which of them were timed alone."""
    for spec, trace, batch, seconds, is_timed in (
        (SPECULATIVE, runs.speculative, 50.0, (9.0, 10.0, 11.0, 10.0), own),
        (PLAIN, runs.vanilla, 200.0, (19.0, 20.0, 21.0, 20.0), base),
    ):
        run = finished(output, spec, trace, batch)
        if is_timed:
            time(run, trace, seconds)
        load_run(run, output / "w.duckdb")
    return output / "w.duckdb"


@pytest.mark.usefixtures("large_plan")
def test_a_table_reads_times_from_the_timing_samples_and_says_so(tmp_path: Path) -> None:
    loaded(tmp_path)
    told = table(tmp_path)
    assert "estimated from a sample of samples (4 of 6 timed alone in a run)" in told
    assert "geometric mean of r: needs a time of every problem (--every-sample-alone)" in told
    [line] = [line for line in told.splitlines() if line.strip().startswith("SpecCoT, QwQ-32B")]
    assert " 8.5 (" in line, "10 s less 1.5 s of the answer, not the 50 s of the batches"
    assert " 2.4 (" in line, "20 / 8.5"
    assert "samples in flight instead of" not in told
    assert "4 of 6 samples timed, 1 in flight" in told


@pytest.mark.usefixtures("large_plan")
def test_ours_and_the_published_value_stand_in_every_format(tmp_path: Path) -> None:
    loaded(tmp_path)
    cells = {row["row"]: row for row in csv.DictReader(table(tmp_path, "--format", "csv").splitlines())}
    own = cells["SpecCoT, QwQ-32B"]
    assert float(own["gsm8k latency"]) == pytest.approx(8.5)
    assert float(own["gsm8k latency published"]) == 10.1
    assert (own["target"], own["gsm8k num_finished"], own["gsm8k num_samples"]) == ("qwq-32b", "6", "6")
    assert "8.5 (6.0–12.0); published 10.1" in table(tmp_path, "--format", "markdown")
    latex = table(tmp_path, "--format", "latex", "--metric", "latency", "--no-intervals")
    assert "8.5; published 10.1" in latex


@pytest.mark.usefixtures("large_plan")
@pytest.mark.parametrize(("own", "base"), [(True, False), (False, True)])
def test_no_ratio_mixes_two_ways_of_timing(tmp_path: Path, own: bool, base: bool) -> None:
    loaded(tmp_path, own=own, base=base)
    [line] = [line for line in table(tmp_path).splitlines() if line.strip().startswith("SpecCoT, QwQ-32B")]
    assert (" 8.5 (" in line) is own
    assert "2.4 (" not in line
    assert "23.5 (" not in line, "200 / 8.5"
    assert "20.0 (" not in line, "20 s alone / … of the batches"


@pytest.mark.usefixtures("large_plan")
def test_a_dry_run_says_by_recorded_runs_what_a_latency_sample_takes(tmp_path: Path) -> None:
    for spec, seconds in ((replace(PLAIN, concurrency=1, tag="alone"), 1441.0), (PLAIN, 721.0)):
        run = runs.create(tmp_path, spec)
        runs.write_part(run, [runs.vanilla(unit, latency=seconds) for unit in runs.planned(run)], device="H100")
        load_run(run, tmp_path / "w.duckdb")
    more = ("--dry-run", "--latency-sample", "4", "--tag", "new", "--database", str(tmp_path / "w.duckdb"))
    width = ("--target.tensor-parallel", "1")
    words = [TABLE[0], *TABLE[2:-1], "3x2", "--output", str(tmp_path), *more, *width]
    told = CliRunner(env={"COLUMNS": "220"}).invoke(reproduce.main, words).output
    assert ", and 0.1 for 4 samples timed one at a time" in told, told
    assert "Total: 0.3 GPU-hours" in told


@pytest.mark.usefixtures("large_plan")
def test_times_of_batches_that_are_not_timed_yet_are_no_latencies(tmp_path: Path) -> None:
    loaded(tmp_path, own=False, base=False)
    told = table(tmp_path)
    assert " 40.0 " in told, "their tokens are shown"
    assert "200.0" not in told
    assert "only 0 of 100 timing samples are finished" in told


def test_which_suites_are_planned_with_a_latency_sample() -> None:
    by_suite = {}
    for name in papers.names():
        chosen = papers.load(name)
        launches = [suite_run(planned, {}, "org/aligned").launch for planned in papers.planned(chosen)]
        by_suite[name] = [
            launch_way(papers.with_latency_sample(chosen, one), one) for one in launches if one is not None
        ]
    assert set(by_suite["speccot-table2"]) == set(by_suite["scot-table1"]) == {"64, 100 timed"}
    assert set(by_suite["specreason-figure3"]) == {"64, 100 timed"}
    assert set(by_suite["scot-table3"]) == {"64"}, "no times: the batches of scot-table1"
    assert set(by_suite["speccot-table6"]) == {"as it was"}, "how long batches take is what it measures"


def launch_way(sampled: Launch, before: Launch) -> str:
    if sampled == before:
        return "as it was"
    return f"{sampled.concurrency}" + (f", {sampled.latency_sample} timed" if sampled.latency_sample else "")


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
