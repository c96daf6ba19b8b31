"""A failure of the machine while answers are graded is no verdict, and the next grading grades the rest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from grading import Gold, Grade, GraderFailed, Submission
from grading.grade import grade
from harness.problems import benchmarks
from jobs import after
from jobs.__main__ import main
from jobs.finished import grading
from jobs.finished.grading import grade_by
from jobs.run.derived import grade_files, read_grades
from jobs.run.endings import read_endings
from jobs.run.folder import RunFolder
from tests.jobs.runs import finished_run
from warehouse.loading.runs import load_run
from warehouse.report.summary import summary

ROOT = Path(__file__).parents[3]
NO_FORKS = """
import errno, os, sys

if any("forkserver" in argument for argument in sys.orig_argv):
    def fork():
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    os.fork = fork
"""


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return finished_run(tmp_path, samples=1)


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT)  # grader processes import the functions below by name


GOLDS = [problem.answer for problem in benchmarks.load("demo")[:8]]
LOST = next(gold for gold in GOLDS if GOLDS.count(gold) == 1)


def killed_at_one_gold(submission: Submission, gold: Gold) -> Grade:
    if gold.answer == LOST:
        os.kill(os.getpid(), 9)
    return grade(submission, gold)


def failing(submission: Submission, gold: Gold) -> Grade:
    raise RecursionError("too deep")


def stored(run: RunFolder) -> list[str]:
    return [row["verdict"] for file in grade_files(run) for row in read_grades(file).values()]


def test_what_was_graded_is_kept_and_the_next_grading_grades_only_the_rest(run: RunFolder) -> None:
    with pytest.raises(GraderFailed, match="SIGKILL") as failed:
        grade_by(run, "v", killed_at_one_gold, 2)
    assert f"jobs finalize {run.path}" in str(failed.value)
    assert len(stored(run)) == 7
    assert "grader_timeout" not in stored(run)
    assert grading.missing(run, read_endings(run)) == "not loaded"
    assert grade_by(run, "v", grade, 1) == 1
    assert len(stored(run)) == 8


def test_finalize_without_processes_ends_with_one_line_and_the_next_one_completes_the_run(
    run: RunFolder, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(NO_FORKS)
    command = [sys.executable, "-m", "jobs", "finalize", str(run.path)]
    environment = {**os.environ, "PYTHONPATH": f"{site}:{ROOT}"}
    ended = subprocess.run(command, check=False, env=environment, capture_output=True, text=True)
    assert ended.returncode == 1
    assert len(ended.stderr.splitlines()) == 1
    assert stored(run) == []
    assert not run.results_path.exists()
    again = CliRunner().invoke(main, ["finalize", str(run.path)])
    assert (again.exit_code, again.stderr) == (0, "")
    assert len(stored(run)) == 8
    assert run.results_path.exists()


def test_an_exception_of_the_grader_is_unparsable_and_the_summary_counts_it(run: RunFolder) -> None:
    assert grade_by(run, "v", failing, 1) == 8
    assert set(stored(run)) == {"unparsable"}
    load_run(run, after.database_of(run))
    [result] = summary(after.database_of(run), [run.path.name])
    assert result.grader_exceptions == {"RecursionError": 8}
    assert any("RecursionError" in line for line in result.warnings)
    after.conclude(str(run.path))
    [result] = summary(after.database_of(run), [run.path.name])
    assert result.grader_exceptions == {}
