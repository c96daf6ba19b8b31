"""`python -m jobs`: what the commands submit, cancel and retry, and what they print."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from jobs.__main__ import main
from jobs.run import submissions
from jobs.run.folder import RunFolder
from jobs.run.submissions import Submission
from tests.jobs.runs import plan
from tests.jobs.slurm.fake import SQUEUE_DOWN, FakeSlurm


def jobs(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture
def submitted(tmp_path: Path) -> RunFolder:
    run = plan(tmp_path)
    submissions.record(run, Submission(0, "run.0", [[0]], 0.0))
    return run


def test_cancel_ends_the_tasks_and_the_job_after_them(submitted: RunFolder, slurm: FakeSlurm) -> None:
    slurm.prints(scancel="")
    result = jobs("cancel", submitted.path)
    assert result.output == f"cancelled; to resume:  python -m jobs resume {submitted.path}\n"
    assert slurm.calls() == ["scancel --name=run.0", "scancel --name=run.0.finalize"]


def test_cancel_reports_in_one_line_that_slurm_failed(submitted: RunFolder, slurm: FakeSlurm) -> None:
    slurm.answers(scancel="echo 'scancel: error: Unable to contact slurm controller' >&2; exit 1")
    result = jobs("cancel", submitted.path)
    assert result.exit_code == 1
    message = "the run was not cancelled, because Slurm failed: scancel: Unable to contact slurm controller"
    assert result.stderr == f"error: {message}\n"


def test_resume_reports_in_one_line_that_slurm_failed(submitted: RunFolder, slurm: FakeSlurm) -> None:
    slurm.answers(squeue=SQUEUE_DOWN)
    result = jobs("resume", submitted.path)
    assert result.exit_code == 1
    assert result.stderr.startswith("error: the run was not submitted, because Slurm failed: squeue: slurm_load_jobs")
    assert result.stderr.count("\n") == 1
    assert len(submissions.read(submitted)) == 1


def test_what_is_running_or_queued_is_not_submitted_again(submitted: RunFolder, slurm: FakeSlurm) -> None:
    slurm.prints(squeue="run.0|0|41|40|RUNNING|n1|None")
    result = jobs("resume", submitted.path)
    assert result.exit_code == 0, result.output
    assert "running or queued" in result.output
    assert len(submissions.read(submitted)) == 1


@pytest.mark.parametrize("command", ["cancel", "resume"])
def test_a_local_run_has_nothing_to_cancel_or_resume(tmp_path: Path, command: str) -> None:
    result = jobs(command, plan(tmp_path).path)
    assert result.exit_code == 2
    assert "was not submitted to Slurm" in result.stderr


def test_a_folder_without_a_plan_is_not_a_run_folder(tmp_path: Path) -> None:
    result = jobs("status", tmp_path)
    assert (result.exit_code, "is not a run folder" in result.stderr) == (2, True)
