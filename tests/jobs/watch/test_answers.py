"""How often Slurm is asked while runs are watched."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.run import submissions
from jobs.run.submissions import Submission
from jobs.watch.status import Watch
from tests.jobs.runs import plan
from tests.jobs.slurm.fake import SQUEUE_DOWN, FakeSlurm

RUNNING = "run.0|1|42|40|RUNNING|n2|None"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time of the watch, which a test moves."""
    now = [0.0]
    monkeypatch.setattr("jobs.watch.status.time.monotonic", lambda: now[0])
    return now


def asked(slurm: FakeSlurm, command: str) -> int:
    return sum(call.startswith(command) for call in slurm.calls())


@pytest.fixture
def watch(tmp_path: Path) -> Watch:
    """The watch of a run with the job `run.0`."""
    run = plan(tmp_path)
    submissions.record(run, Submission(0, "run.0", [[], [0]], 0.0))
    submissions.record_job(run, "40")
    return Watch([run])


def test_accounting_is_asked_once_until_a_task_leaves_the_queue(
    watch: Watch, slurm: FakeSlurm, clock: list[float]
) -> None:
    slurm.prints(squeue=RUNNING, sacct="run.0|40_1|RUNNING|n2|5|cpu=1|0:0")
    for _ in range(5):
        watch.read()
        clock[0] += 30
    assert (asked(slurm, "squeue"), asked(slurm, "sacct")) == (5, 1)
    slurm.prints(squeue="")
    watch.read()
    assert asked(slurm, "sacct") == 2
    slurm.prints(sacct="run.0|40_1|FAILED|n2|5|cpu=1|7:0")
    [found] = watch.read()
    assert (asked(slurm, "sacct"), found.states) == (3, {"stopped": 1}), "accounting had called it running"
    for _ in range(5):
        watch.read()
    assert asked(slurm, "sacct") == 3
    clock[0] += 600
    watch.read()
    assert asked(slurm, "sacct") == 4


def test_a_silent_controller_does_not_count_as_an_empty_queue(
    watch: Watch, slurm: FakeSlurm, clock: list[float]
) -> None:
    slurm.prints(squeue=RUNNING, sacct="")
    watch.read()
    slurm.answers(squeue=SQUEUE_DOWN)
    [silent] = watch.read()
    assert (silent.states, asked(slurm, "sacct")) == ({"unknown": 1}, 1)
    slurm.prints(squeue="")
    watch.read()
    assert asked(slurm, "sacct") == 2, "the task has left the queue meanwhile"


def test_several_runs_are_one_query_each_from_the_day_of_the_first_submission(tmp_path: Path, slurm: FakeSlurm) -> None:
    slurm.prints(squeue="", sacct="")
    runs = [plan(tmp_path, samples=samples) for samples in (1, 2)]
    for number, run in enumerate(runs):
        submissions.record(run, Submission(0, f"run-{number}.0", [[0]], 1_800_000_000.0 - number * 86_400))
        submissions.record_job(run, f"{40 + number}")
    unsubmitted = plan(tmp_path)
    statuses = Watch([*runs, unsubmitted]).read()
    assert [status.states["stopped"] for status in statuses] == [1, 1, 1]
    assert (asked(slurm, "squeue"), asked(slurm, "sacct")) == (1, 1)
    [sacct] = [call for call in slurm.calls() if call.startswith("sacct")]
    assert "-S 2027-01-1" in sacct
    assert sacct.endswith("--jobs=40,41")
