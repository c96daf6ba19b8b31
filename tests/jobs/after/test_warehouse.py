"""What is printed and written once several runs have ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.after.warehouse import WarehouseFailed, compare_and_report
from tests.warehouse import runs
from warehouse.load import load_run


def test_runs_that_cannot_be_compared_are_an_error_and_are_reported_nevertheless(tmp_path: Path) -> None:
    folders = [runs.create(tmp_path), runs.create(tmp_path, runs.VANILLA)]
    for folder in folders:
        load_run(folder, tmp_path / "warehouse.duckdb")
    page = tmp_path / "report.html"
    with pytest.raises(WarehouseFailed, match="fewer than two runs are left to compare"):
        compare_and_report(folders, page)
    assert "INCOMPLETE RUN" in page.read_text(encoding="utf-8")


def test_one_run_is_reported_and_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = runs.create(tmp_path)
    load_run(folder, tmp_path / "warehouse.duckdb")
    compare_and_report([folder], tmp_path / "report.html")
    assert capsys.readouterr().out.startswith(f"{tmp_path / 'report.html'}: ")
