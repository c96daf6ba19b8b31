"""`--wait`: a launch on Slurm that ends when its run has ended."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.console import Console

from jobs import after, drive
from jobs.outcome import LaunchFailed
from jobs.run import submissions
from jobs.run.folder import RunFolder
from jobs.run.submissions import Submission
from jobs.work.worker import run_shard
from tests.jobs.runs import plan
from tests.jobs.slurm.fake import SQUEUE_DOWN, FakeSlurm

RUNNING, CONCLUDING = "run.0|0|42|40|RUNNING|n1|None", "run.0.finalize|0|43|43|RUNNING|n1|None"


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = plan(tmp_path, samples=1)
    submissions.record(folder, Submission(0, "run.0", [[0]], 0.0))
    for job_id in ("40", "43"):
        submissions.record_job(folder, job_id)
    return folder


def waited(run: RunFolder, monkeypatch: pytest.MonkeyPatch, *between_looks: Callable[[], object]) -> str:
    """Wait for a run while this happens between the looks, one by one; returns what is printed."""
    what: Iterator[Callable[[], object]] = iter(between_looks)
    monkeypatch.setattr("jobs.drive.sleep", lambda seconds: next(what)())
    console = Console(file=io.StringIO(), width=200, record=True)
    try:
        drive.wait([run], console)
    finally:
        assert next(what, None) is None, "it ended too early"
    return console.export_text()


def test_it_ends_when_the_last_job_of_the_run_has_ended(
    run: RunFolder, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm.prints(squeue=RUNNING, sacct="")

    def work() -> None:
        run_shard(str(run.path), 0)
        slurm.prints(squeue=CONCLUDING)

    def end() -> None:
        after.conclude(str(run.path))
        slurm.prints(squeue="")

    shown = waited(run, monkeypatch, work, lambda: None, end)
    looks = [line for line in shown.splitlines() if line.startswith("waiting: ")]
    assert [line.split()[1] for line in looks] == ["0", "8"], "a look that shows nothing new prints nothing"
    assert "43_0" in looks[1], "the job that grades"
    assert "pass@1[avg-of-1]" in shown
    assert run.results_path.exists()


def test_what_the_last_job_did_not_do_is_done_by_who_waits(
    run: RunFolder, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_shard(str(run.path), 0)
    slurm.prints(squeue="", sacct="run.0.finalize|43|FAILED|n1|2||0:9")
    waited(run, monkeypatch, lambda: None, lambda: None)
    assert run.results_path.exists()


def test_a_run_whose_jobs_died_fails_with_what_is_missing_and_why(
    run: RunFolder, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm.prints(squeue="", sacct="run.0|40_0|TIMEOUT|n1|3600|gres/gpu=2")
    with pytest.raises(LaunchFailed) as failure:
        waited(run, monkeypatch, lambda: None, lambda: None)
    assert all(part in str(failure.value) for part in (": 8 ", "TIMEOUT", f"jobs resume {run.path}"))


def test_a_queue_that_does_not_answer_is_asked_again(
    run: RunFolder, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm.answers(squeue=SQUEUE_DOWN)
    slurm.prints(sacct="")

    def answer() -> None:
        run_shard(str(run.path), 0)
        after.conclude(str(run.path))
        slurm.prints(squeue="")

    waited(run, monkeypatch, *[lambda: None] * 5, answer)
