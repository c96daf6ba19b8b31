"""Several workers on one node: each has shards, cards and cores of its own, and finishes what another one leaves."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from harness.engines.scripted import SCRIPTED_SECONDS
from jobs.run import submissions, trace_files
from jobs.run.endings import compact, read_endings
from jobs.run.folder import RunFolder
from jobs.run.submissions import Submission
from jobs.slurm import client
from jobs.submission import here
from jobs.work import worker
from jobs.work.run_part import FreeShards
from jobs.work.worker import Unfinished, run_parts, run_side_by_side
from tests.harness.cards import card, put_nvidia_smi
from tests.jobs.runs import finished_ids, plan, planned_ids, slow_worker, texts, wait_for_steps
from tests.slurm.ledger import Witness

PARENT = """
import sys
from jobs.work.worker import run_side_by_side
run_side_by_side([(sys.argv[1], [0, 1])], 2)
"""


def workers(parent: int) -> list[psutil.Process]:
    return [p for p in psutil.Process(parent).children() if "jobs.work.worker" in p.cmdline()]


def test_every_worker_gets_adjacent_cards_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def seen(workers: int) -> list[str]:
        return [worker.device_variables(number, workers)["CUDA_VISIBLE_DEVICES"] for number in range(workers)]

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7")
    assert seen(4) == ["0,1", "2,3", "4,5", "6,7"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    run = plan(tmp_path, shards=4)
    with pytest.raises(ValueError, match="2 GPUs cannot be divided among 4 workers on one node"):
        run_side_by_side([(str(run.path), [0, 1, 2, 3])], 4)
    assert len(read_endings(run).finished) == 0
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "NoDevFiles")
    assert worker.device_variables(0, 4) == {}
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    put_nvidia_smi(tmp_path / "bin", monkeypatch, [card(index) for index in range(5)])
    assert [names.split(",") for names in seen(2)] == [[card(i)["uuid"] for i in pair] for pair in ((0, 1), (2, 3))]


def test_what_a_killed_worker_leaves_is_finished_by_a_neighbor_that_had_nothing_more_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SCRIPTED_SECONDS, "0.02")
    run, undisturbed = plan(tmp_path / "killed", shards=2), plan(tmp_path / "undisturbed", shards=2)
    witness = Witness(run)

    def kill_one() -> None:
        wait_for_steps(run, 10)
        victim = next(p for p in workers(os.getpid()) if '"number": 1' in p.cmdline()[-1])
        victim.suspend()
        witness.look()
        victim.kill()

    killer = threading.Thread(target=kill_one)
    killer.start()
    run_side_by_side([(str(run.path), [0, 1])], 2)
    killer.join()
    monkeypatch.delenv(SCRIPTED_SECONDS)
    run_parts([(str(undisturbed.path), [0, 1])])
    compact(run)
    assert Counter(finished_ids(run)) == Counter(planned_ids(run))
    assert texts(run) == texts(undisturbed)
    assert witness.lost() == 0, "the neighbor went on from the last accepted step"


def test_a_signal_reaches_every_worker_once_however_often_it_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm signals every process of a step, and the task passes the signal on as well."""
    monkeypatch.setenv(SCRIPTED_SECONDS, "0.05")
    run = plan(tmp_path, shards=2)
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(run.path)], stderr=subprocess.DEVNULL)
    wait_for_steps(run, 8)
    for process in [*workers(parent.pid), psutil.Process(parent.pid)]:
        process.send_signal(signal.SIGTERM)
    assert parent.wait(timeout=30) == 1
    running = psutil.process_iter(["cmdline"])  # whose command is None where it is a zombie
    assert not [p for p in running if str(run.path) in " ".join(p.info["cmdline"] or ())]
    monkeypatch.delenv(SCRIPTED_SECONDS)
    run_parts([(str(run.path), [0, 1])])
    compact(run)
    assert Counter(finished_ids(run)) == Counter(planned_ids(run))


def test_workers_do_not_outlive_a_task_that_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SCRIPTED_SECONDS, "0.2")
    run = plan(tmp_path, shards=2, samples=20)
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(run.path)], stderr=subprocess.DEVNULL)
    wait_for_steps(run, 2)
    left = workers(parent.pid)
    parent.kill()
    parent.wait()
    gone, alive = psutil.wait_procs(left, timeout=20)
    assert (len(gone), alive) == (2, [])


def test_slurms_tasks_divide_the_cards_of_a_node_unless_slurm_has_bound_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    step = {"SLURM_LOCALID": "1", "SLURM_STEP_TASKS_PER_NODE": "2(x3)"}
    worker.take_as_slurm_task({**step, "SLURM_GPUS_PER_TASK": "2"})
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1,2,3"
    worker.take_as_slurm_task({"SLURM_LOCALID": "0", "SLURM_STEP_TASKS_PER_NODE": "1"})
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1,2,3"
    worker.take_as_slurm_task(step)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "2,3"


@pytest.mark.parametrize(("shards", "cards", "workers"), [(3, 8, 3), (5, 2, 2), (2, 0, 2), (3, 1, 1)])
def test_on_this_machine_there_are_no_more_workers_at_a_time_than_cards_for_their_engines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shards: int, cards: int, workers: int
) -> None:
    put_nvidia_smi(tmp_path / "bin", monkeypatch, [card(index) for index in range(cards)])
    monkeypatch.setattr(here, "accelerator", lambda: "gpu" if cards else "cpu")
    run = plan(tmp_path, shards=shards)
    divided = here._shares([(run, list(range(shards)))])
    assert len(divided) == workers
    assert sorted(s for parts in divided for _, own in parts for s in own) == list(range(shards))


def test_a_worker_finds_what_another_number_of_workers_has_finished(tmp_path: Path) -> None:
    run = plan(tmp_path, shards=4)
    submissions.record(run, Submission(0, "job", [[0, 1, 2, 3]], time.time(), workers_per_task=2))
    assert submissions.read(run)[0].first_shards([3]) == {0, 1, 2, 3}
    for shards in ([0, 2], [1, 3]):
        run_parts([(str(run.path), shards)])
    assert run_parts([(str(run.path), [3])]) == 0
    assert run_parts([(str(run.path), [2])]) == 0


def test_no_two_workers_share_a_core_or_have_cores_of_both_processors(tmp_path: Path) -> None:
    # Two processors with four cores of two threads, numbered as Linux does: the second threads after all first ones.
    for number in range(16):
        topology = tmp_path / f"cpu{number}" / "topology"
        topology.mkdir(parents=True)
        (topology / "physical_package_id").write_text(f"{number % 8 // 4}\n")
        (topology / "core_id").write_text(f"{number % 4}\n")
    cores = worker.in_order_of_place(set(range(16)), tmp_path)
    assert [worker.share(cores, number, 4) for number in range(4)] == [
        [0, 8, 1, 9],
        [2, 10, 3, 11],
        [4, 12, 5, 13],
        [6, 14, 7, 15],
    ]


def test_a_task_of_several_workers_is_requeued_once_when_all_have_saved_their_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SCRIPTED_SECONDS, "0.05")
    run, requeued = plan(tmp_path, shards=2), []
    monkeypatch.setattr(client, "this_job", lambda: "7")
    monkeypatch.setattr(client, "requeue", lambda job: requeued.append((job, run.are_held([0, 1]))))
    monkeypatch.setattr(worker, "_REQUEUE_SECONDS", 0.0)

    def limit() -> None:
        wait_for_steps(run, 8)
        os.kill(os.getpid(), signal.SIGUSR2)

    limiting = threading.Thread(target=limit)
    limiting.start()
    with pytest.raises(Unfinished, match="did not end this process"):
        run_side_by_side([(str(run.path), [0, 1])], 2)
    limiting.join()
    assert requeued == [("7", False)], "no worker is at work any more"


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
    run = plan(tmp_path, samples=6)
    [units] = run.shards()
    run.assign_again([units[begin:end] for begin, end in pairwise((0, 9, 21, 30, 48))])
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
