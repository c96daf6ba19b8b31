"""What died at night is submitted again, as often as it is worth it; what a person canceled is not."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from jobs import recovery
from jobs.recovery import NightRecord
from jobs.run import submissions, trust
from jobs.run import timing as folder
from jobs.run.folder import RunFolder
from jobs.slurm import client
from jobs.submission import canceling
from jobs.watch.status import listed
from jobs.work.worker import run_shard
from tests.jobs.runs import plan, slow_worker
from tests.jobs.slurm.fake import Cluster, FakeSlurm
from tests.jobs.submission.test_dispatch import pair_of_runs, together


def launched(folder: Path, *runs: RunFolder) -> NightRecord:
    record = NightRecord(folder / "nights" / "2026-01-01.jsonl")
    asked = {"options": {}, "shards_per_task": 1, "workers_per_task": 1}
    names = {str(number): run.path.name for number, run in enumerate(runs)}
    record.append("launched", runs=names, requests=dict.fromkeys(names.values(), asked))
    return record


def test_shards_of_a_shared_job_are_submitted_again_together(tmp_path: Path, cluster: Cluster) -> None:
    first, second = pair_of_runs(tmp_path)
    together(first, second)
    run_shard(str(first.path), 0)
    found = recovery.recover([first, second], launched(tmp_path, first, second), 3)
    assert list(cluster.shared.values())[1] == [
        [(first.path.name, [1]), (second.path.name, [0])],
        [(second.path.name, [1])],
    ]
    assert (found.resumed, found.gaps) == ({first.path.name: 1, second.path.name: 2}, [])


def test_the_verdict_waits_for_what_is_running_and_submits_nothing_twice(
    tmp_path: Path, cluster: Cluster, slurm: FakeSlurm
) -> None:
    first, second = pair_of_runs(tmp_path)
    together(first, second)
    [name] = cluster.shared
    finalizer = submissions.finalizer_of(second, submissions.read(second)[0])
    slurm.prints(
        squeue=f"{name}|0|101|100|RUNNING|n1|None\n{name}|1|102|100|PENDING||Priority\n{finalizer}|N/A|300|300|PENDING||Dependency"
    )
    found = recovery.recover([first, second], launched(tmp_path, first, second), 3)
    assert found.waiting_for == ["100", "300"], "an array once, and the job that grades"
    assert (found.resumed, len(cluster.shared)) == ({}, 1)


def test_a_run_is_given_up_after_two_rounds_without_progress(tmp_path: Path, cluster: Cluster) -> None:
    run = plan(tmp_path, shards=2)
    together(run)
    record = launched(tmp_path, run)
    for _ in range(2):
        assert recovery.recover([run], record, 10).resumed == {run.path.name: 2}
    [gap] = recovery.recover([run], record, 10).gaps
    assert str(gap).startswith(f"{run.path.name}: 24 of 24 samples")
    run_shard(str(run.path), 0)
    assert recovery.recover([run], record, 10).resumed == {run.path.name: 1}, "with progress it goes on"


def test_a_run_that_progresses_is_given_up_at_the_limit(tmp_path: Path, cluster: Cluster) -> None:
    run = plan(tmp_path, shards=4)
    together(run)
    record = launched(tmp_path, run)
    for shard in range(3):
        assert recovery.recover([run], record, 3).resumed
        run_shard(str(run.path), shard)
    [gap] = recovery.recover([run], record, 3).gaps
    assert "(recoveries = 3)" in gap.why
    assert re.findall(r"\d+", gap.what) == ["6", "24", "3"], "samples, and the shard"
    assert recovery.recover([run], launched(tmp_path, run), 3).resumed, "someone who launches the night again asks anew"


def test_accepted_steps_are_progress(tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    run = plan(tmp_path)
    together(run)
    record = launched(tmp_path, run)
    steps = iter([[0, 3], [0, 3], [0, 7], [0, 7], [0, 9], [0, 9], [0, 9], [0, 9]])
    monkeypatch.setattr(recovery, "work_of", lambda _: next(steps))
    assert [bool(recovery.recover([run], record, 10).resumed) for _ in range(3)] == [True, True, True]


def test_a_canceled_run_stays_canceled_until_it_is_resumed(tmp_path: Path, cluster: Cluster) -> None:
    run = plan(tmp_path)
    together(run)
    canceling.cancel(run)
    found = recovery.recover([run], launched(tmp_path, run), 3)
    assert (len(found.gaps), found.resumed) == (1, {})
    together(run)
    assert recovery.recover([run], launched(tmp_path, run), 3).resumed


def test_what_slurm_rejects_is_missing_and_says_why(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rejected(*_: Any) -> Sequence[str]:
        raise client.SlurmRejected("AssocMaxSubmitJobLimit")

    run, never = plan(tmp_path), RunFolder(tmp_path / "demo-vanilla-0")
    record = launched(tmp_path, run, never)
    monkeypatch.setattr(recovery, "dispatch_together", rejected)
    found = recovery.recover([run, never], record, 3)
    assert ["AssocMaxSubmitJobLimit" in gap.why for gap in found.gaps] == [False, True]
    assert found.waiting_for == []


def test_what_a_rejected_launch_left_out_is_submitted_as_the_launch_wanted_it(tmp_path: Path, cluster: Cluster) -> None:
    run = plan(tmp_path, shards=4)
    record = launched(tmp_path, run)
    options: dict[str, str] = {"mem": "1G"}
    asked = {"options": options, "shards_per_task": 2, "workers_per_task": 1}
    record.append("launched", runs={"0": run.path.name}, requests={run.path.name: asked})
    trust.remember(run, trust.options(options))  # as the launch does
    assert recovery.recover([run], record, 3).resumed == {run.path.name: 2}
    assert (cluster.own[0].options, cluster.own[0].tasks) == ({"mem": "1G"}, [[0, 1], [2, 3]])


def test_a_worker_that_was_killed_while_it_timed_samples_is_recovered_and_only_the_timing_is_done(
    tmp_path: Path, cluster: Cluster
) -> None:
    run = plan(tmp_path)
    together(run)
    run_shard(str(run.path), 0)
    before = sorted(path.read_bytes() for path in run.trace_files())
    folder.request(run, 6)
    worker = slow_worker(run)
    while not folder.finished(run):
        assert worker.poll() is None
        time.sleep(0.01)
    worker.kill()
    worker.wait()
    done = folder.progress(run).done
    assert 0 < done < 6
    [listed_run] = listed([run])
    assert (listed_run.timed, listed_run.to_time) == (done, 6)
    record = launched(tmp_path, run)
    found = recovery.recover([run], record, 3)
    assert found.resumed == {run.path.name: 1}
    run_shard(str(run.path), 0)
    assert folder.progress(run) == folder.Progress(6, 6)
    assert sorted(path.read_bytes() for path in run.trace_files()) == before, "no sample was drawn again"
    assert recovery.recover([run], record, 3) == recovery.Found(), "nothing is left"
