"""Several runs in one array: which share it, what each records, and what resuming or canceling one of them does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.settings.roles import ModelSettings
from jobs.run import submissions, trust
from jobs.run.folder import RunFolder
from jobs.run.submissions import Submission
from jobs.submission import canceling, code_archive, dispatch, submit, task
from jobs.submission.dispatch import Request, dispatch_together
from jobs.watch.status import status
from jobs.work.worker import run_parts, run_shard
from tests.jobs.runs import dispatch_alone, finished_ids, plan, planned_ids
from tests.jobs.slurm.fake import FakeSlurm


class Cluster:
    """What was submitted to a cluster that takes `array_size` tasks per array."""

    def __init__(self) -> None:
        self.shared: dict[str, list[list[tuple[str, list[int]]]]] = {}
        self.own: list[Submission] = []
        self.finalizers: list[tuple[str, str, list[str]]] = []


@pytest.fixture
def cluster(slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    slurm.prints(squeue="", scontrol="MaxArraySize = 4", scancel="", sacct="")
    submitted = Cluster()

    def array(run: RunFolder, submission: Submission, parameters: dict[str, Any]) -> str:
        job = submission
        if not job.runs:
            submitted.own.append(submission)
            return str(200 + len(submitted.own))
        runs = [RunFolder(run.path.parent / name) for name in job.runs]
        of_runs = [(one, task._recorded(one, lambda other: other.name == job.name).tasks) for one in runs]
        submitted.shared[job.name] = [
            [(one.path.name, tasks[index]) for one, tasks in of_runs if tasks[index]]
            for index in range(len(submission.tasks))
        ]
        return str(100 + len(submitted.shared))

    def finalizer(run: RunFolder, name: str, jobs: Sequence[str], parameters: dict[str, Any]) -> str:
        submitted.finalizers.append((run.path.name, submissions.finalizer_name(name), list(jobs)))
        return "300"

    monkeypatch.setattr(code_archive, "take", lambda run: "code-0.zip")
    monkeypatch.setattr(submit, "submit_array", array)
    monkeypatch.setattr(submit, "submit_finalizer", finalizer)
    return submitted


def pair_of_runs(folder: Path, **options: Any) -> tuple[RunFolder, RunFolder]:
    return plan(folder, drafts=2, **{"shards": 2, **options}), plan(folder, drafts=3, **{"shards": 2, **options})


def together(*runs: RunFolder, **options: Any) -> list[dispatch.Dispatched]:
    return dispatch_together([Request(run, options) for run in runs])


def test_runs_of_one_pair_share_tasks_and_each_run_records_them(tmp_path: Path, cluster: Cluster) -> None:
    first, second = pair_of_runs(tmp_path)
    alone = plan(tmp_path, method="vanilla", shards=2)
    done = together(first, alone, second)
    [(name, tasks)] = cluster.shared.items()
    assert tasks == [[(run.path.name, [shard]) for run in (first, second)] for shard in (0, 1)]
    assert [submission.tasks for submission in cluster.own] == [[[0], [1]]]
    for run in (first, second):
        [submission] = submissions.read(run)
        assert (submission.name, submission.tasks, submission.number) == (name, [[0], [1]], 0)
    assert [(d.submitted, d.tasks, d.shared_with) for d in done] == [
        (["101"], 2, (second.path.name,)),
        (["201"], 2, ()),
        (["101"], 2, (first.path.name,)),
    ]
    assert len({finalizer for _, finalizer, _ in cluster.finalizers}) == 3, "each run is graded by a job of its own"
    assert {run: jobs for run, _, jobs in cluster.finalizers}[second.path.name] == ["101"]


def test_runs_of_other_models_engines_or_resources_do_not_share(tmp_path: Path, cluster: Cluster) -> None:
    runs = [plan(tmp_path, drafts=2), plan(tmp_path, drafts=3, settings={"target": ModelSettings(memory=0.5)})]
    elsewhere = plan(tmp_path / "elsewhere", drafts=3)
    requests = [Request(run, {}) for run in (*runs, elsewhere)]
    longer = Request(plan(tmp_path, drafts=4), {"time": "1:00:00"})
    trust.remember(longer.run, trust.options(longer.options))
    dispatch_together([*requests, longer])
    assert cluster.shared == {}
    assert len(cluster.own) == 4


def test_shared_tasks_beyond_the_largest_array_become_several(tmp_path: Path, cluster: Cluster) -> None:
    first, second = plan(tmp_path, drafts=2, shards=5), plan(tmp_path, drafts=3, shards=2)
    [done, _] = together(first, second)
    a, b = first.path.name, second.path.name
    assert list(cluster.shared.values()) == [
        [[(a, [0]), (b, [0])], [(a, [1]), (b, [1])], [(a, [2])]],
        [[(a, [3])], [(a, [4])]],
    ]
    assert done.submitted == ["101", "102"]
    assert [s.tasks for s in submissions.read(second)] == [[[0], [1], []], [[], []]]


def test_launched_twice_nothing_is_submitted_twice(tmp_path: Path, cluster: Cluster, slurm: FakeSlurm) -> None:
    first, second = pair_of_runs(tmp_path)
    together(first, second)
    [name] = cluster.shared
    slurm.prints(squeue=f"{name}|0|101|101|RUNNING|n1|None\n{name}|1|102|101|PENDING||Priority")
    again = together(first, second)
    assert [(d.submitted, d.num_active_shards) for d in again] == [([], 2), ([], 2)]
    assert dispatch_alone(second, {}).num_active_shards == 2, "alone neither"
    slurm.prints(squeue=f"{name}|1|102|101|PENDING||Priority")  # the first task was killed
    together(first, second)
    assert list(cluster.shared.values())[1] == [[(first.path.name, [0]), (second.path.name, [0])]]


def test_a_canceled_run_leaves_the_job_and_the_others_stay(tmp_path: Path, cluster: Cluster, slurm: FakeSlurm) -> None:
    first, second = pair_of_runs(tmp_path)
    together(first, second)
    [name] = cluster.shared
    slurm.prints(squeue=f"{name}|0|101|101|RUNNING|n1|None\n{name}|1|102|101|PENDING||Priority")
    run_shard(str(second.path), 1)  # nothing is left for the second task but the first run
    assert canceling.cancel(first) == [second.path.name]
    assert "scancel 101_1" in slurm.calls()
    assert not any("101_0" in call for call in slurm.calls() if call.startswith("scancel"))
    assert f"scancel --name={submissions.job_name(first, 0)}.finalize" in slurm.calls()
    assert [shard.state for shard in status(first).shards] == ["stopped", "stopped"]
    assert status(second).shards[0].state == "running"
    assert dispatch_alone(first, {}).tasks == 2, "resumed alone, while the shared job goes on"
    assert dispatch_alone(second, {}).submitted == []
    slurm.prints(squeue=f"{name}|0|101|101|RUNNING|n1|None")
    assert canceling.cancel(second) == []
    assert "scancel 101_0" in slurm.calls(), "the last one to leave ends the task"


def test_a_worker_passes_over_a_run_that_has_left(tmp_path: Path, cluster: Cluster) -> None:
    first, second = pair_of_runs(tmp_path)
    together(first, second)
    [name] = cluster.shared
    submissions.leave(first, name)
    run_parts([(str(run.path), [0, 1]) for run in (first, second)], name)
    assert finished_ids(first) == []
    assert finished_ids(second) == planned_ids(second)


def test_a_worker_stops_a_run_that_leaves_and_goes_on_with_the_next(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = pair_of_runs(tmp_path)
    together(first, second)
    [name] = cluster.shared
    monkeypatch.setenv("HARNESS_SCRIPTED_SECONDS", "0.01")
    monkeypatch.setattr("jobs.work.run_part._LEFT_POLL_SECONDS", 0.05)
    left = submissions.left

    def leaving(run: RunFolder) -> set[str]:
        if run.path == first.path and any(path.stat().st_size > 3000 for path in first.journals()):
            submissions.leave(first, name)
        return left(run)

    monkeypatch.setattr(submissions, "left", leaving)
    run_parts([(str(run.path), [0, 1]) for run in (first, second)], name)
    assert len(finished_ids(first)) < len(planned_ids(first))
    assert finished_ids(second) == planned_ids(second)
    run_parts([(str(first.path), [0, 1])])
    assert finished_ids(first) == planned_ids(first)
