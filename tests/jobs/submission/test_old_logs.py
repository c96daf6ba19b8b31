"""Few files in logs/jobs: what past jobs left is put together, and what status and logs show stays."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from jobs import __main__ as commands
from jobs.run import submissions
from jobs.run.folder import RunFolder
from jobs.run.submissions import SharedJob, Submission
from jobs.slurm.client import Task
from jobs.submission import old_logs
from jobs.submission.submit import submit_here
from jobs.work.worker import run_shard
from tests.jobs.runs import plan
from tests.jobs.slurm.fake import FakeSlurm

ERROR = "harness.engines.vllm_process.EngineDied: the target died"


def submit(run: RunFolder, number: int, tasks: Sequence[Sequence[int]], error: str = ERROR) -> None:
    """Leave what a job of the run and the job that grades leave."""
    folder = run.logs_dir / "jobs"
    folder.mkdir(exist_ok=True)
    job, name = 1000 + 2 * number, f"run.{number}"
    submissions.record(run, Submission(number, name, [list(task) for task in tasks], float(number)))
    for index in range(len(tasks)):
        (folder / f"{job}_{index}_0_log.out").write_text(f"attempt {number} of task {index}\n{error}\n")
        (folder / f"{job}_{index}_submitted.pkl").write_bytes(b"pickle")
        (folder / f"{job}_{index}_0_result.pkl").write_bytes(b"pickle")
    (folder / f"{job}_submission.sh").write_text(f"#!/bin/bash\n#SBATCH --job-name={name}\n")
    (folder / f".submission_file_{job}.sh").symlink_to(folder / f"{job}_submission.sh")
    finalizer = job + 1
    (folder / f"{finalizer}_0_log.out").write_text(f"graded {number}\n")
    (folder / f"{finalizer}_submitted.pkl").write_bytes(b"pickle")
    (folder / f"{finalizer}_0_result.pkl").write_bytes(b"pickle")
    (folder / f"{finalizer}_submission.sh").write_text(f"#!/bin/bash\n#SBATCH --job-name={name}.finalize\n")


def queried(run: RunFolder) -> list[str]:
    return [name for s in submissions.read(run) for name in (s.name, f"{s.name}.finalize")]


def left(run: RunFolder) -> list[str]:
    return sorted(path.name for path in (run.logs_dir / "jobs").iterdir())


def test_193_resumes_leave_a_dozen_files_and_the_last_errors(tmp_path: Path, slurm: FakeSlurm) -> None:
    run = plan(tmp_path, shards=2)
    for number in range(194):
        submit(run, number, [[0], [1]] if number < 100 else [[1]], f"{ERROR}, time {number}")
        old_logs.merge(run, queried(run), [], [0, 1])
    files = left(run)
    assert len(files) <= 21, files
    # Task 0 was given shard 0 last by submission 99; the log of its error is there, and `status` and `logs` show it.
    assert {"1198_0_0_log.out", "1386_0_0_log.out", "1384_0_0_log.out"} <= set(files)
    assert not [name for name in files if name.endswith(".pkl")]
    assert not [path for path in (run.logs_dir / "jobs").iterdir() if path.is_symlink() and not path.exists()]
    slurm.prints(squeue="", sacct="run.99|1198_0|FAILED|n1|5|\nrun.193|1386_0|FAILED|n1|5|")
    shown = CliRunner().invoke(commands.main, ["status", str(run.path)]).output
    shown = " ".join(shown.split())  # the column is narrow
    assert "the target died, time 99" in shown, shown
    assert "the target died, time 193" in shown, shown
    merged = (run.logs_dir / "jobs" / old_logs.MERGED).read_text()
    assert "the target died, time 0\n" in merged
    assert "the target died, time 190\n" in merged
    assert merged.count("\n== log 1000_0_0_log.out ") == 1
    slurm.prints(squeue="", sacct="run.193|1000_0|FAILED|n1|5|")
    shown = CliRunner().invoke(commands.main, ["logs", str(run.path), "1"]).output
    assert "attempt 0 of task 0" in shown, "a log that was merged is found by its task"


def test_files_of_jobs_that_slurm_has_or_was_not_asked_for_stay(tmp_path: Path) -> None:
    run = plan(tmp_path, shards=1)
    for number in range(5):
        submit(run, number, [[0]])
    before = left(run)
    has_0_and_1 = [Task("run.0", 0, "1000_0", "RUNNING"), Task("run.1.finalize", 0, "1003", "PENDING")]
    old_logs.merge(run, queried(run)[:4], has_0_and_1, [0])
    gone = set(before) - set(left(run))
    of_run_1 = {"1002_0_submitted.pkl", "1002_0_0_result.pkl"}  # its log is one of the two latest
    assert {name for name in gone if not name.startswith("1001_")} == of_run_1
    assert {"1000_0_submitted.pkl", "1003_submitted.pkl", "1004_0_submitted.pkl"} <= set(left(run))


def test_a_colleagues_files_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = plan(tmp_path, shards=1)
    for number in range(4):
        submit(run, number, [[0]])
    before = left(run)
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    old_logs.merge(run, queried(run), [], [0])
    assert left(run) == before


def test_logs_of_a_shared_job_stay_while_another_run_of_it_is_unfinished(tmp_path: Path) -> None:
    first, second = plan(tmp_path, shards=1), plan(tmp_path, shards=1, samples=2)
    for number in range(4):
        submit(first, number, [[0]])
    submissions.record_shared(first, SharedJob("run.0", [first.path.name, second.path.name], "run.0.finalize"))
    old_logs.merge(first, queried(first), [], [])
    assert "1000_0_0_log.out" in left(first)
    assert "1002_0_0_log.out" not in left(first)
    run_shard(str(second.path), 0)
    old_logs.merge(first, queried(first), [], [])
    assert left(first) == [old_logs.MERGED]


def test_the_merged_file_is_bounded_and_keeps_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(old_logs, "_MOST_BYTES", 100_000)
    run = plan(tmp_path, shards=1)
    for number in range(60):
        submit(run, number, [[0]], "x" * 5_000)
    old_logs.merge(run, queried(run), [], [])
    merged = run.logs_dir / "jobs" / old_logs.MERGED
    assert merged.stat().st_size <= 100_000
    assert "attempt 59" in merged.read_text()
    assert "attempt 0 " not in merged.read_text()


def test_workers_on_this_machine_leave_the_logs_of_the_last_launch(tmp_path: Path) -> None:
    run = plan(tmp_path, shards=1)
    for _ in range(2):
        jobs = submit_here(run, [0], "local")
        assert [job.exception() for job in jobs] == [None]
        old_logs.end_local(run, [job.job_id for job in jobs])
    files = [name for name in left(run) if name != old_logs.MERGED]
    assert {name.split("_", 1)[1] for name in files} <= {"0_log.out", "0_log.err"}
    assert {name.split("_")[0] for name in files} == {job.job_id for job in jobs}


def test_what_a_killed_process_left_half_written_goes_after_a_day(tmp_path: Path) -> None:
    run = plan(tmp_path, shards=1)
    submit(run, 0, [[0]])
    old, new = run.path / ".spec.json.0123abcd", run.path / ".spec.json.89ef0123"
    for path in (old, new):
        path.write_bytes(b"{")
    os.utime(old, (time.time() - 90_000,) * 2)
    old_logs.merge(run, queried(run), [], [0])
    assert (old.exists(), new.exists()) == (False, True)
