"""A night that is killed in three places: its runs are resumed, graded and judged without anybody's help."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.engines.factory import SCRIPTED_SECONDS
from jobs.nights.record import NightRecord
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
limit = 10
samples = 1
shards = 2
concurrency = 4
mem = "1G"

[[run]]
method = "speccot"
drafts = 2

[[run]]
method = "specreason"

[nightly]
notify-command = ["{python}", "-c", "import sys; open(sys.argv[1], 'a').write(sys.argv[2] + chr(10))", "{told}", "{{verdict}}"]
"""


class Night:
    """A night on the cluster."""

    def __init__(self, folder: Path) -> None:
        self.told = folder / "told.txt"
        self.file = folder / "small.toml"
        self.file.write_text(SUITE.format(output=folder / "runs", python=sys.executable, told=self.told), "utf-8")
        self.environment = {**os.environ, SCRIPTED_SECONDS: "0.3", "COLUMNS": "200"}
        self.page = folder / "runs" / "nights" / f"{NIGHT}.md"
        self.record = NightRecord(self.page.with_suffix(".jsonl"))
        self.printed = self.launch()
        self.runs = run_folders([folder / "runs"])

    def launch(self) -> str:
        arguments = ["nightly", "--suite", str(self.file), "--date", NIGHT]
        return harness("jobs", *arguments, environment=self.environment)

    def kill_worker(self) -> None:
        """Kill a worker that has accepted steps, with SIGKILL."""
        wait_for(lambda: any(path.stat().st_size > 3000 for run in self.runs for path in run.journals()), "steps")
        journal = next(path for run in self.runs for path in run.journals() if path.stat().st_size > 3000)
        os.kill(int(json.loads(journal.read_bytes().splitlines()[0])["pid"]), signal.SIGKILL)


def kill_job(ending: str) -> str:
    """Wait until a job runs whose name ends so, and kill its processes as soon as there are any; returns its id."""

    def running() -> list[str]:
        lines = slurm_output("squeue", "-h", "-t", "R", "-o", "%i|%j").splitlines()
        return [job for job, _, name in (line.partition("|") for line in lines) if name.endswith(ending)]

    wait_for(running, f"a running job {ending}", 120)
    [job, *_] = running()
    end = time.monotonic() + 20
    while time.monotonic() < end:
        listed = subprocess.run(["scancel", "--signal=KILL", "--full", job], capture_output=True, check=False)
        if listed.returncode or job not in running():
            break
        time.sleep(0.1)
    return job


def test_a_night_killed_in_three_places_ends_with_a_right_verdict_unattended(tmp_path: Path) -> None:
    night = Night(tmp_path)
    assert "the verdict is job" in night.printed
    night.kill_worker()
    kill_job(".finalize")
    killed = kill_job(".verdict")
    wait_for(lambda: night.record.is_concluded, "the verdict", 240)
    wait_for(lambda: not slurm_output("squeue", "-h"), "no job left")

    for run in night.runs:
        assert by_shard(RunFolder(run.path), read_endings(run)).num_unfinished == 0
    page = night.page.read_text()
    assert page.startswith(f"**INCONCLUSIVE: night of {NIGHT}, 2 cells**"), page
    assert "0 of 3 nights of baseline" in page, "what is inconclusive is the first night, not its samples"
    assert "PARTIAL" not in page
    assert "were submitted again" in page
    assert night.told.read_text() == "INCONCLUSIVE\n", "told once"
    last = night.record.last("started")
    assert last is not None
    exit_code = ("sacct", "-n", "-X", "-P", "-j", last["job"], "-o", "state,exitcode")
    wait_for(lambda: slurm_output(*exit_code).split() == ["FAILED|4:0"], "the verdict's exit code in accounting")
    assert killed != last["job"]
