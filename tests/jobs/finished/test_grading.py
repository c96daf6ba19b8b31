"""Grades are kept by grader version, never written over and compared; a failure of the machine is no verdict."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from grading import VERDICTS, Gold, Grade, GraderFailed, Submission, grader_version
from grading.grade import grade
from grading.regrade import main
from harness.problems import benchmarks
from harness.problems.problem import Problem, dataset_hash
from harness.trace import Step, Trace
from jobs import after, graders
from jobs.finished import grading
from jobs.finished.grading import finish, grade_by
from jobs.run import derived
from jobs.run.derived import changes, grade_files, read_grades
from jobs.run.endings import read_endings
from jobs.run.folder import RunFolder
from jobs.run.spec import EngineSpec, ModelSpec, RunSpec, units
from tests.jobs.runs import finished_run, jobs
from tests.warehouse.runs import write_part
from warehouse.database import reader
from warehouse.loading.runs import load_run
from warehouse.report.summary import summary

MODEL = ModelSpec(model="m", path="m", revision=None, fingerprint="m")
PROBLEMS = [
    Problem("toy/0", "toy", "1 + 1?", "2"),
    Problem("toy/1", "toy", "Solve.", "1,2", answers=("1", "2")),
    Problem("toy/2", "toy", "A gold that nobody can read.", r"\frac{1}{2"),
    Problem("toy/3", "toy", "Which?", "B", kind="choice", choices=("one", "two")),
]
ANSWERS = {
    "toy/0": (r"So \boxed{2}.", r"So \boxed{3}.", "\x1b[2J[red]no idea"),
    "toy/1": (r"\boxed{2, 1}", r"\boxed{1}", r"\boxed{1} and \boxed{2}"),
    "toy/2": (r"\boxed{\frac{1}{2}}", r"\boxed{7}", "no idea"),
    "toy/3": ("Answer: B", "Answer: A", r"\boxed{two}"),
}


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """Twelve planned samples in one run; one was cut off, one failed, one has not run."""
    spec = RunSpec(
        "vanilla", {"model": "target"}, "toy", dataset_hash(PROBLEMS), 4, 4, 3, 0, 0.6, 0.95, 64, None, MODEL,
        EngineSpec("scripted"), 1, "p",
    )  # fmt: skip
    folder = RunFolder(tmp_path / "runs" / spec.run_id)
    planned = units(spec, PROBLEMS)
    folder.create(spec, PROBLEMS, [planned])
    traces = []
    for unit in planned[:-1]:
        text = ANSWERS[unit.problem_id][unit.sample_index]
        step = Step("target", "chain", text, 4, (1, 2, 3, 4), "stop")
        traces.append(
            Trace(unit.sample_id, unit.problem_id, unit.sample_index, 1, steps=[step], stop_reason="answered")
        )
    traces[-1] = replace(traces[-1], stop_reason="error", error="RequestRefused: no")
    traces[8] = replace(traces[8], stop_reason="budget")
    write_part(folder, traces)
    return folder


def regrade(*arguments: object) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments), "--workers", "1"])


def graded_by(run: RunFolder, version: str, changed: dict[str, str], at: float) -> None:
    """The current grades as another version might have made them: some verdicts changed, written at another time."""
    [current] = [f for f in grade_files(run) if f.version == grader_version()]
    rows = [
        {**row, "grader_version": version, "verdict": changed.get(row["sample_id"], row["verdict"])}
        for row in read_grades(current).values()
    ]
    derived.write(run, "grades", version, rows, {"written_at": at})


def test_a_gold_that_its_own_grader_rejects_is_bad_gold_and_everything_sums_up(run: RunFolder, tmp_path: Path) -> None:
    database = tmp_path / "w.duckdb"
    result = regrade(run.path, "--database", database)
    assert result.exit_code == 0, result.output
    with reader(database) as connection:
        sql = "SELECT problem_id, list(verdict ORDER BY sample_index) FROM sample_grade GROUP BY problem_id"
        verdicts = dict(connection.execute(sql).fetchall())
        counts = dict(connection.execute("SELECT verdict, num_samples FROM verdict_counts").fetchall())
    assert verdicts == {
        "toy/0": ["correct", "wrong", "truncated"],
        "toy/1": ["correct", "wrong", "correct"],
        "toy/2": ["bad_gold", "bad_gold", "error"],
        "toy/3": ["correct", "wrong", "not_run"],
    }
    assert set(counts) == set(VERDICTS)
    assert sum(counts.values()) == len(PROBLEMS) * 3


def test_a_version_is_graded_once_in_a_file_of_its_own_that_names_the_grader(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish(run, workers=1)
    [first] = run.derived("grades")
    before = first.read_bytes(), first.stat().st_mtime_ns
    assert finish(run, workers=1) == 0
    assert regrade(run.path).exit_code == 0
    monkeypatch.setattr(graders, "grader_version", lambda: "99 next")
    assert finish(run, workers=1) == 11
    assert (first.read_bytes(), first.stat().st_mtime_ns) == before
    assert [file.version for file in grade_files(run)] == [grader_version(), "99 next"]
    made = derived.header(grade_files(run)[1].path)
    assert made["version"] == "99 next"
    for library in ("math-verify", "latex2sympy2-extended", "sympy", "antlr4-python3-runtime"):
        assert made["versions"][library] in grader_version()


def test_the_newest_is_the_one_that_graded_last_even_in_a_copied_folder(run: RunFolder, tmp_path: Path) -> None:
    finish(run, workers=1)
    graded_by(run, "0 older", {}, at=1.0)
    [current] = [f.path for f in grade_files(run) if f.version == grader_version()]
    os.utime(current, (0, 0))  # what a copy without its times might look like
    assert [f.version for f in grade_files(run)] == ["0 older", grader_version()]
    load_run(run, tmp_path / "w.duckdb")
    with reader(tmp_path / "w.duckdb") as connection:
        sql = "SELECT grader_version FROM counted_version"
        assert connection.execute(sql).fetchall() == [(grader_version(),)]


def test_what_moved_is_counted_and_listed(run: RunFolder) -> None:
    finish(run, workers=1)
    first, second, _, third = (unit.sample_id for unit in run.shards()[0][:4])
    graded_by(run, "0 older", {first: "wrong", second: "unparsable"}, at=1.0)
    result = regrade(run.path, "--diff")
    assert result.exit_code == 0, result.output
    lines = [" ".join(line.split()) for line in result.output.splitlines()]
    assert {"wrong correct 1", "unparsable correct 1"} <= set(lines)
    assert [line for line in lines if line.startswith("toy/0 0 wrong → correct 2 2 ")]
    grades = read_grades(grade_files(run)[1])
    moved = changes(run, {key: row for key, row in grades.items() if key != third}, grades)
    assert [(change.sample_id, change.verdicts) for change in moved] == [(third, ("not graded", "correct"))]


def test_a_run_that_cannot_be_read_is_named_and_the_others_are_graded(run: RunFolder, tmp_path: Path) -> None:
    broken = RunFolder(run.path.parent / "a-broken")
    broken.create(run.spec(), run.problems(), run.shards())
    broken.problems_path.write_bytes(b"")
    result = regrade(run.path.parent, "--database", tmp_path / "w.duckdb")
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1
    assert "WARNING: a-broken was SKIPPED because it cannot be read" in result.stderr
    with reader(tmp_path / "w.duckdb") as connection:
        assert connection.execute("SELECT run_id FROM run").fetchall() == [(run.path.name,)]


ROOT = Path(__file__).parents[3]
NO_FORKS = """
import errno, os, sys

if any("forkserver" in argument for argument in sys.orig_argv):
    def fork():
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    os.fork = fork
"""


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


def test_what_was_graded_is_kept_and_the_next_grading_grades_only_the_rest(tmp_path: Path) -> None:
    run = finished_run(tmp_path, samples=1)
    with pytest.raises(GraderFailed, match="SIGKILL") as failed:
        grade_by(run, "v", killed_at_one_gold, 2)
    assert f"jobs finalize {run.path}" in str(failed.value)
    assert len(stored(run)) == 7
    assert "grader_timeout" not in stored(run)
    assert grading.missing(run, read_endings(run)) == "not loaded"
    assert grade_by(run, "v", grade, 1) == 1
    assert len(stored(run)) == 8


def test_finalize_without_processes_ends_with_one_line_and_the_next_one_completes_the_run(tmp_path: Path) -> None:
    run = finished_run(tmp_path, samples=1)
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
    again = jobs("finalize", run.path)
    assert (again.exit_code, again.stderr) == (0, "")
    assert len(stored(run)) == 8
    assert run.results_path.exists()


def test_an_exception_of_the_grader_is_unparsable_and_the_summary_counts_it(tmp_path: Path) -> None:
    run = finished_run(tmp_path, samples=1)
    assert grade_by(run, "v", failing, 1) == 8
    assert set(stored(run)) == {"unparsable"}
    load_run(run, after.database_of(run))
    [result] = summary(after.database_of(run), [run.path.name])
    assert result.grader_exceptions == {"RecursionError": 8}
    assert any("RecursionError" in line for line in result.warnings)
    after.conclude(str(run.path))
    [result] = summary(after.database_of(run), [run.path.name])
    assert result.grader_exceptions == {}
