"""A finished run that nothing has graded or loaded: `jobs status` says so, and `jobs resume` has it done."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from grading import Gold, Grade
from grading import Submission as Answer
from grading.regrade import main as regrade
from jobs import after
from jobs.__main__ import main
from jobs.finished import grading
from jobs.finished.grading import finish, grade_by
from jobs.run import submissions
from jobs.run import timing as timings
from jobs.run.endings import read_endings
from jobs.run.folder import RunFolder
from jobs.run.submissions import Submission
from jobs.submission import code_archive, submit
from jobs.watch.exit_reasons import BEGINS
from jobs.watch.status import status
from jobs.work.worker import run_shard
from tests.jobs.runs import plan
from tests.jobs.slurm.fake import SACCT_DOWN, SQUEUE_DOWN, FakeSlurm
from warehouse.report.summary import summary


def killed(run: RunFolder) -> str:
    """Accounting of a run whose job that grades was killed."""
    name = submissions.job_name(run, 0)
    return f"{name}|5_0|COMPLETED|n1|60||0:0\n{name}.finalize|6|FAILED|n1|2||0:9"


def jobs(*arguments: str | Path) -> str:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def finished(tmp_path: Path) -> RunFolder:
    run = plan(tmp_path)
    run_shard(str(run.path), 0)
    return run


@pytest.fixture
def on_slurm(finished: RunFolder) -> RunFolder:
    submissions.record(finished, Submission(0, submissions.job_name(finished, 0), [[0]], 0.0))
    for job_id in ("5", "6"):
        submissions.record_job(finished, job_id)
    log = finished.logs_dir / "jobs" / "6_0_log.out"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(f"{BEGINS} on n1 at 2026-11-23 12:52:14+00:00\n")
    return finished


def all_wrong(answer: Answer, gold: Gold) -> Grade:
    return Grade("wrong", None, None, "", 0.0)


def missing(run: RunFolder) -> str:
    return grading.missing(run, read_endings(run))


def test_a_run_lacks_grades_and_then_results_until_it_is_concluded(finished: RunFolder) -> None:
    assert missing(finished) == "not graded"
    finish(finished)
    assert missing(finished) == "not loaded"
    after.conclude(str(finished.path))
    assert missing(finished) == ""
    [grades] = finished.derived("grades")
    grades.unlink()
    assert missing(finished) == "not graded"


def test_a_run_whose_samples_were_timed_since_is_not_loaded(finished: RunFolder) -> None:
    after.conclude(str(finished.path))
    assert missing(finished) == ""
    timed = timings.TimingFolder(finished.path)
    timed.trace_files_dir.mkdir(parents=True)
    (timed.trace_files_dir / "shard-0-later.parquet").write_bytes(b"")
    assert missing(finished) == "not loaded"


def test_a_run_that_is_graded_again_lacks_nothing_and_its_result_is_that_of_the_newer_grades(
    finished: RunFolder,
) -> None:
    after.conclude(str(finished.path))
    before = finished.results_path.read_bytes()
    assert grade_by(finished, "newer", all_wrong, 1) == 24
    assert missing(finished) == ""
    result = CliRunner().invoke(regrade, [str(finished.path), "--database", str(after.database_of(finished))])
    assert result.exit_code == 0, result.output
    assert missing(finished) == ""
    assert finished.results_path.read_bytes() != before
    assert [run.to_json() for run in summary(after.database_of(finished), [finished.path.name])] == [
        finished.results_path.read_bytes()
    ]


def test_a_run_whose_database_is_gone_is_loaded_again(finished: RunFolder) -> None:
    after.conclude(str(finished.path))
    after.database_of(finished).unlink()
    assert missing(finished) == "not loaded"
    assert jobs("resume", finished.path).startswith("Every sample is finished; not loaded. It is done here now.\n")
    assert (missing(finished), after.database_of(finished).exists()) == ("", True)


def test_a_copy_without_the_times_of_its_files_is_loaded_at_most_and_not_graded_again(finished: RunFolder) -> None:
    after.conclude(str(finished.path))
    [grades] = finished.derived("grades")
    os.utime(finished.results_path, (0, 0))  # which was copied first
    before = grades.stat().st_mtime_ns
    assert missing(finished) == "not loaded"
    jobs("resume", finished.path)
    assert (missing(finished), grades.stat().st_mtime_ns) == ("", before)


def test_a_run_that_was_concluded_too_early_lacks_the_results_of_the_rest(tmp_path: Path) -> None:
    run = plan(tmp_path, shards=2)
    run_shard(str(run.path), 0)
    assert missing(run) == "", "not finished"
    after.conclude(str(run.path))
    run_shard(str(run.path), 1)
    assert missing(run) == "not loaded"
    after.conclude(str(run.path))
    assert missing(run) == ""


def test_a_failed_sample_that_a_later_try_finished_lacks_its_result(finished: RunFolder) -> None:
    after.conclude(str(finished.path))
    [path] = finished.trace_files()
    path.touch()  # as a later try does, whose samples are in a further file
    assert missing(finished) == "not loaded"


def test_the_status_says_how_the_job_ended_that_was_to_grade(on_slurm: RunFolder, slurm: FakeSlurm) -> None:
    slurm.prints(squeue="", sacct=killed(on_slurm))
    command = f"python -m jobs finalize {on_slurm.path}"
    [line] = [line for line in jobs("status", on_slurm.path).splitlines() if "graded" in line]
    assert line.startswith("not graded (job 6: Slurm: FAILED, signal 9; ended without an error message")
    assert line.endswith(f"):  {command}")
    slurm.answers(sacct=SACCT_DOWN)
    assert status(on_slurm).next_step == f"not graded:  {command}", "decided without accounting"
    after.conclude(str(on_slurm.path))
    assert status(on_slurm).next_step == ""


def test_the_status_does_not_ask_for_grades_while_a_job_makes_them(on_slurm: RunFolder, slurm: FakeSlurm) -> None:
    slurm.prints(squeue=f"{submissions.job_name(on_slurm, 0)}.finalize|N/A|6|6|PENDING||Priority", sacct="")
    assert status(on_slurm).next_step == "not graded yet: job 6 does it (PENDING, Priority)"
    slurm.answers(squeue=SQUEUE_DOWN)
    assert status(on_slurm).next_step == ""


def test_resume_submits_the_job_that_grades_again_and_only_once(
    on_slurm: RunFolder, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, list[str]]] = []

    def submit_finalizer(run: RunFolder, name: str, jobs: list[str], parameters: Any) -> str:
        calls.append((name, jobs))
        return "7"

    monkeypatch.setattr(submit, "submit_finalizer", submit_finalizer)
    monkeypatch.setattr(code_archive, "take", lambda run: "code-0.zip")
    slurm.prints(squeue="", sacct=killed(on_slurm))
    expected = "Every sample is finished; not graded: submitted job 7, which grades, loads and reports\n"
    assert jobs("resume", on_slurm.path) == expected
    name = submissions.job_name(on_slurm, 0)
    assert calls == [(name, [])]
    slurm.prints(squeue=f"{name}.finalize|N/A|7|7|RUNNING|n1|None")
    assert "not graded yet: job 7 does it (RUNNING)" in jobs("resume", on_slurm.path)
    after.conclude(str(on_slurm.path))
    slurm.prints(squeue="")
    assert "Nothing to submit: every sample is finished." in jobs("resume", on_slurm.path)
    assert len(calls) == 1


def test_resume_of_a_local_run_that_is_not_graded_grades_it_here(finished: RunFolder) -> None:
    assert "not graded:  python -m jobs finalize" in jobs("status", finished.path)
    assert jobs("resume", finished.path).startswith("Every sample is finished; not graded. It is done here now.\n")
    assert missing(finished) == ""
    assert jobs("resume", finished.path) == "Every sample is finished: nothing to resume.\n"
