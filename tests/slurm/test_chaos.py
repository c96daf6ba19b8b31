"""The chaos loop (`python -m tools.chaos`) with a few kills on Slurm."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools.chaos.__main__ import events_in

pytestmark = [pytest.mark.slurm, pytest.mark.needs_tool("compiler")]
KINDS = (
    "worker, SIGKILL",
    "all workers, SIGKILL",
    "journal truncated",
    "trace file truncated",
    "worker, SIGSTOP and SIGCONT",
    "scancel of a task",
    "scancel of the array",
    "requeue",
    "node",
    "slurmctld",
)
KILLS = 8


def test_random_kills_change_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tools.chaos", str(tmp_path), "--kills", f"{KILLS}", "--seed", "3"]
    command += ["--samples", "1", "--shards", "2", "--seconds-per-call", "1", *(f"--kind={kind}" for kind in KINDS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    events = events_in(tmp_path / "chaos.jsonl")
    assert sum(event.get("struck", False) for event in events) == KILLS
    rounds = [event for event in events if "round" in event]
    assert rounds
    assert {(one["lost"], one["doubled"], *one["differences"]) for one in rounds} == {(0, 0)}
