"""Runs of a suite in one array on a real Slurm: killed, canceled and launched again, each run stays whole."""

from __future__ import annotations

import itertools
import json
import os
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from harness.engines.scripted import SCRIPTED_SECONDS
from jobs.finished.grading import finished_samples
from jobs.run import submissions, trace_files
from jobs.run.endings import by_shard, read_endings
from jobs.run.folder import RunFolder
from jobs.watch.status import status
from tests.slurm.conftest import harness, slurm_output, wait_for

pytestmark = pytest.mark.slurm
_CALL_SECONDS = 0.5
SUITE = """
output = "{output}"
engine = "scripted"
cluster = "slurm"
dataset = "demo"
limit = 10
samples = 2
shards = 2
concurrency = 4
mem = "1G"

[[run]]
method = "speccot"
drafts = 2

[[run]]
method = "vanilla"

[[run]]
method = "specreason"

[[run]]
method = "speccot"
drafts = 3
"""


class Suite:
    """A suite on the cluster, and its runs in the order of its file."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "shared.toml"
        self.file.write_text(SUITE.format(output=folder / "runs"), encoding="utf-8")
        self.environment = {**os.environ, SCRIPTED_SECONDS: str(_CALL_SECONDS), "COLUMNS": "200"}
        self.launch()
        found = [RunFolder(path) for path in (folder / "runs").glob("demo-*")]
        self.pair = [run for run in found if run.spec().method != "vanilla"]
        [self.alone] = [run for run in found if run.spec().method == "vanilla"]

    def launch(self) -> None:
        harness("jobs", "suite", str(self.file), environment=self.environment)

    def has_ended(self) -> bool:
        return not slurm_output("squeue", "-h")

    def complete(self) -> None:
        for _ in range(6):
            wait_for(self.has_ended, "all jobs to end", 300)
            if all(is_complete(run) for run in (*self.pair, self.alone)):
                return
            self.launch()
        raise AssertionError("not complete after 6 launches")


def is_complete(run: RunFolder) -> bool:
    return by_shard(run, read_endings(run)).num_unfinished == 0


def assert_whole(run: RunFolder) -> None:
    planned = [unit.sample_id for shard in run.shards() for unit in shard]
    assert Counter(sample["sample_id"] for sample, _ in finished_samples(run)) == Counter(planned)
    assert run.derived("grades"), "graded by its own job"


def engine_starts(run: RunFolder) -> set[str]:
    attempts = [json.loads(trace_files.read_metadata(path)["attempt"]) for path in run.trace_files()]
    return {attempt["engines"]["target"]["engine_start"] for attempt in attempts}


def worker_pids(run: RunFolder) -> list[int]:
    pids = [int(json.loads(path.read_bytes().splitlines()[0])["pid"]) for path in run.journals()]
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_a_suite_in_shared_tasks_survives_a_killed_worker_and_a_canceled_run(tmp_path: Path) -> None:
    suite = Suite(tmp_path)
    jobs = {tuple(s.name for s in submissions.read(run)) for run in suite.pair}
    assert len(jobs) == 1, "one array for the three runs of the pair"

    wait_for(lambda: any(map(worker_pids, suite.pair)), "a run of the pair to begin")
    time.sleep(1)
    working = next(run for run in suite.pair if worker_pids(run))
    pid = worker_pids(working)[0]
    os.kill(pid, signal.SIGSTOP)  # so that its run does not end while a slow machine launches the suite again
    suite.launch()
    assert [len(submissions.read(run)) for run in suite.pair] == [1, 1, 1], "these are not submitted again"
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: any(s.state == "stopped" for s in status(working).shards), "a stopped task")
    suite.launch()

    left = [run for run in suite.pair if run.path != working.path and not is_complete(run)][-1]
    harness("jobs", "cancel", str(left.path), environment=suite.environment)
    wait_for(suite.has_ended, "all jobs to end", 300)
    others = [run for run in (*suite.pair, suite.alone) if run.path != left.path]
    assert [is_complete(run) for run in others] == [True] * 3, "nobody else was canceled"
    assert not is_complete(left)
    harness("jobs", "resume", str(left.path), environment=suite.environment)
    suite.complete()
    for run in (*suite.pair, suite.alone):
        assert_whole(run)
    starts = [engine_starts(run) for run in suite.pair]
    assert any(one & other for one, other in itertools.combinations(starts, 2)), "one start served several runs"
