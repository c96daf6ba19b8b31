"""The command that grades again: its counts, its rows, its mistakes, and whole runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from grading import GRADER_VERSION, grader_version
from grading.regrade import main
from harness.problems.problem import Problem, dataset_hash
from harness.trace import Step, Trace
from jobs.finished.regrading import _short, counts, row_of
from jobs.run import derived, trace_files
from jobs.run.derived import Change, grade_files
from jobs.run.folder import RunFolder
from jobs.run.spec import EngineSpec, ModelSpec, RunSpec, units
from tests.warehouse.runs import write_part

MODEL = ModelSpec(model="m", path="m", revision=None, fingerprint="m")
PROBLEMS = [Problem("toy/0", "toy", "1 + 1?", "2"), Problem("toy/1", "toy", "1 + 2?", "3")]


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """Two problems with two samples each, all of which answer 2; one sample has not run."""
    spec = RunSpec(
        "vanilla", {"model": "target"}, "toy", dataset_hash(PROBLEMS), 2, 2, 2, 0, 0.6, 0.95, 64, None, MODEL,
        EngineSpec("scripted"), 1, "p",
    )  # fmt: skip
    folder = RunFolder(tmp_path / "runs" / spec.run_id)
    planned = units(spec, PROBLEMS)
    folder.create(spec, PROBLEMS, [planned])
    step = Step("target", "chain", r"So \boxed{2}.", 4, (1, 2, 3, 4), "stop")
    traces = [
        Trace(unit.sample_id, unit.problem_id, unit.sample_index, 1, steps=[step], stop_reason="answered")
        for unit in planned[:-1]
    ]
    write_part(folder, traces)
    return folder


def output_of(*arguments: object) -> str:
    result = CliRunner().invoke(main, [*map(str, arguments), "--workers", "1"])
    assert result.exit_code == 0, result.output
    return result.stdout


def add_version(run: RunFolder, version: str, verdict: str) -> None:
    """Write the current grades as those of another version, all with one verdict."""
    rows = trace_files.read_rows(grade_files(run)[-1].path)
    changed = [{**row, "grader_version": version, "verdict": verdict} for row in rows]
    derived.write(run, "grades", version, changed)


def test_a_run_is_graded_once_and_its_verdicts_sum_to_the_plan(run: RunFolder, tmp_path: Path) -> None:
    output = output_of(run.path, "--database", tmp_path / "w.duckdb")
    assert f"3 graded now by {grader_version()}; correct 2, wrong 1, not_run 1, sum 4" in output
    assert (tmp_path / "w.duckdb").is_file()
    assert "0 graded now by" in output_of(run.path)


def test_versions_are_listed_and_nothing_is_graded(run: RunFolder) -> None:
    assert output_of(run.path, "--versions").endswith("not graded yet\n")
    output_of(run.path)
    assert f"{grader_version()}: 3 grades, " in output_of(run.path, "--versions")


def test_changed_verdicts_are_counted_and_the_list_can_be_cut(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    output_of(run.path)
    assert "only one grader version" in output_of(run.path, "--diff")
    add_version(run, "0 older", "wrong")
    monkeypatch.setattr("grading.regrade.SHOWN", 1)
    output = output_of(run.path, "--diff", "--old", "0", "--new", GRADER_VERSION)
    assert "2 of 4 verdicts changed" in output
    assert "… and 1 more: --all lists them" in output
    assert "more" not in output_of(run.path, "--diff", "--old", "0", "--new", GRADER_VERSION, "--all")


def test_an_older_version_that_graded_last_is_named(run: RunFolder) -> None:
    output_of(run.path)
    add_version(run, "0 older", "wrong")
    assert "the newest version, which the warehouse counts, is 0 older" in output_of(run.path)


def test_an_unreadable_run_is_named_and_the_others_are_graded(run: RunFolder) -> None:
    broken = RunFolder(run.path.parent / "a-broken")
    broken.create(run.spec(), run.problems(), run.shards())
    shards = broken.path / "plan.parquet"
    shards.write_bytes(shards.read_bytes()[:-9])
    result = CliRunner().invoke(main, [str(run.path.parent), "--workers", "1"])
    assert result.exit_code == 1
    assert "WARNING: a-broken cannot be read and is LEFT OUT" in result.stderr
    assert "3 graded now" in result.stdout


def test_counts_sum_to_all_planned_samples() -> None:
    grades = {"a": {"verdict": "correct"}, "b": {"verdict": "wrong"}, "c": {"verdict": "correct"}}
    assert counts(grades, 5) == "correct 2, wrong 1, not_run 2, sum 5"
    assert counts({}, 0) == "sum 0"


def test_a_row_shows_both_answers_and_both_reasons() -> None:
    old = {"verdict": "wrong", "extracted": "4", "rule": "last_number", "detail": "exact numbers"}
    new = {"verdict": "correct", "extracted": "5", "rule": "boxed", "detail": "same string"}
    row = row_of(Change("id", "toy/0", 3, "5", old, new))
    assert row == (
        "toy/0",
        "3",
        "wrong → correct",
        "5",
        "4 → 5",
        "last_number: exact numbers → boxed: same string",
    )
    assert row_of(Change("id", "toy/0", 3, "5", None, new))[4:] == ("– → 5", "– → boxed: same string")


def test_long_texts_are_cut() -> None:
    assert _short("x" * 60) == "x" * 60
    assert _short("x" * 61) == "x" * 59 + "…"
    assert _short(None) == "–"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no run folder in"),
        (["--new", GRADER_VERSION], "--old and --new need --diff"),
        (["--nothing"], "No such option"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(tmp_path: Path, arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(main, [str(tmp_path), *arguments])
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert message in result.stderr
