"""The doctor's command: flags, table, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.doctor import main


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--method", "specot"), "'speccot'"),
        (("--dry-run",), "--dry-run"),
        (("--reward", "ftp://host/v1"), "--reward: not a server address; valid: http://HOST:PORT/v1"),
    ],
)
def test_wrong_flags_get_one_line_and_exit_code_2(arguments: tuple[str, ...], message: str) -> None:
    result = CliRunner().invoke(main, arguments)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert message in result.stderr


def test_exit_code_and_table_say_whether_something_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    flags = ("--method", "speccot", "--dataset", "demo", "--engine", "scripted", "--cluster", "local")
    good = CliRunner().invoke(main, [*flags, "--json"])
    checks = json.loads(good.stdout)["here"]["checks"]
    assert (good.exit_code, [check for check in checks if check["status"] == "failure"]) == (0, [])
    assert {"python", "engine", "dataset", "output", "file locking"} <= {check["subject"] for check in checks}
    (tmp_path / "demo.jsonl").write_text("{}\n")
    bad = CliRunner().invoke(main, [*flags, "--data-dir", "."])
    assert (bad.exit_code, bad.stdout.count("FAILURE")) == (1, 1)
    assert not (tmp_path / "runs").exists()
