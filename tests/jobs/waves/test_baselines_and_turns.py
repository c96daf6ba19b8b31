"""The baseline of a launch in waves, runs at temperature 0 in it, and that one launch at a time decides."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from filelock import Timeout

from harness.cli import exit_codes
from jobs.run import waves
from jobs.run.folder import RunFolder, run_folders
from tests.jobs.waves.test_launch_in_waves import ALONE, OWN, launched

ROOT = Path(__file__).resolve().parents[3]
SECONDS = 120


@pytest.fixture(scope="module")
def whole_baseline(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """The target alone with all of its samples."""
    output = tmp_path_factory.mktemp("whole") / "runs"
    assert launched(output, *ALONE, "--samples", "4") == 0
    [run] = run_folders([output])
    return run


def in_waves(output: Path, *words: str) -> int:
    return launched(output, *OWN, "--samples", "4", "--until-decided", "--dry-run", *words)


def test_a_baseline_is_found_by_its_name_in_the_folder_of_the_runs(
    whole_baseline: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    output, name = whole_baseline.path.parent, whole_baseline.path.name
    for text in (name, name[:-3]):
        assert in_waves(output, "--baseline", text) == 0
        assert f"Compared with {name}" in capsys.readouterr().out


def test_a_baseline_that_is_not_found_is_refused_with_the_places_that_were_looked_at(
    whole_baseline: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    output = whole_baseline.path.parent
    assert in_waves(output, "--baseline", "nowhere") == exit_codes.WRONG_INPUT
    told = capsys.readouterr().err
    assert f"no run in {output} and" in " ".join(told.split())
    assert whole_baseline.path.name in told, "the runs that are there"


def test_a_baseline_that_was_sent_other_built_in_prompts_is_refused(
    whole_baseline: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    older, read = whole_baseline.path.name, RunFolder.spec

    def spec(run: RunFolder) -> object:
        found = read(run)
        return replace(found, prompt_hash="0123456789abcdef") if run.path.name == older else found

    monkeypatch.setattr(RunFolder, "spec", spec)
    assert in_waves(whole_baseline.path.parent, "--baseline", str(whole_baseline.path)) == exit_codes.WRONG_INPUT
    told = " ".join(capsys.readouterr().err.split())
    assert f"--baseline {older}: it was begun with other built-in prompts (0123456789abcdef)" in told


def test_sampled_drafts_of_a_greedy_target_are_drawn_in_waves_and_it_is_said_which_run_repeats_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "runs"
    words = (*OWN, "--samples", "4", "--temperature", "0", "--draft-temperature", "0.6", "--until-decided")
    assert launched(output, *words, "--dry-run") == 0
    assert launched(output, *words) == 0
    told = " ".join(capsys.readouterr().out.split())
    runs = {run.spec().method: run for run in run_folders([output])}
    alike = f"At temperature 0 every sample of a problem is the same in {runs['vanilla'].path.name}:"
    assert told.count(alike) == 2


def test_of_two_launches_at_one_moment_the_second_is_refused_by_name_and_one_margin_decides(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "runs"
    words = [*OWN, "--samples", "200", "--until-decided", "--output", str(output), "--margin"]
    first = subprocess.Popen([sys.executable, "-m", "harness.launch", *words, "60"], cwd=ROOT)
    try:
        wait_until_drawing(output)
        assert launched(output, *words[:-3], "--margin", "61") == exit_codes.WRONG_INPUT
        told = " ".join(capsys.readouterr().err.split())
        assert "another launch is drawing" in told
        assert "the same command once that one has ended" in told
        assert first.wait(SECONDS) == 0
    finally:
        first.kill()
        first.wait()
    states = [waves.read(run) for run in run_folders([output])]
    assert {state.margin for state in states if state is not None} == {0.6}
    assert launched(output, *words[:-3], "--margin", "61") == exit_codes.WRONG_INPUT
    assert "was decided with a margin of 60 points" in " ".join(capsys.readouterr().err.split())


def wait_until_drawing(output: Path) -> None:
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        for run in run_folders([output]) if output.is_dir() else ():
            try:
                with run.waves_lock():
                    pass
            except Timeout:
                return
        time.sleep(0.05)
    raise AssertionError("no run is drawn in waves")
