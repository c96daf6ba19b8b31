"""The runs of a folder as a list."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from harness.cli.screen import Screen
from jobs.__main__ import main
from jobs.run.folder import RunFolder
from jobs.watch.status import ListedRun, table_of
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
    assert [found["state"] for found in (finished, waiting, damaged)] == ["finished", "not begun", "damaged"]
    assert (finished["finished"], finished["planned"], waiting["finished"], waiting["planned"]) == (8, 8, 0, 16)
    assert (finished["method"], finished["dataset"], finished["target"]) == ("speccot", "demo", "scripted")
    assert "spec.json" in damaged["error"]


def test_the_table_of_runs_has_a_line_for_each(runs: list[RunFolder]) -> None:
    lines = CliRunner().invoke(main, ["list", "runs"]).output.splitlines()
    assert [line.split()[0] for line in lines[1:]] == [str(runs[number].path) for number in (1, 0, 2)]
    assert lines[0].split() == ["run", "models", "state", "samples", "age"]
    assert lines[2].split()[-6:] == ["finished", "8/8", "72", "h", "0", "min"]
    assert lines[1].split()[-5:-2] == ["not", "begun", "0/16"]
    assert "damaged" in lines[3]


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
    assert CliRunner().invoke(main, ["list"]).output == f"no run in {tmp_path}\n"
    assert CliRunner().invoke(main, ["list", "nothing"]).exit_code == 2


def test_a_name_stays_on_one_line_where_the_models_have_long_ones() -> None:
    name, models = "runs/stories-specreason-666fc7ac", "a-draft-of-45-letters-" + 23 * "x"
    for is_terminal in (True, False):
        text = io.StringIO()
        console = Console(width=80, file=text, force_terminal=is_terminal)
        Screen(console).table(table_of([ListedRun(name, draft=models, target="target", age_seconds=60.0)]))
        assert name in text.getvalue()
        assert (f"{models} → target" in text.getvalue()) == (not is_terminal)
