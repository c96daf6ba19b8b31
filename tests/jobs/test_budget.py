"""A budget of GPU-hours: a launch above it, or without an estimate, is refused before anything is written."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from harness.launch import main as launch
from jobs import after, suite
from jobs.__main__ import main as jobs
from jobs.forecast import Forecast

FLAGS = ("--method", "vanilla", "--dataset", "demo", "--limit", "4", "--samples", "4", "--engine", "scripted")
SUITE = """
output = "{output}"
engine = "scripted"
cluster = "debug"
dataset = "demo"
limit = 4
samples = 3
{budget}

[[run]]
method = "vanilla"

[[run]]
method = "speccot"
"""


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """An estimate of 8 GPU-hours for every run."""
    forecast = Forecast(2.0, 7.0, 9.5, 4, "history: earlier on 4 × H100")
    monkeypatch.setattr(after, "forecast", lambda *_: forecast)


def launched(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(launch, [*FLAGS, "--output", str(folder / "runs"), *words])


def suite_file(folder: Path, budget: str = "") -> Path:
    path = folder / "small.toml"
    path.write_text(SUITE.format(output=folder / "runs", budget=budget), encoding="utf-8")
    return path


@pytest.mark.usefixtures("known")
def test_what_is_left_by_history_is_refused_above_the_budget(tmp_path: Path) -> None:
    for further in ([], ["--dry-run"]):
        refused = launched(tmp_path, "--max-gpu-hours", "7.9", *further)
        assert refused.exit_code == 2
        assert {"7.9", "8.0", "(history:"} < set(refused.stderr.split())
    assert "estimate: 8.0" in refused.stdout, "a dry run shows what it is that is refused"
    assert not (tmp_path / "runs").exists()


def test_without_an_estimate_a_launch_is_refused(tmp_path: Path) -> None:
    refused = launched(tmp_path, "--max-gpu-hours", "8")
    assert (refused.exit_code, "demo-vanilla" in refused.stderr) == (2, True)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("hours", ["-1", "nan", "many"])
def test_a_wrong_budget_is_refused(tmp_path: Path, hours: str) -> None:
    refused = launched(tmp_path, "--max-gpu-hours", hours)
    assert (refused.exit_code, "--max-gpu-hours" in refused.stderr) == (2, True)
    with pytest.raises(suite.BadSuite, match="max-gpu-hours"):
        suite.read(suite_file(tmp_path, f'max-gpu-hours = "{hours}"'))


@pytest.mark.usefixtures("known")
def test_a_dry_run_of_a_suite_adds_up_what_is_left(tmp_path: Path) -> None:
    words = ["suite", str(suite_file(tmp_path)), "--dry-run"]
    shown = CliRunner().invoke(jobs, words)
    assert (shown.exit_code, shown.output.count("estimate: ")) == (0, 2)
    assert "Total: 16.0" in shown.output
    refused = CliRunner().invoke(jobs, [*words, "--max-gpu-hours", "15.9"])
    assert (refused.exit_code, "15.9" in refused.stderr, "16.0" in refused.stderr) == (2, True, True)
    assert not (tmp_path / "runs").exists()
