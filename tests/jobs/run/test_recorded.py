"""Runs of the demo as release 0.2.0 recorded them (format 3): later versions read, resume, load and show them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from jobs.__main__ import main as jobs_command
from jobs.run.folder import RunFolder
from warehouse.loading.runs import load_runs
from warehouse.report.summary import summary
from warehouse.trace import main as trace

RECORDED = sorted((Path(__file__).parents[2] / "recorded").glob("demo-*"))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[RunFolder]:
    where = tmp_path_factory.mktemp("recorded")
    return [RunFolder(Path(shutil.copytree(run, where / run.name))) for run in RECORDED]


@pytest.fixture(scope="module")
def database(runs: list[RunFolder]) -> Path:
    database = runs[0].path.parent / "warehouse.duckdb"
    list(load_runs(runs, database))
    return database


def test_their_numbers_are_those_of_their_results(runs: list[RunFolder], database: Path) -> None:
    assert len(runs) == 4
    for run in runs:
        written = json.loads((run.path / "results.json").read_bytes())
        found = json.loads(summary(database, [run.path.name])[0].to_json())
        assert (found["verdicts"], found["models"]) == (written["verdicts"], written["models"])
        assert found["measures"].keys() == written["measures"].keys()
        for name, number in found["measures"].items():
            assert number == pytest.approx(written["measures"][name]), name


def test_they_are_finished_and_resume_to_nothing(runs: list[RunFolder], database: Path) -> None:
    for run in runs:
        status = CliRunner().invoke(jobs_command, ["status", str(run.path)])
        assert (status.exit_code, "24/24" in status.output) == (0, True), status.output
        resumed = CliRunner().invoke(jobs_command, ["resume", str(run.path)])
        assert (resumed.exit_code, "ll samples are finished" in resumed.output) == (0, True), resumed.output


def test_their_traces_show_steps_and_verdicts(runs: list[RunFolder], database: Path) -> None:
    [run] = [run for run in runs if "specreason" in run.path.name]
    shown = CliRunner().invoke(trace, [run.path.name, "demo/0", "0", "--database", str(database)])
    assert (shown.exit_code, "verdict by target" in shown.output) == (0, True), shown.output
