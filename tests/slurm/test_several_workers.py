"""Several workers on one node: the task starts them, or Slurm does."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.run import submissions
from jobs.run.endings import compact
from tests.jobs.runs import finished_ids, planned_ids, texts
from tests.slurm.conftest import Launched, wait_for

pytestmark = pytest.mark.slurm

Launch = Callable[..., Launched]
WORKERS = ("--workers-per-task", "2", "--gpus-per-node", "2", "--slurm", "cpus-per-task=2")


def workers() -> dict[int, str]:
    """The cards of each worker process that a task of this cluster has started, by process id."""
    listed = subprocess.run(["pgrep", "-f", "jobs.work.worker"], capture_output=True, text=True, check=False)
    cards = {}
    for pid in map(int, listed.stdout.split()):
        lines = Path(f"/proc/{pid}/environ").read_text().split("\0")
        variables = dict(line.split("=", 1) for line in lines if "=" in line)
        if variables.get("SLURM_CONF") == os.environ["SLURM_CONF"]:
            cards[pid] = variables.get("CUDA_VISIBLE_DEVICES", "")
    return cards


def log(launched: Launched) -> str:
    return "".join(path.read_text() for path in sorted((launched.run.logs_dir / "jobs").glob("*_log.out")))


def test_what_a_killed_worker_leaves_is_taken_by_its_neighbor(launch: Launch, undisturbed: dict[str, str]) -> None:
    run = launch(*WORKERS, "--shards-per-task", "2", shards=4)
    assert [s.tasks for s in submissions.read(run.run)] == [[[0, 1, 2, 3]]], "one task"
    wait_for(lambda: run.is_running(2), "two workers at work")
    cards = workers()
    assert sorted(cards.values()) == ["0", "1"], "each sees one card of the node's two"
    os.kill(min(cards), signal.SIGKILL)
    wait_for(run.has_ended, "the end of the other worker, and of the job", 180)
    assert [shard.state for shard in run.status().shards] == ["finished"] * 4, log(run)
    assert re.search(r"worker \d: exit code -9\nthe other workers finished the samples of the failed workers", log(run))
    compact(run.run)
    assert finished_ids(run.run) == planned_ids(run.run)
    assert texts(run.run) == undisturbed


def test_slurms_own_tasks_divide_the_shards_of_a_job(launch: Launch, undisturbed: dict[str, str]) -> None:
    run = launch("--slurm", "ntasks-per-node=2", "--gpus-per-node", "2", shards=2)
    assert [s.tasks for s in submissions.read(run.run)] == [[[0, 1]]]
    wait_for(run.has_ended, "the end", 180)
    assert run.status().finished == run.status().planned, log(run)
    assert "ShardBusy" not in log(run)
    assert texts(run.run) == undisturbed
