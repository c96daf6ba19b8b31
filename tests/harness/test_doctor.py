"""The doctor's command: flags, table, exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.doctor import main

ROOT = Path(__file__).resolve().parents[2]


def doctor(*arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "harness.doctor", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--method", "specot"), "'speccot'"),
        (("--data-dir", "no/such"), "no/such"),
        (("--dry-run",), "--dry-run"),
        (
            ("--method", "vanilla", "--draft", "nosuch"),
            "--draft nosuch: vanilla --model target generates only",
        ),
        (("--reward", "ftp://host/v1"), "--reward: not an address of a server; valid: http://HOST:PORT/v1"),
    ],
)
def test_wrong_flags_get_one_line_and_exit_code_2(arguments: tuple[str, ...], message: str) -> None:
    result = CliRunner().invoke(main, arguments)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert message in result.stderr


def test_exit_code_and_table_say_whether_something_failed(tmp_path: Path) -> None:
    flags = ("--method", "speccot", "--dataset", "demo", "--engine", "scripted", "--cluster", "local")
    good = doctor(*flags, "--json", cwd=tmp_path)
    checks = json.loads(good.stdout)["here"]["checks"]
    assert (good.returncode, [check for check in checks if check["status"] == "failure"]) == (0, [])
    assert {"python", "engine", "dataset", "output", "file locking"} <= {check["subject"] for check in checks}
    (tmp_path / "demo.jsonl").write_text("{}\n")
    bad = doctor(*flags, "--data-dir", ".", cwd=tmp_path)
    assert bad.returncode == 1
    assert bad.stdout.count("FAILURE") == 1
    assert not (tmp_path / "runs").exists()
