"""Grades and results of a finished run: `jobs status` says what is missing, `jobs resume` has it done once."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from grading import Gold, Grade
from grading import Submission as Answer
from grading.regrade import main as regrade
from jobs import after
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
from tests.jobs.runs import finished_run, jobs, plan
from tests.jobs.slurm.fake import SACCT_DOWN, SQUEUE_DOWN, FakeSlurm
from tests.warehouse.runs import locked
from warehouse.database import writer
from warehouse.report.summary import summary

UNGRADED, UNLOADED, COMPLETE = "not graded", "not loaded", ""


def printed(*words: object) -> str:
    result = jobs(*words)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def finished(tmp_path: Path) -> RunFolder:
    return finished_run(tmp_path, samples=1)


@pytest.fixture(scope="module")
def concluded(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run that every test leaves complete."""
    run = finished_run(tmp_path_factory.mktemp("runs"), samples=1)
    after.conclude(str(run.path))
    return run


@pytest.fixture
def on_slurm(finished: RunFolder, slurm: FakeSlurm) -> RunFolder:
    """A finished run whose job that grades was killed."""
    name = submissions.job_name(finished, 0)
    submissions.record(finished, Submission(0, name, [[0]], 0.0))
    for job_id in ("5", "6"):
        submissions.record_job(finished, job_id)
    log = finished.logs_dir / "jobs" / "6_0_log.out"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(f"{BEGINS} on n1 at 2026-11-23 12:52:14+00:00\n")
    slurm.prints(squeue="", sacct=f"{name}|5_0|COMPLETED|n1|60||0:0\n{name}.finalize|6|FAILED|n1|2||0:9")
    return finished


def all_wrong(answer: Answer, gold: Gold) -> Grade:
    return Grade("wrong", None, None, "", 0.0)


def missing(run: RunFolder) -> str:
    return grading.missing(run, read_endings(run))


def test_a_run_lacks_grades_and_then_results_until_it_is_concluded(finished: RunFolder) -> None:
    assert missing(finished) == UNGRADED
    finish(finished)
    assert missing(finished) == UNLOADED
    assert "python -m jobs finalize" in printed("status", finished.path)
    printed("resume", finished.path)
    assert missing(finished) == COMPLETE
    [traces] = finished.trace_files()
    written = finished.results_path.stat().st_mtime
    later = written + 1  # as of a later try, whose samples are in a further file
    os.utime(traces, (later, later))
    assert missing(finished) == UNLOADED
    os.utime(traces, (written - 1, written - 1))
    assert missing(finished) == COMPLETE
    timed = timings.TimingFolder(finished.path)
    timed.trace_files_dir.mkdir(parents=True)
    (timed.trace_files_dir / "shard-0-later.parquet").write_bytes(b"")
    assert missing(finished) == UNLOADED
    [grades] = finished.derived("grades")
    grades.unlink()
    assert missing(finished) == UNGRADED


def test_a_run_that_is_graded_again_lacks_nothing_and_its_result_is_that_of_the_newer_grades(
    concluded: RunFolder,
) -> None:
    before, database = concluded.results_path.read_bytes(), after.database_of(concluded)
    assert grade_by(concluded, "newer", all_wrong, 1) == 8
    assert missing(concluded) == COMPLETE
    result = CliRunner().invoke(regrade, [str(concluded.path), "--database", str(database)])
    assert result.exit_code == 0, result.output
    assert missing(concluded) == COMPLETE
    written = concluded.results_path.read_bytes()
    assert written != before
    assert [run.to_json() for run in summary(database, [concluded.path.name])] == [written]


def test_a_run_without_database_or_without_the_times_of_its_files_is_loaded_and_not_graded_again(
    concluded: RunFolder,
) -> None:
    before = [grades.stat().st_mtime_ns for grades in concluded.derived("grades")]
    after.database_of(concluded).unlink()
    os.utime(concluded.results_path, (0, 0))  # which was copied first
    assert missing(concluded) == UNLOADED
    printed("resume", concluded.path)
    assert (missing(concluded), after.database_of(concluded).exists()) == (COMPLETE, True)
    assert [grades.stat().st_mtime_ns for grades in concluded.derived("grades")] == before


def test_the_status_says_how_the_job_ended_that_was_to_grade_or_that_it_is_queued(
    on_slurm: RunFolder, slurm: FakeSlurm
) -> None:
    command = f"python -m jobs finalize {on_slurm.path}"
    [line] = [line for line in printed("status", on_slurm.path).splitlines() if line.endswith(command)]
    assert "job 6: Slurm: FAILED, signal 9" in line
    slurm.answers(sacct=SACCT_DOWN)
    assert status(on_slurm).next_step == f"{UNGRADED}:  {command}", "decided without accounting"
    slurm.prints(squeue=f"{submissions.job_name(on_slurm, 0)}.finalize|N/A|6|6|PENDING||Priority", sacct="")
    assert "job 6" in status(on_slurm).next_step
    slurm.answers(squeue=SQUEUE_DOWN)
    assert status(on_slurm).next_step == ""


def test_resume_submits_the_job_that_grades_again_and_only_once(
    on_slurm: RunFolder, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, list[str]]] = []

    def submit_finalizer(run: RunFolder, name: str, ids: list[str], parameters: object) -> str:
        calls.append((name, ids))
        return "7"

    monkeypatch.setattr(submit, "submit_finalizer", submit_finalizer)
    monkeypatch.setattr(code_archive, "take", lambda run: "code-0.zip")
    assert "submitted job 7" in printed("resume", on_slurm.path)
    name = submissions.job_name(on_slurm, 0)
    slurm.prints(squeue=f"{name}.finalize|N/A|7|7|RUNNING|n1|None")
    assert "job 7" in printed("resume", on_slurm.path)
    after.conclude(str(on_slurm.path))
    slurm.prints(squeue="")
    printed("resume", on_slurm.path)
    assert calls == [(name, [])]


def changed_at(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns


def test_whatever_concludes_a_run_writes_its_results_unless_they_are_as_they_were(finished: RunFolder) -> None:
    assert after.conclude(str(finished.path))
    first, before = finished.results_path.read_bytes(), changed_at(finished.results_path)
    found = json.loads(first)
    assert (found["run_id"], found["state"], found["finished"]) == (finished.path.name, "finished", 8)
    assert "SCRIPTED" in found["warnings"][0]
    [run] = summary(finished.path.parent / "warehouse.duckdb", [finished.path.name])
    assert first == run.to_json()
    after.conclude(str(finished.path))
    assert changed_at(finished.results_path) == before
    finished.results_path.unlink()
    assert grading.missing(finished, read_endings(finished))
    assert jobs("finalize", finished.path).exit_code == 0
    assert finished.results_path.read_bytes() == first


def test_a_run_that_is_under_way_has_none(tmp_path: Path) -> None:
    run = plan(tmp_path, shards=2)
    run_shard(str(run.path), 0)
    assert not after.conclude(str(run.path))
    assert not run.results_path.exists()


def test_results_go_where_failed_samples_are_to_be_retried(
    finished: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    after.conclude(str(finished.path))
    database = finished.path.parent / "warehouse.duckdb"
    retried = [run.model_copy(update={"state": "under way"}) for run in summary(database, [finished.path.name])]
    monkeypatch.setattr("warehouse.report.summary.summary", lambda *_: retried)
    after.conclude(str(finished.path))
    assert not finished.results_path.exists()


def test_what_is_no_database_of_this_format_is_found_before_a_run_and_a_locked_one_passes(
    tmp_path: Path,
) -> None:
    database, folder, notes, old = (tmp_path / f"{name}.duckdb" for name in ("warehouse", "folder", "notes", "old"))
    after.check(database)
    assert not database.exists()
    with writer(database):
        pass
    after.check(database)
    with locked(database):
        after.check(database)
    notes.write_text("notes", encoding="utf-8")
    folder.mkdir()
    with writer(old) as connection:
        connection.execute("UPDATE schema_version SET digest = 'other'")
    for wrong, message in (
        (notes, r"cannot be opened: .*if it is a damaged database, delete it"),
        (folder, r"is a folder$"),
        (old, "recreate the database from the run folders"),
    ):
        with pytest.raises(after.WarehouseError, match=message):
            after.check(wrong)
