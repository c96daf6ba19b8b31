"""`python -m jobs`: what the commands submit, cancel and retry, what they print, and how a launch waits."""

from __future__ import annotations

import io
import shlex
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
from tests.jobs.runs import jobs, plan
from tests.jobs.slurm.fake import SQUEUE_DOWN, FakeSlurm

pytestmark = pytest.mark.usefixtures("short_names")


@pytest.fixture
def submitted(tmp_path: Path) -> RunFolder:
    run = plan(tmp_path)
    submissions.record(run, Submission(0, "run.0", [[0]], 0.0))
    return run


def test_cancel_ends_the_tasks_and_the_job_after_them(submitted: RunFolder, slurm: FakeSlurm) -> None:
    slurm.prints(scancel="", squeue="")
    result = jobs("cancel", submitted.path)
    assert result.output.endswith(f" resume {submitted.path}\n")
    assert slurm.calls()[1:] == ["scancel --name=run.0", "scancel --name=run.0.finalize"]


def test_commands_that_are_printed_can_be_pasted(tmp_path: Path, slurm: FakeSlurm) -> None:
    folder = tmp_path / "Anna's $HOME"
    folder.mkdir()
    run = plan(folder)
    submissions.record(run, Submission(0, "run.0", [[0]], 0.0))
    slurm.prints(scancel="", squeue="")
    [words] = [shlex.split(line.partition("python -m")[2]) for line in jobs("cancel", run.path).output.splitlines()]
    assert words[-1] == str(run.path)
    lines = jobs("finalize", run.path).output.splitlines()
    pasted = [shlex.split(line, comments=True) for line in lines if line.startswith("  python -m")]
    *of_warehouse, of_jobs = pasted
    assert {words[4] for words in of_warehouse} == {str(folder / "warehouse.duckdb")}
    assert of_jobs[2:5] == ["jobs", "show", str(run.path)]


def test_a_worker_beside_another_on_its_shard_stops_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = plan(tmp_path)
    monkeypatch.setattr("jobs.work.run_part._LOCK_SECONDS", 0.1)
    with run.shard_lock(0, 1.0):
        result = jobs("worker", run.path, "0")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert run.path.name in result.stderr


def test_cancel_of_a_finished_run_says_that_it_is_finished_and_records_nothing(
    submitted: RunFolder, slurm: FakeSlurm
) -> None:
    run_shard(str(submitted.path), 0)
    slurm.prints(scancel="", squeue="")
    result = jobs("cancel", submitted.path)
    assert (result.exit_code, result.output.count("\n")) == (0, 1)
    assert not submissions.is_canceled(submitted)
    assert not [call for call in slurm.calls() if call.startswith("scancel")]


def test_a_slurm_that_fails_is_one_line(submitted: RunFolder, slurm: FakeSlurm) -> None:
    slurm.prints(squeue="")
    slurm.answers(scancel="echo 'scancel: error: Unable to contact slurm controller' >&2; exit 1")
    canceled = jobs("cancel", submitted.path)
    slurm.answers(squeue=SQUEUE_DOWN)
    resumed = jobs("resume", submitted.path)
    for result, program in ((canceled, "scancel:"), (resumed, "squeue:")):
        assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
        assert program in result.stderr
    assert len(submissions.read(submitted)) == 1


def test_what_a_command_cannot_do_is_one_line(tmp_path: Path) -> None:
    run = plan(tmp_path / "runs")
    for words in (
        ("cancel", run.path),  # of a local run
        ("resume", run.path),
        ("worker", run.path, "1"),  # it has one shard, numbered from 0
        ("logs", run.path, "1"),
        ("status", tmp_path),  # no run folder
        ("nightly", "--suite", "x.toml", "--date", "tonight"),
    ):
        result = jobs(*words)
        assert (result.exit_code, result.stdout, result.stderr.splitlines()[-1][:7]) == (2, "", "error: "), words
    result = jobs("status", run.path.parent)
    assert (result.exit_code, run.path.name in result.stderr) == (2, True), "the run folders in it are named"


def test_status_and_logs_show_what_ended_a_worker_on_this_machine(tmp_path: Path) -> None:
    run = plan(tmp_path)
    log = run.logs_dir / "jobs" / "in-process.log"
    log.parent.mkdir(parents=True)
    log.write_text("Traceback (most recent call last):\n  x\nLaunchFailed: ENOSPC\n== failed: ENOSPC\n")
    assert "ENOSPC" in jobs("status", run.path).output
    title, *text, reason, where = jobs("logs", run.path).output.splitlines()
    assert (text, where) == (log.read_text().splitlines(), f"== log: {log}")
    assert title.endswith(str(log))
    assert reason.endswith(": ENOSPC"), "the reason comes last"
    assert jobs("logs", run.path, "0", "--lines", "1").output.splitlines()[1:] == [text[-1], reason, where]


def test_the_status_of_several_runs(tmp_path: Path) -> None:
    first, second = plan(tmp_path), plan(tmp_path, samples=2)
    result = jobs("status", first.path, second.path)
    assert result.exit_code == 0
    assert f"{first.path.name}: 0 of 24" in result.stdout
    assert f"{second.path.name}: 0 of 16" in result.stdout
    other = tmp_path / "warehouse.duckdb"
    other.touch()
    result = jobs("status", first.path, other)
    assert (result.exit_code, result.stderr.endswith(f": {other}\n")) == (0, True)
    assert first.path.name in result.stdout
    assert jobs("status", other, tmp_path).exit_code == 2


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
