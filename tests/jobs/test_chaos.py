"""The chaos loop (`python -m tools.chaos`) with a few kills on this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tools.chaos.comparison import Content, differences

KINDS = ["all workers, SIGKILL", "clock step", "journal truncated", "worker, SIGSTOP and SIGCONT"]


@pytest.mark.needs_tool("compiler")
@pytest.mark.needs_tool("proc")
def test_a_few_kills_change_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tools.chaos", str(tmp_path), "--here", "--kills", "2", "--seed", "3"]
    command += ["--samples", "1", "--shards", "2", "--seconds-per-call", "0.3", "--launch=--limit=8"]
    command += [f"--kind={kind}" for kind in KINDS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 lost, 0 doubled; 0 rounds differ" in done.stdout, done.stdout
    events = [json.loads(line) for line in (tmp_path / "chaos.jsonl").read_text().splitlines()]
    assert sum(event.get("struck", False) for event in events) == 2
    again = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert again.stdout == done.stdout, "the same command goes on, and there is nothing left"


def test_what_a_kill_changes_is_found() -> None:
    right = Content({"a": "x", "b": "y"}, ((0.5,),), {"step": (2, 17)}, 0, 0)
    wrong = Content({"a": "x", "b": "z"}, ((0.4,),), {"step": (3, 18)}, 1, 2)
    assert differences(right, right) == []
    assert len(differences(wrong, right)) == 5
