"""Several workers with shards in common: whoever is free takes the next one, and what a dead one leaves, once."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from harness.engines.scripted import SCRIPTED_SECONDS
from jobs.run import trace_files
from jobs.run.endings import compact, read_endings
from jobs.run.folder import RunFolder
from jobs.work.run_part import FreeShards
from jobs.work.worker import Unfinished, run_parts, run_side_by_side
from tests.jobs.runs import finished_ids, plan, planned_ids, wait_for_steps


def with_shards_of(run: RunFolder, sizes: Sequence[int]) -> RunFolder:
    """Divide a run of one shard into shards of these numbers of samples."""
    [units] = run.shards()
    ends = [sum(sizes[: number + 1]) for number in range(len(sizes))]
    assert ends[-1] == len(units)
    run.assign_again([units[end - size : end] for end, size in zip(ends, sizes, strict=True)])
    return run


def shards_by_process(run: RunFolder) -> dict[int, set[int]]:
    """The shards that samples were finished of, by the process that did."""
    shard_of = {unit.sample_id: number for number, units in enumerate(run.shards()) for unit in units}
    ran: dict[int, set[int]] = defaultdict(set)
    for path in run.trace_files():
        process = json.loads(trace_files.read_metadata(path)["attempt"])["pid"]
        ran[process] |= {shard_of[row["sample_id"]] for row in trace_files.read_rows(path)}
    return dict(ran)


def ended(run: RunFolder) -> set[str]:
    return set(read_endings(run).finished.to_pylist())


def slow_worker(run: RunFolder) -> subprocess.Popen[bytes]:
    return slow_worker(run)


def killed_after(run: RunFolder, steps: int) -> None:
    """Run shard 0 in a process that is killed after it has accepted further steps."""
    before = {path.name for path in run.journals()}
    worker = slow_worker(run)
    while not {path.name for path in run.journals()} - before:
        time.sleep(0.02)
    wait_for_steps(run, steps)
    worker.kill()
    worker.wait()


def test_the_shard_with_the_most_unfinished_samples_is_taken_first(tmp_path: Path) -> None:
    run = with_shards_of(plan(tmp_path, samples=6), [9, 12, 9, 18])
    run_parts([(str(run.path), [3])])
    free = FreeShards(run, [0, 1, 2, 3], first=2)
    with contextlib.ExitStack() as locks:
        taken = [free.take(locks) for _ in range(4)]
    assert [shard and shard[0] for shard in taken] == [1, 2, 0, None]


def test_a_shard_over_which_two_workers_have_died_is_left_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = plan(tmp_path, samples=30)
    killed_after(run, 1)
    free = FreeShards(run, [0])
    with run.shard_lock(0), contextlib.ExitStack() as locks:
        assert free.take(locks) is None, "another worker has it"
    for steps in (20, 60):
        with contextlib.ExitStack() as locks:
            taken = free.take(locks)
            assert taken is not None, "one death is retried, and those before this worker began do not count"
            assert {unit.sample_id for unit in taken[1]} == set(planned_ids(run)) - ended(run)
        killed_after(run, steps)
    with contextlib.ExitStack() as locks:
        assert free.take(locks) is None
    assert run.path.name in capfd.readouterr().err.splitlines()[-1]


def test_a_task_fails_where_every_worker_dies_and_names_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SCRIPTED_SECONDS, "0.1")
    run = plan(tmp_path, shards=3)

    def kill_all() -> None:
        wait_for_steps(run, 4)
        for process in psutil.Process().children():
            if "jobs.work.worker" in process.cmdline():
                process.send_signal(signal.SIGKILL)

    killer = threading.Thread(target=kill_all)
    killer.start()
    with pytest.raises(Unfinished, match=r"2 of 2 workers failed: worker 0: exit code -9; worker 1: .*; unfinished: s"):
        run_side_by_side([(str(run.path), [0, 1, 2])], 2)
    killer.join()
    run_parts([(str(run.path), [0, 1, 2])])
    compact(run)
    assert finished_ids(run) == planned_ids(run)


def test_tasks_that_slurm_starts_for_a_job_take_the_shards_that_are_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = plan(tmp_path, shards=4)
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
    monkeypatch.setenv("SLURM_PROCID", "1")
    lock = (run.locks_dir / "shard-0.lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    releasing = threading.Timer(1.5, lock.close)
    releasing.start()
    assert run_parts([(str(run.path), [0, 1, 2, 3])]) == len(planned_ids(run))
    releasing.join()
    assert shards_by_process(run) == {os.getpid(): {0, 1, 2, 3}}
