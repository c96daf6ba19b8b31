"""A night that is killed in three places: its runs are resumed, graded and judged without anybody's help."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from harness.engines.scripted import SCRIPTED_SECONDS
from jobs.recovery import NightRecord
from jobs.run.endings import by_shard, read_endings
from jobs.run.folder import RunFolder, run_folders
from tests.slurm.conftest import harness, slurm_output, wait_for

pytestmark = pytest.mark.slurm
NIGHT = "2026-01-01"
SUITE = """
output = "{output}"
engine = "scripted"
cluster = "slurm"
dataset = "demo"
limit = 6
samples = 1
shards = 2
concurrency = 4
mem = "1G"

[[run]]
method = "speccot"
drafts = 2

[[run]]
method = "specreason"
"""


class Night:
    def __init__(self, folder: Path) -> None:
        self.file = folder / "small.toml"
        self.file.write_text(SUITE.format(output=folder / "runs"), "utf-8")
        self.environment = {**os.environ, SCRIPTED_SECONDS: "0.3", "COLUMNS": "200"}
        self.page = folder / "runs" / "nights" / f"{NIGHT}.md"
        self.record = NightRecord(self.page.with_suffix(".jsonl"))
        harness("jobs", "nightly", "--suite", str(self.file), "--date", NIGHT, environment=self.environment)
        self.runs = run_folders([folder / "runs"])

    def kill_worker(self) -> None:
        """Kill a worker that has accepted steps, with SIGKILL; one that has ended meanwhile is passed over."""

        def killed() -> bool:
            for journal in [path for run in self.runs for path in run.journals()]:
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    if journal.stat().st_size > 3000:
                        os.kill(int(json.loads(journal.read_bytes().splitlines()[0])["pid"]), signal.SIGKILL)
                        return True
            return False

        wait_for(killed, "steps")


def running(ending: str) -> list[str]:
    """Return the ids of the running jobs whose names end so."""
    lines = slurm_output("squeue", "-h", "-t", "R", "-o", "%i|%j").splitlines()
    return [job for job, _, name in (line.partition("|") for line in lines) if name.endswith(ending)]


def python_of(job: str) -> list[psutil.Process]:
    """Return the process of a job that runs its function; another cluster has a job of the same id."""
    own = {"SLURM_JOB_ID": job, "SLURM_CONF": os.environ["SLURM_CONF"]}
    found = []
    for process in psutil.process_iter(["cmdline"]):
        with contextlib.suppress(psutil.Error):
            is_task = "jobs.submission.task" in (process.info["cmdline"] or []) and "srun" not in process.name()
            if is_task and own.items() <= process.environ().items() and "SLURM_STEP_ID" in process.environ():
                found.append(process)
    return found


def kill_next(ending: str, also: Callable[[], object] = lambda: True) -> str:
    """Wait until a job runs whose name ends so and `also` holds, and kill it with SIGKILL; returns its id."""
    wait_for(lambda: any(map(python_of, running(ending))) and also(), f"a running job {ending}", 120)
    job = next(job for job in running(ending) if python_of(job))
    for process in python_of(job):
        process.kill()
    wait_for(lambda: job not in running(ending), f"the end of job {job}")
    return job


def test_a_night_killed_in_three_places_ends_with_a_right_verdict_unattended(tmp_path: Path) -> None:
    night = Night(tmp_path)
    night.kill_worker()
    wait_for(lambda: night.record.events("handed on"), "the night to submit what was killed", 120)
    kill_next(".finalize")
    killed = kill_next(".verdict", lambda: len(night.record.events("started")) == 2)
    wait_for(lambda: night.record.last("concluded") is not None, "the verdict", 120)
    wait_for(lambda: not slurm_output("squeue", "-h"), "no job left")

    for run in night.runs:
        assert by_shard(RunFolder(run.path), read_endings(run)).num_unfinished == 0
    page = night.page.read_text()
    assert page.startswith(f"**INCONCLUSIVE: night of {NIGHT}, 2 cells"), page
    assert "PARTIAL" not in page
    submitted, graded, started, handed_on = map(night.record.events, ("recovered", "graded", "started", "handed on"))
    assert submitted
    assert graded, "by the verdict job"
    assert len(started) == len(handed_on) + 2, "it was started again once after it had died"
    last = night.record.last("started")
    assert last is not None
    exit_code = ("sacct", "-n", "-X", "-P", "-j", last["job"], "-o", "state,exitcode")
    wait_for(lambda: slurm_output(*exit_code).split() == ["FAILED|4:0"], "the verdict's exit code in accounting")
    assert slurm_output("sacct", "-n", "-X", "-P", "-j", killed, "-o", "state,exitcode").split() == ["FAILED|9:0"]
