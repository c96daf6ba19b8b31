"""The table a launcher ends with."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from tests.warehouse import runs
from tests.warehouse.conftest import Loaded
from warehouse.database import reader, rows
from warehouse.loading.runs import load_run
from warehouse.report.summary import render, summary
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
    folder, database = runs.create(tmp_path, runs.VANILLA), tmp_path / "w.duckdb"
    *written, full = (runs.vanilla(unit) for unit in runs.planned(folder))
    full.steps, full.calls, full.stop_reason, full.latency_seconds = [], [], "context", 0.0001
    runs.write_part(folder, [*written, full])
    load_run(folder, database)
    [run] = summary(database, [folder.path.name])
    assert (run.num_timed, run.num_unasked) == (5, 1)
    assert run.value("latency_seconds") == pytest.approx(20)
    timed = "SELECT sum(num_samples)::BIGINT AS n FROM problem_stopwatch WHERE stopwatch = 'measured'"
    with reader(database) as connection:
        assert rows(connection, timed) == [{"n": 5}]


def test_one_problem_has_no_standard_error(tmp_path: Path) -> None:
    folder = runs.create(tmp_path, replace(runs.SPEC, num_problems=1, dataset_size=1))
    runs.write_part(folder, [runs.speculative(unit) for unit in runs.planned(folder)])
    load_run(folder, tmp_path / "w.duckdb")
    assert "NOT GRADED: 2 of 2 " in rendered(tmp_path / "w.duckdb", folder.path.name)
    runs.write_grades(folder, {unit.sample_id: "correct" for unit in runs.planned(folder)})
    load_run(folder, tmp_path / "w.duckdb")
    with reader(tmp_path / "w.duckdb") as connection:
        [score] = rows(connection, "FROM pass_at_1 SELECT standard_error, low_95, high_95")
    interval = mean(np.array([1.0]))  # which needs no spread
    assert score == {"standard_error": None, "low_95": interval.low, "high_95": 1.0}
