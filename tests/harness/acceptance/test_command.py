"""The command: wrong flags, exit codes, the table with the JSON beside it, and the whole of it on this machine."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from harness import environment
from harness.acceptance import __main__ as command
from harness.acceptance.catalog import CHECKS, Check
from harness.acceptance.outcome import Goal, Measurement, judged
from harness.acceptance.supervision import Supervisor

ROOT = Path(__file__).resolve().parents[3]


def run(*words: str) -> Result:
    return CliRunner().invoke(command.main, list(words))


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, int]:
    """What checks measure in place of engines, by name; the goal is 1, and 1 is measured where nothing is said."""
    values: dict[str, int] = {}

    def made(self: Supervisor, checks: Sequence[Check]) -> Iterator[object]:
        for check in checks:
            yield judged(check.name, [Measurement("n", values.get(check.name, 1), goal=Goal("=", 1))], 0.1)

    monkeypatch.setattr(Supervisor, "run", made)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(environment, "accelerator", lambda: "cpu")
    return values


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--only", "speed"], "'speed' is not one of environment, start"),
        (["--skip", "start,speed"], "'speed' is not one of environment, start"),
        (["--only", ""], "leave no check"),
        (["--target", "no/such/model/here"], "unknown model"),
        (["--output", "/nowhere/at/all.json"], "the folder /nowhere/at does not exist"),
        (["--engine", "scripted"], "'scripted' is not one of"),
        (["--time-limit", "0"], "0"),
    ],
)
def test_wrong_flags_are_one_line_and_exit_code_2(words: list[str], message: str) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_an_engine_that_is_not_installed_is_a_wrong_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None if name == "vllm" else name)
    result = run("--engine", "vllm")
    assert result.exit_code == 2
    assert "--engine vllm is not installed here with torch; installed: transformers" in result.stderr


def test_every_check_has_its_row_and_nothing_failed_is_exit_code_0(measured: dict[str, int], tmp_path: Path) -> None:
    output = tmp_path / "a.json"
    result = run("--engine", "transformers", "--output", str(output))
    assert result.exit_code == 0
    rows = [line.split()[0] for line in result.stdout.splitlines()]
    assert rows == ["check", *CHECKS, str(len(CHECKS))]
    content = json.loads(output.read_text())
    assert [check["check"] for check in content["checks"]] == list(CHECKS)
    skipped = {check["check"]: check["reason"] for check in content["checks"] if check["status"] == "SKIPPED"}
    assert skipped["prefix-cache"] == "the transformers engine has no prefix cache"
    assert {"verdicts", "worker-killed", "preempted"} <= CHECKS.keys() - skipped.keys()


def test_one_failed_check_is_exit_code_1(measured: dict[str, int], tmp_path: Path) -> None:
    measured["purposes"] = 0
    result = run("--engine", "transformers", "--only", "purposes,start", "--output", str(tmp_path / "a.json"))
    assert result.exit_code == 1
    assert "FAIL: not met: n" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("2 checks in 0 s: 1 passed, 1 failed, 0 skipped")
    assert json.loads((tmp_path / "a.json").read_text())["counts"] == {"PASS": 1, "FAIL": 1}


def test_the_list_names_every_check_with_its_goal() -> None:
    result = run("--list")
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.stdout.splitlines()[::2]] == list(CHECKS)
    assert all(line.strip().startswith("goal: ") for line in result.stdout.splitlines()[1::2])
