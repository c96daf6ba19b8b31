"""The chaos loop (`python -m tools.chaos`) with a few kills on this machine, and its strikes on Slurm."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.run import submissions
from jobs.run.submissions import Submission
from tests.jobs.runs import plan
from tests.jobs.slurm.fake import FakeSlurm
from tools.chaos.comparison import Content, differences
from tools.chaos.disturbed_run import DisturbedRun
from tools.chaos.kinds import ON_SLURM

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


def test_strikes_on_slurm_are_the_orders_of_an_operator(tmp_path: Path, slurm: FakeSlurm) -> None:
    run = plan(tmp_path / "round" / "runs", shards=2)
    submissions.record(run, Submission(0, "run.0", [[0], [1]], 0.0))
    disturbed = DisturbedRun(tmp_path / "round", tmp_path / "none.so", True, 0.0, [])
    expected = {
        "scancel of a task": ["scancel 40_1"],
        "scancel of the array": ["scancel --name=run.0"],
        "requeue": ["scontrol requeue 40_1"],
        "suspend and resume": ["scontrol suspend 40_1", "scontrol resume 40_1"],
    }
    slurm.prints(scancel="", scontrol="", squeue="")
    assert not any(ON_SLURM[kind](disturbed, random.Random(1)) for kind in expected), "nothing to kill"
    slurm.prints(squeue="run.0|1|42|40|RUNNING|n1|None|0|me|1:00")
    for kind, orders in expected.items():
        before = len(slurm.calls())
        assert ON_SLURM[kind](disturbed, random.Random(1))
        assert [call for call in slurm.calls()[before:] if not call.startswith("squeue")] == orders
