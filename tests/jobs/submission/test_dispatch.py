"""Which shards are submitted in which arrays, which runs share one, and what resuming or canceling one of them does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.settings.roles import ModelSettings
from jobs.run import submissions, trust
from jobs.run.folder import RunFolder
from jobs.run.submissions import Submission
from jobs.slurm import client
from jobs.submission import canceling, dispatch, submit
from jobs.submission.dispatch import Request, dispatch_together
from jobs.watch.status import status
from jobs.work.worker import run_parts, run_shard
from tests.jobs.runs import dispatch_alone, finished_ids, plan, planned_ids
from tests.jobs.slurm.fake import Cluster, FakeSlurm


@pytest.mark.usefixtures("short_names")
def test_a_task_that_slurm_holds_for_good_is_cancelled(tmp_path: Path, slurm: FakeSlurm) -> None:
    run = plan(tmp_path, shards=2)
    submissions.record(run, Submission(0, "run.0", [[0], [1]], 0.0))
    held = "launch failed requeued held"
    slurm.prints(
        squeue=f"""run.0|0|50|5|RUNNING|n1|None
run.0|1|51|5|PENDING||{held}
run.0.finalize|N/A|6|6|PENDING||{held}""",
        scancel="",
    )
    dispatch.clear(run)
    asked, *canceled = slurm.calls()
    assert "--name=run.0,run.0.finalize" in asked
    assert canceled == ["scancel 5_1 6"], "a job that waits behind a held one waits for ever"


@pytest.mark.usefixtures("short_names")
def test_only_shards_that_are_neither_finished_nor_active_are_submitted(
    tmp_path: Path, cluster: Cluster, slurm: FakeSlurm
) -> None:
    run = plan(tmp_path, shards=4)
    run_shard(str(run.path), 0)
    submissions.record(run, Submission(0, "run.0", [[0], [1], [2]], 0.0))
    slurm.prints(squeue="run.0|2|42|40|PENDING||Priority")
    dispatched = dispatch_alone(run, {})
    assert [array.tasks for array in cluster.own] == [[[1], [3]]]
    assert (dispatched.submitted, dispatched.tasks, dispatched.num_active_shards) == (["201"], 2, 1)
    assert submissions.read(run)[-1] == cluster.own[0], "recorded as it was submitted"


ENDING = "run.0|0|41|40|COMPLETING|n1|None|0|root|1:00"


@pytest.mark.usefixtures("short_names")
def test_a_task_that_was_just_canceled_is_waited_for_and_only_then_its_shard_is_submitted(
    tmp_path: Path, cluster: Cluster, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = plan(tmp_path)
    submissions.record(run, Submission(0, "run.0", [[0]], 0.0))
    slurm.prints(squeue=ENDING)
    with monkeypatch.context() as patched:
        patched.setattr(dispatch, "_ENDING_SECONDS", 0.0)
        with pytest.raises(client.SlurmError, match=r"^1 task, for example 40_0 on n1, did not exit \(COMPLETING\)"):
            dispatch_alone(run, {})
    assert cluster.own == []
    monkeypatch.setattr("jobs.submission.dispatch.time.sleep", lambda seconds: slurm.prints(squeue=""))
    dispatched = dispatch_alone(run, {})
    assert ([array.tasks for array in cluster.own], dispatched.num_active_shards) == ([[[0]]], 0)


@pytest.mark.usefixtures("short_names")
def test_a_task_that_ends_because_its_shard_is_finished_is_not_waited_for(
    tmp_path: Path, cluster: Cluster, slurm: FakeSlurm
) -> None:
    run = plan(tmp_path, shards=2)
    run_shard(str(run.path), 0)
    submissions.record(run, Submission(0, "run.0", [[0]], 0.0))
    slurm.prints(squeue=ENDING)
    assert dispatch_alone(run, {}).tasks == 1
    assert [array.tasks for array in cluster.own] == [[[1]]]


def test_a_task_gets_shards_for_all_workers_that_it_starts(tmp_path: Path, cluster: Cluster) -> None:
    dispatch_alone(plan(tmp_path / "started by the task", shards=8), {}, workers_per_task=4)
    dispatch_alone(plan(tmp_path / "started by Slurm", shards=8), {"ntasks-per-node": "4"})
    dispatch_alone(plan(tmp_path / "both", shards=8), {"ntasks-per-node": 2}, shards_per_task=2, workers_per_task=2)
    assert [array.tasks for array in cluster.own] == [*[[[0, 1, 2, 3], [4, 5, 6, 7]]] * 2, [[0, 1, 2, 3, 4, 5, 6, 7]]]
    assert [array.workers_per_task for array in cluster.own] == [4, 1, 2]


def test_all_tasks_may_run_at_a_time_by_default(tmp_path: Path, slurm: FakeSlurm) -> None:
    slurm.prints(scontrol="MaxArraySize = 1001")
    run = plan(tmp_path)
    for options, limit in ({}, 300), ({"array-parallelism": "7"}, 7):
        assert f"--array=0-299%{limit}\n" in dispatch.preview(dispatch.Request(run, options), run.spec(), 300)


def test_a_rejected_finalizer_is_a_warning_and_the_arrays_stay(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reject(*_: object) -> str:
        raise client.SlurmRejected("no GPU requested")

    monkeypatch.setattr(submit, "submit_finalizer", reject)
    run = plan(tmp_path)
    dispatched = dispatch_alone(run, {})
    assert dispatched.submitted == ["201"]
    assert dispatched.warning is not None
    assert f"jobs finalize {run.path}" in dispatched.warning


def test_arrays_that_slurm_took_get_their_last_job_where_it_rejects_a_further_one(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = submit.submit_array

    def take_one(run: RunFolder, submission: Submission, parameters: dict[str, Any]) -> str:
        if cluster.own:
            raise client.SlurmRejected("AssocMaxSubmitJobLimit")
        return take(run, submission, parameters)

    monkeypatch.setattr(submit, "submit_array", take_one)
    run = plan(tmp_path, shards=5)
    dispatched = dispatch_alone(run, {})
    assert (dispatched.submitted, dispatched.tasks, cluster.finalizers[0][2]) == (["201"], 3, ["201"])
    assert dispatched.refusal is not None
    assert "AssocMaxSubmitJobLimit" in dispatched.refusal
    assert f"jobs resume {run.path}" in dispatched.refusal


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
