"""The benchmark's synthetic runs are complete and reproducible, and it measures loading and every view."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.warehouse import runs
from warehouse.bench.__main__ import main
from warehouse.bench.synthetic import SHAPES, create
from warehouse.database import reader, rows
from warehouse.load import load_run


def test_synthetic_runs_are_whole_and_the_same_each_time(tmp_path: Path) -> None:
    """Every method is there, every view of the papers has rows, and drawing again draws the same."""
    first, second = (create(tmp_path / name, 1200) for name in ("a", "b"))
    assert [run.spec().method for run in first] == [shape.method for shape in SHAPES]
    for run, again in zip(first, second, strict=True):
        assert (run.trace_files_dir / "attempt-0000.parquet").read_bytes() == (
            again.trace_files_dir / "attempt-0000.parquet"
        ).read_bytes()
        report = load_run(run, tmp_path / "w.duckdb")
        assert (report.skipped, report.num_unplanned) == ((), 0)
        assert report.num_finished == report.num_graded == len(runs.planned(run))
    with reader(tmp_path / "w.duckdb") as connection:
        for view in ("speed_up", "threshold_replay", "judge_auroc", "draft_selection", "fallback_rate_by_setting"):
            assert rows(connection, f"FROM {view}"), view


def test_the_benchmark_reports_every_size_and_leaves_nothing(tmp_path: Path) -> None:
    output = tmp_path / "numbers.json"
    result = CliRunner().invoke(
        main, ["--steps", "1000,1500", "--output", str(output), "--folder", str(tmp_path / "x")]
    )
    assert result.exit_code == 0, result.output
    sizes = json.loads(output.read_text())["sizes"]
    assert list(sizes) == ["1000", "1500"]
    for size in sizes.values():
        assert size["unchanged"]["num_unchanged"] == size["num_runs"] == 4
        assert size["views"]["rows"]["step"] > 0
        assert {"pass_at_1", "threshold_replay", "flips"} <= set(size["views"]["views"])
    assert "rate of bare" in result.stdout
    assert not list((tmp_path / "x").rglob("bare.duckdb"))


@pytest.mark.parametrize("steps", ["many", "10", "1e5,x"])
def test_a_wrong_size_is_one_line(steps: str) -> None:
    result = CliRunner().invoke(main, ["--steps", steps])
    assert result.exit_code == 2
    assert result.stderr.startswith("error: Invalid value for '--steps'")
    assert result.stderr.count("\n") == 1
