"""The result of a run: the table a launcher ends with, and results.json for programs."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from tests.warehouse import runs
from tests.warehouse.conftest import Loaded, views
from warehouse.database import reader, rows
from warehouse.loading.runs import load_run
from warehouse.report.summary import SCHEMA_VERSION, RunSummary, render, summary
from warehouse.statistics.intervals import mean


def rendered(database: Path, run_id: str) -> str:
    out = io.StringIO()
    render(summary(database, [run_id]), Console(file=out, width=200))
    return out.getvalue()


def test_a_summary_holds_the_numbers_of_the_views(loaded: Loaded) -> None:
    [run] = summary(loaded.database, [loaded.speculative.path.name])
    assert (run.n, run.k, run.num_not_run, run.regime) == (3, 2, 1, "latency")
    assert run.pass_at_1 == pytest.approx(1 / 3)
    assert sum(run.verdicts.values()) == 6
    assert run.value("fallback_rate") == pytest.approx(0.4)
    assert sum(own["emitted_tokens"].value for own in run.by_role.values()) == pytest.approx(18)
    assert run.value("draft_share") == pytest.approx(18 / 90)
    assert sum(run.latency_shares.values()) == pytest.approx(1)
    assert run.against_with("speed_up")[0][0].baseline_run_id == loaded.vanilla.path.name


def test_a_sample_without_a_request_is_counted_and_not_timed(tmp_path: Path) -> None:
    folder = runs.create(tmp_path, runs.VANILLA)
    *written, full = (runs.vanilla(unit) for unit in runs.planned(folder))
    full.steps, full.calls, full.stop_reason, full.latency_seconds = [], [], "context", 0.0001
    with views(folder, [*written, full]) as ask:
        timed = [row["num_samples"] for row in ask("problem_stopwatch") if row["stopwatch"] == "measured"]
    [run] = summary(tmp_path / "w.duckdb", [folder.path.name])
    assert (run.num_timed, run.num_unasked, sum(timed)) == (5, 1, 5)
    assert run.value("latency_seconds") == pytest.approx(20)


def test_one_problem_has_no_standard_error(tmp_path: Path) -> None:
    folder = runs.finished(tmp_path, replace(runs.SPEC, num_problems=1, dataset_size=1))
    load_run(folder, tmp_path / "w.duckdb")
    assert "NOT GRADED: 2 of 2 " in rendered(tmp_path / "w.duckdb", folder.path.name)
    runs.write_grades(folder, {unit.sample_id: "correct" for unit in runs.planned(folder)})
    with views(folder) as ask:
        [score] = ask("pass_at_1")
    interval = mean(np.array([1.0]))  # which needs no spread
    assert (score["standard_error"], score["low_95"], score["high_95"]) == (None, interval.low, 1.0)


@pytest.mark.parametrize(("num_truncated", "is_warned"), [(3, False), (4, True)])
def test_most_samples_without_an_answer_are_a_warning(tmp_path: Path, num_truncated: int, is_warned: bool) -> None:
    folder = runs.create(tmp_path)
    traces = [runs.speculative(unit) for unit in runs.planned(folder)]
    runs.write(folder, traces, ["truncated"] * num_truncated + ["wrong"] * (len(traces) - num_truncated))
    load_run(folder, tmp_path / "w.duckdb")
    assert (f"TRUNCATED: {num_truncated} of 6 " in rendered(tmp_path / "w.duckdb", folder.path.name)) is is_warned


def test_the_file_is_the_summary(loaded: Loaded) -> None:
    for folder in (loaded.speculative, loaded.vanilla, loaded.limited):
        [run] = summary(loaded.database, [folder.path.name])
        found = json.loads(run.to_json())
        assert found.keys() == RunSummary.model_fields.keys()
        assert RunSummary.model_validate(found) == run
        assert found["schema_version"] == SCHEMA_VERSION == 2
        assert (run.planned, run.finished) == (run.n * run.k, run.n * run.k - run.num_not_run)
        assert found["measures"]["pass_at_1"]["value"] == run.pass_at_1
        assert (run.state == "finished") == (run.num_not_run + run.num_ungraded == 0)


def test_every_measure_of_the_run_is_there_under_its_name(loaded: Loaded) -> None:
    """What is added to the registry needs no edit here."""
    [run] = summary(loaded.database, [loaded.speculative.path.name])
    with reader(loaded.database) as connection:
        sql = """
            FROM counted_estimate WHERE run_id = $run_id AND coalesce(role, group_kind, baseline_run_id) IS NULL
            AND metric NOT IN ('pass_at_k', 'maj_at_k')
        """
        found = rows(connection, sql, {"run_id": run.run_id})
    assert run.measures.keys() == {row["metric"] for row in found}
    assert run.measures.keys() >= {"fallback_rate", "latency_seconds", "draft_steps"}
    for row in found:
        number = run.measures[row["metric"]]
        assert (number.value, number.low_95, number.high_95) == (row["estimate"], row["low_95"], row["high_95"])
        assert (number.n, number.unit, number.interval) == (row["n"], row["unit"], row["interval_kind"])
    [pair] = run.against
    assert pair.baseline_run_id == loaded.vanilla.path.name
    assert pair.measures.keys() >= {"speed_up", "ratio_of_means", "rate_ratio", "chain_length_ratio"}
    assert run.by_role["draft"]["emitted_tokens"].value < run.measures["emitted_tokens"].value
