"""Which shards are submitted, in which arrays; jobs that Slurm holds for good do not block a new submission."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from jobs.run import submissions
from jobs.run.folder import RunFolder
from jobs.run.submissions import Submission
from jobs.slurm import client
from jobs.slurm.client import Task
from jobs.submission import code_archive, dispatch, submit
from jobs.work.worker import run_shard
from tests.jobs.runs import dispatch_alone, plan
from tests.jobs.slurm.fake import FakeSlurm


@pytest.fixture(autouse=True)
def short_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Call the jobs of a folder run.0, run.1 and so on."""
    monkeypatch.setattr(submissions, "job_name", lambda run, number: f"run.{number}")


def test_a_task_that_slurm_holds_for_good_is_cancelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = plan(tmp_path, shards=2)
    submissions.record(run, Submission(0, "run.0", [[0], [1]], 0.0))
    held = "launch failed requeued held"
    queue = [
        Task("run.0", 0, "5_0", "RUNNING", "n1"),
        Task("run.0", 1, "5_1", "PENDING", reason=held),
        Task("run.0.finalize", 0, "6", "PENDING", reason=held),
    ]
    queried_names: list[str] = []
    cancelled: list[str] = []

    def answer(names: Sequence[str]) -> list[Task]:
        queried_names.extend(names)
        return queue

    monkeypatch.setattr(client, "queue", answer)
    monkeypatch.setattr(client, "cancel_tasks", lambda tasks: cancelled.extend(task.job_id for task in tasks))
    dispatch.clear(run)
    assert queried_names == ["run.0", "run.0.finalize"]
    assert cancelled == ["5_1", "6"], "a job that waits behind a held one waits for ever"


@pytest.fixture
def sbatch(slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> list[Submission]:
    """Array jobs that are submitted to a cluster which has nothing queued and takes 3 tasks per array."""
    slurm.prints(squeue="", scontrol="MaxArraySize = 4")
    arrays: list[Submission] = []

    def submit_array(run: RunFolder, submission: Submission, parameters: dict[str, Any]) -> str:
        arrays.append(submission)
        return str(100 + len(arrays))

    monkeypatch.setattr(code_archive, "take", lambda run: "code-0.zip")
    monkeypatch.setattr(submit, "submit_array", submit_array)
    monkeypatch.setattr(submit, "submit_finalizer", lambda run, name, jobs, parameters: "200")
    return arrays


def test_only_shards_that_are_neither_finished_nor_active_are_submitted(
    tmp_path: Path, sbatch: list[Submission], slurm: FakeSlurm
) -> None:
    run = plan(tmp_path, shards=4)
    run_shard(str(run.path), 0)
    submissions.record(run, Submission(0, "run.0", [[0], [1], [2]], 0.0))
    slurm.prints(squeue="run.0|2|42|40|PENDING||Priority")
    dispatched = dispatch_alone(run, {})
    assert [array.tasks for array in sbatch] == [[[1], [3]]]
    assert (dispatched.submitted, dispatched.tasks, dispatched.num_active_shards) == (["101"], 2, 1)
    assert submissions.read(run)[-1] == sbatch[0], "recorded as it was submitted"


ENDING = "run.0|0|41|40|COMPLETING|n1|None|0|root|1:00"


def test_a_task_that_was_just_canceled_is_waited_for_and_its_shard_submitted(
    tmp_path: Path, sbatch: list[Submission], slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = plan(tmp_path)
    submissions.record(run, Submission(0, "run.0", [[0]], 0.0))
    slurm.prints(squeue=ENDING)
    monkeypatch.setattr("jobs.submission.dispatch.time.sleep", lambda seconds: slurm.prints(squeue=""))
    dispatched = dispatch_alone(run, {})
    assert ([array.tasks for array in sbatch], dispatched.num_active_shards) == ([[[0]]], 0)


def test_a_task_that_ends_because_its_shard_is_finished_is_not_waited_for(
    tmp_path: Path, sbatch: list[Submission], slurm: FakeSlurm
) -> None:
    run = plan(tmp_path, shards=2)
    run_shard(str(run.path), 0)
    submissions.record(run, Submission(0, "run.0", [[0]], 0.0))
    slurm.prints(squeue=ENDING)
    assert dispatch_alone(run, {}).tasks == 1
    assert [array.tasks for array in sbatch] == [[[1]]]


def test_a_task_that_does_not_end_is_an_error_and_nothing_is_submitted(
    tmp_path: Path, sbatch: list[Submission], slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = plan(tmp_path)
    submissions.record(run, Submission(0, "run.0", [[0]], 0.0))
    slurm.prints(squeue=ENDING)
    monkeypatch.setattr(dispatch, "_ENDING_SECONDS", 0.0)
    with pytest.raises(client.SlurmError, match=r"^1 task, for example 40_0 on n1, did not exit \(COMPLETING\)"):
        dispatch_alone(run, {})
    assert sbatch == []


def test_a_task_gets_shards_for_all_workers_that_it_starts(tmp_path: Path, sbatch: list[Submission]) -> None:
    dispatch_alone(plan(tmp_path / "started by the task", shards=8), {}, workers_per_task=4)
    dispatch_alone(plan(tmp_path / "started by Slurm", shards=8), {"ntasks-per-node": "4"})
    dispatch_alone(plan(tmp_path / "both", shards=8), {"ntasks-per-node": 2}, shards_per_task=2, workers_per_task=2)
    assert [array.tasks for array in sbatch] == [*[[[0, 1, 2, 3], [4, 5, 6, 7]]] * 2, [[0, 1, 2, 3, 4, 5, 6, 7]]]
    assert [array.workers_per_task for array in sbatch] == [4, 1, 2]


def test_all_tasks_may_run_at_a_time_by_default(tmp_path: Path, slurm: FakeSlurm) -> None:
    slurm.prints(scontrol="MaxArraySize = 1001")
    run = plan(tmp_path)
    for options, limit in ({}, 300), ({"array-parallelism": "7"}, 7):
        assert f"--array=0-299%{limit}\n" in dispatch.preview(dispatch.Request(run, options), run.spec(), 300)


def test_a_rejected_finalizer_is_a_warning_and_the_arrays_stay(
    tmp_path: Path, sbatch: list[Submission], monkeypatch: pytest.MonkeyPatch
) -> None:
    def reject(*_: object) -> str:
        raise client.SlurmRejected("no GPU requested")

    monkeypatch.setattr(submit, "submit_finalizer", reject)
    run = plan(tmp_path)
    dispatched = dispatch_alone(run, {})
    assert dispatched.submitted == ["101"]
    assert dispatched.warning is not None
    assert f"jobs finalize {run.path}" in dispatched.warning


def test_arrays_that_slurm_took_get_their_last_job_where_it_rejects_a_further_one(
    tmp_path: Path, sbatch: list[Submission], monkeypatch: pytest.MonkeyPatch
) -> None:
    take = submit.submit_array
    finalized: list[Sequence[str]] = []

    def take_one(run: RunFolder, submission: Submission, parameters: dict[str, Any]) -> str:
        if sbatch:
            raise client.SlurmRejected("AssocMaxSubmitJobLimit")
        return take(run, submission, parameters)

    monkeypatch.setattr(submit, "submit_array", take_one)
    monkeypatch.setattr(submit, "submit_finalizer", lambda run, name, jobs, parameters: finalized.append(list(jobs)))
    run = plan(tmp_path, shards=5)
    dispatched = dispatch_alone(run, {})
    assert (dispatched.submitted, dispatched.tasks, finalized) == (["101"], 3, [["101"]])
    assert dispatched.refusal is not None
    assert "AssocMaxSubmitJobLimit" in dispatched.refusal
    assert f"jobs resume {run.path}" in dispatched.refusal
