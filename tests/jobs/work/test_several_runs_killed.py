"""A worker with three runs that is killed at random moments: nothing recorded is lost, and nothing is done twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from jobs.run.endings import by_shard, compact, read_endings
from jobs.run.folder import RunFolder
from jobs.work.worker import run_parts
from tests.jobs.runs import finished_ids, plan, planned_ids, texts
from tests.slurm.ledger import Witness

_NUM_KILLS = 3
_SLOW_WORKER = """
import os, sys
os.environ["HARNESS_SCRIPTED_SECONDS"] = "0.01"
from jobs.work.worker import run_parts
run_parts([(folder, [0, 1]) for folder in sys.argv[1:]])
"""


def three_runs(folder: Path) -> list[RunFolder]:
    methods = [{"drafts": 2}, {"drafts": 3}, {"method": "specreason"}]
    return [plan(folder, samples=2, shards=2, **options) for options in methods]  # type: ignore[arg-type]


def is_complete(runs: list[RunFolder]) -> bool:
    return not any(by_shard(run, read_endings(run)).num_unfinished for run in runs)


def test_whatever_moment_a_shared_worker_is_killed_at_every_sample_exists_once(tmp_path: Path) -> None:
    dice = random.Random(20261123)
    undisturbed = three_runs(tmp_path / "undisturbed")
    run_parts([(str(run.path), [0, 1]) for run in undisturbed])

    runs = three_runs(tmp_path / "killed")
    command = [sys.executable, "-c", _SLOW_WORKER, *(str(run.path) for run in runs)]
    witnesses = [Witness(run) for run in runs]
    kills = steps = 0
    while not is_complete(runs):
        before = {path for run in runs for path in run.journals()}
        worker = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        while worker.poll() is None and not {path for run in runs for path in run.journals()} - before:
            time.sleep(0.01)
        if kills < _NUM_KILLS:
            time.sleep(dice.uniform(0.05, 0.9))
            os.kill(worker.pid, signal.SIGKILL)
            kills += 1
        worker.wait()
        for witness in witnesses:
            witness.look()
            steps += witness.steps
    for run, witness, other in zip(runs, witnesses, undisturbed, strict=True):
        compact(run)
        assert Counter(finished_ids(run)) == Counter(planned_ids(run))
        assert texts(run) == texts(other), "a resumed sample draws the same steps as an undisturbed one"
        assert witness.lost() == 0, "no recorded call was made again"
    assert steps, "kills came in the middle of samples"
