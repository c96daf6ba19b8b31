"""`python -m jobs`: what the commands submit, cancel and retry, and what they print."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from jobs.__main__ import main
from jobs.run import submissions
from jobs.run.folder import RunFolder
from jobs.run.submissions import Submission
from jobs.work.worker import run_shard
from tests.jobs.runs import plan
from tests.jobs.slurm.fake import SQUEUE_DOWN, FakeSlurm


@pytest.fixture(autouse=True)
def short_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Call the jobs of a folder run.0, run.1 and so on."""
    monkeypatch.setattr(submissions, "job_name", lambda run, number: f"run.{number}")


def jobs(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture
def submitted(tmp_path: Path) -> RunFolder:
    run = plan(tmp_path)
    submissions.record(run, Submission(0, "run.0", [[0]], 0.0))
    return run


def test_cancel_ends_the_tasks_and_the_job_after_them(submitted: RunFolder, slurm: FakeSlurm) -> None:
    slurm.prints(scancel="", squeue="")
    result = jobs("cancel", submitted.path)
    assert result.output == f"canceled; to resume:  python -m jobs resume {submitted.path}\n"
    assert slurm.calls()[1:] == ["scancel --name=run.0", "scancel --name=run.0.finalize"]


def test_commands_that_are_printed_can_be_pasted(tmp_path: Path, slurm: FakeSlurm) -> None:
    folder = tmp_path / "Anna's $HOME"
    folder.mkdir()
    run = plan(folder)
    submissions.record(run, Submission(0, "run.0", [[0]], 0.0))
    slurm.prints(scancel="", squeue="")
    [words] = [shlex.split(line) for line in jobs("cancel", run.path).output.splitlines()]
    assert words[-1] == str(run.path)
    lines = jobs("finalize", run.path).output.splitlines()
    pasted = [shlex.split(line) for line in lines if line.startswith("  python -m")]
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
    assert result.exit_code == 1
    message = f"shard 0 of {run.path.name} is locked by another process, which works on it"
    assert result.stderr == f"error: {message}: wait for its end, or cancel its job\n"


def test_cancel_of_a_finished_run_says_that_it_is_finished_and_records_nothing(
    submitted: RunFolder, slurm: FakeSlurm
) -> None:
    run_shard(str(submitted.path), 0)
    slurm.prints(scancel="", squeue="")
    result = jobs("cancel", submitted.path)
    assert (result.exit_code, result.output) == (0, f"{submitted.path.name} is finished; there is nothing to cancel\n")
    assert not submissions.is_canceled(submitted)
    assert not [call for call in slurm.calls() if call.startswith("scancel")]


def test_cancel_ends_the_job_that_grades_a_finished_run(submitted: RunFolder, slurm: FakeSlurm) -> None:
    run_shard(str(submitted.path), 0)
    slurm.prints(scancel="", squeue="run.0.finalize|0|8|8|RUNNING|n1|None")
    assert jobs("cancel", submitted.path).output.startswith("canceled; ")
    assert "scancel --name=run.0.finalize" in slurm.calls()


def test_cancel_reports_in_one_line_that_slurm_failed(submitted: RunFolder, slurm: FakeSlurm) -> None:
    slurm.prints(squeue="")
    slurm.answers(scancel="echo 'scancel: error: Unable to contact slurm controller' >&2; exit 1")
    result = jobs("cancel", submitted.path)
    assert result.exit_code == 1
    message = "Slurm failed, and nothing more was done: scancel: Unable to contact slurm controller"
    assert result.stderr == f"error: {message}\n"


def test_resume_reports_in_one_line_that_slurm_failed(submitted: RunFolder, slurm: FakeSlurm) -> None:
    slurm.answers(squeue=SQUEUE_DOWN)
    result = jobs("resume", submitted.path)
    assert result.exit_code == 1
    assert result.stderr.startswith("error: Slurm failed, and nothing more was done: squeue: slurm_load_jobs")
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


@pytest.mark.parametrize("command", ["worker", "logs"])
def test_a_shard_that_the_run_lacks_is_refused(tmp_path: Path, command: str) -> None:
    result = jobs(command, plan(tmp_path).path, "9")
    assert (result.exit_code, result.stderr) == (2, "error: SHARD 9: the run has 1 shard, numbered from 0\n")
    result = jobs(command, plan(tmp_path, samples=2, shards=3).path, "3")
    assert (result.exit_code, result.stderr) == (2, "error: SHARD 3: the run has 3 shards, numbered from 0\n")


def test_logs_say_why_there_is_nothing_to_show(tmp_path: Path, submitted: RunFolder, slurm: FakeSlurm) -> None:
    slurm.prints(squeue="run.0|0|41|40|RUNNING|n1|None", sacct="")
    result = jobs("logs", submitted.path)
    assert (result.exit_code, result.output) == (0, "No shard has stopped; name a shard to see its log.\n")
    local = plan(tmp_path / "local")
    expected = f"No log of a worker of shard 0; all logs are in {local.logs_dir}.\n"
    result = jobs("logs", local.path)
    assert (result.exit_code, result.output) == (1, expected)


def test_status_and_logs_show_what_ended_a_worker_on_this_machine(tmp_path: Path) -> None:
    run = plan(tmp_path)
    log = run.logs_dir / "jobs" / "in-process.log"
    log.parent.mkdir(parents=True)
    log.write_text("Traceback (most recent call last):\n  x\nLaunchFailed: no more disk\n== failed: no more disk\n")
    assert "no more disk" in jobs("status", run.path).output
    shown = jobs("logs", run.path).output.splitlines()
    reason = "== worker on this machine: no more disk"
    text = log.read_text().splitlines()
    assert shown == [f"== worker on this machine: {log}", *text, reason, f"== log: {log}"], "the reason comes last"
    assert jobs("logs", run.path, "0", "--lines", "1").output.splitlines()[1:] == [text[-1], reason, f"== log: {log}"]


@pytest.mark.parametrize("name", ["plan.parquet", "problems.parquet", "spec.json"])
def test_a_damaged_plan_is_one_line(tmp_path: Path, name: str) -> None:
    run = plan(tmp_path)
    (run.path / name).write_text("{", encoding="utf-8")
    command = "status" if name == "plan.parquet" else "finalize"
    result = jobs(command, run.path)
    assert result.exit_code in {1, 2}
    assert f"{run.path / name} is damaged: " in result.stderr
    assert result.stderr.count("\n") == 1


def test_the_status_of_several_runs(tmp_path: Path) -> None:
    first, second = plan(tmp_path), plan(tmp_path, samples=2)
    result = jobs("status", first.path, second.path)
    assert result.exit_code == 0
    assert f"{first.path.name}: 0 of 24 samples finished" in result.stdout
    assert f"{second.path.name}: 0 of 16 samples finished" in result.stdout
    other = tmp_path / "warehouse.duckdb"
    other.touch()
    result = jobs("status", first.path, other)
    assert (result.exit_code, result.stderr) == (0, f"skipped, not a run folder: {other}\n")
    assert first.path.name in result.stdout
    assert jobs("status", other, tmp_path).exit_code == 2


def test_the_folder_of_run_folders_names_them(tmp_path: Path) -> None:
    run = plan(tmp_path)
    result = jobs("status", tmp_path)
    assert result.exit_code == 2
    assert result.stderr.endswith(f"it has no events.jsonl; the run folders in it: {run.path.name}\n")


def test_every_command_has_a_summary_that_is_not_cut_off() -> None:
    assert "..." not in CliRunner().invoke(main, ["--help"], terminal_width=80).output.partition("Commands:")[2]


def test_a_date_has_one_form() -> None:
    result = jobs("nightly", "--suite", "x.toml", "--date", "tonight")
    assert result.exit_code == 2
    assert "'tonight' does not match the format '%Y-%m-%d'" in result.stderr
    assert "YYYY-MM-DD" in jobs("nightly", "--help").output
