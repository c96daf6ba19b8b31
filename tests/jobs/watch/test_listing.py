"""The runs of a folder as a list."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from jobs.__main__ import main
from jobs.run.folder import RunFolder
from jobs.work.worker import run_shard
from tests.jobs.runs import plan


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[RunFolder]:
    """A run that is finished, a newer one that is not begun, and one whose specification is damaged."""
    monkeypatch.chdir(tmp_path)
    finished, waiting, damaged = (plan(Path("runs"), samples=n) for n in (1, 2, 3))
    run_shard(str(finished.path), 0)
    os.utime(finished.spec_path, (0, finished.spec_path.stat().st_mtime - 3 * 86_400))
    damaged.spec_path.write_text("{")
    return [finished, waiting, damaged]


def test_runs_are_listed_with_what_they_are_and_how_far_they_are(runs: list[RunFolder]) -> None:
    result = CliRunner().invoke(main, ["list", "--json"])
    assert result.exit_code == 0, result.output
    waiting, finished, damaged = json.loads(result.stdout)
    assert [found["run"] for found in (finished, waiting, damaged)] == [str(run.path) for run in runs]
    assert [found["state"] for found in (finished, damaged)] == ["finished", "damaged"]
    assert (finished["finished"], finished["planned"], waiting["finished"], waiting["planned"]) == (8, 8, 0, 16)
    assert (finished["method"], finished["dataset"], finished["target"]) == ("speccot", "demo", "scripted")
    assert "spec.json" in damaged["error"]


def test_a_run_on_which_nothing_works_is_stopped_and_one_that_vanishes_meanwhile_does_not_end_the_list(
    runs: list[RunFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    finished, waiting, _ = runs
    waiting.journal_dir.mkdir(exist_ok=True)
    (waiting.journal_dir / "20260101T000000.000000-n1-1.jsonl").touch()

    def found() -> list[str]:
        result = CliRunner().invoke(main, ["list", "--json"])
        assert result.exit_code == 0, result.output
        states = {run["run"]: run["state"] for run in json.loads(result.stdout)}
        rows = CliRunner().invoke(main, ["list"]).output
        assert all(state in rows for state in states.values()), "the table has the same words"
        return [states[str(run.path)] for run in (finished, waiting)]

    assert found() == ["finished", "stopped"]

    def vanishes(run: RunFolder) -> list[object]:
        raise FileNotFoundError(2, "No such file or directory", f"{run.path}")

    monkeypatch.setattr("jobs.run.submissions.read", vanishes)
    assert found() == ["finished", "damaged"]


def test_a_folder_without_runs_says_so_and_one_that_is_missing_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(main, ["list"]).output.endswith(f" {tmp_path}\n")
    assert CliRunner().invoke(main, ["list", "nothing"]).exit_code == 2
