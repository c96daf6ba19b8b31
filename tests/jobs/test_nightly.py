"""Nights: launched under their date, judged when they have ended, suspicions confirmed by themselves."""

from __future__ import annotations

import shutil
from datetime import date
from pathlib import Path

import pytest

from harness.engine import Sampling
from harness.engines.scripted import SimulatedModel
from jobs import drive, nightly
from jobs import suite as suites
from jobs.finished import grading
from jobs.nightly import Night
from jobs.run.folder import run_folders
from jobs.work.worker import run_parts
from warehouse.loading.runs import load_runs
from warehouse.nightly.judge import EXIT_CODES

SUITE = """
output = "{output}"
engine = "scripted"
cluster = "debug"
dataset = "demo"
limit = 16
samples = 2

[[run]]
method = "vanilla"

[[run]]
method = "speccot"
drafts = 2
"""
NIGHTS = [date(2026, 1, day) for day in range(1, 9)]


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight nights on which nothing happened, loaded at once; the first and the last are then launched as such."""
    folder = tmp_path_factory.mktemp("nights")
    path = folder / "small.toml"
    path.write_text(SUITE.format(output=folder / "runs"), encoding="utf-8")
    launches = [one for night in NIGHTS for one in suites.prepare(Night.read(path, night).suite, f"{night}")]
    for one in launches:
        drive.create(one)
    run_parts([(str(one.run.path), [0]) for one in launches])
    for one in launches:
        grading.finish(one.run)
    list(load_runs([one.run for one in launches], folder / "runs" / "warehouse.duckdb"))
    for night in (NIGHTS[0], NIGHTS[7]):
        assert nightly.launch(Night.read(path, night)) is None
    return path


def verdict(suite: Path, night: date) -> str:
    return (suite.parent / "runs" / "nights" / f"{night}.md").read_text()


def test_the_first_nights_are_inconclusive_and_then_pass(suite: Path) -> None:
    for night, found in ((NIGHTS[0], "INCONCLUSIVE"), (NIGHTS[7], "PASS")):
        assert nightly.conclude(Night.read(suite, night)) == {"INCONCLUSIVE": 4, "PASS": 0}[found]
        assert verdict(suite, night).startswith(f"**{found}: night of {night}, 2 cells")


def test_a_drop_is_confirmed_by_a_second_run_and_fails_the_night(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The target's answers are wrong from now on, in the re-run too."""
    write = SimulatedModel.write

    def worse(self: SimulatedModel, prompt: str, sampling: Sampling) -> list[str]:
        return [text.replace("boxed{", "boxed{9") for text in write(self, prompt, sampling)]

    monkeypatch.setattr(SimulatedModel, "write", worse)
    night = date(2026, 1, 9)
    nightly.launch(Night.read(suite, night))
    before = {run.path.name for run in run_folders([suite.parent / "runs"])}
    of_no_budget = Night.read(suite, night, {"max_gpu_hours": 1e-9})
    assert nightly.conclude(of_no_budget) == EXIT_CODES["FAIL"], "what confirms is not part of the budget"
    assert verdict(suite, night).startswith("**FAIL")
    assert "confirmed by a rerun" in verdict(suite, night)
    assert "Recovered" not in verdict(suite, night), "nothing died"
    again = {run.path.name: run for run in run_folders([suite.parent / "runs"])}.keys() - before
    assert len(again) == 2, "only what was suspicious was run again"
    tags = {run.spec().tag for run in run_folders([suite.parent / "runs"]) if run.path.name in again}
    assert tags == {"2026-01-09.confirm"}


def test_nights_whose_folders_and_database_are_gone_remain_the_baseline(suite: Path) -> None:
    output = suite.parent / "runs"
    for run in run_folders([output]):
        if run.spec().tag in {str(night) for night in NIGHTS[:7]}:
            shutil.rmtree(run.path)
    (output / "warehouse.duckdb").unlink()
    nightly.conclude(Night.read(suite, NIGHTS[7]))
    assert verdict(suite, NIGHTS[7]).startswith(f"**PASS: night of {NIGHTS[7]}, 2 cells")
    (output / "warehouse.nights.jsonl").unlink()
    nightly.conclude(Night.read(suite, NIGHTS[7]))
    assert "0 of 7 baseline nights" in verdict(suite, NIGHTS[7])
