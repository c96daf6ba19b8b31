"""The command that grades again: its counts, its rows, its mistakes, and whole runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from syrupy.assertion import SnapshotAssertion

from grading import GRADER_VERSION, grader_version
from grading.regrade import main
from harness.problems.problem import Problem, dataset_hash
from harness.trace import Step, Trace
from jobs.finished.regrading import counts
from jobs.run import derived, trace_files
from jobs.run.derived import grade_files
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


def test_a_run_is_graded_once_and_every_output_is_said(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    monkeypatch.setattr("grading.regrade.SHOWN", 1)
    lines = {"not graded yet": output_of(run.path, "--versions")}
    lines["first"] = output_of(run.path, "--database", tmp_path / "w.duckdb")
    assert (tmp_path / "w.duckdb").is_file()
    lines["again"] = output_of(run.path)
    lines["versions"] = output_of(run.path, "--versions")
    lines["one version"] = output_of(run.path, "--diff")
    rows = trace_files.read_rows(grade_files(run)[-1].path)
    derived.write(run, "grades", "0 older", [{**row, "grader_version": "0 older", "verdict": "wrong"} for row in rows])
    lines["the newest is of an older version"] = output_of(run.path)
    difference = (run.path, "--diff", "--old", "0", "--new", GRADER_VERSION)
    lines["difference"], lines["whole difference"] = output_of(*difference), output_of(*difference, "--all")
    text = "\n".join(f"{name}: {' '.join(line.split())}" for name, line in lines.items())
    for known, shown in ((run.path.name, "RUN"), (grader_version(), "VERSION")):
        text = text.replace(known, shown)
    assert re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?|[\d.]+ s\b", "TIME", text) == snapshot


def test_an_unreadable_run_is_named_and_the_others_are_graded(run: RunFolder) -> None:
    broken = RunFolder(run.path.parent / "a-broken")
    broken.create(run.spec(), run.problems(), run.shards())
    shards = broken.path / "plan.parquet"
    shards.write_bytes(shards.read_bytes()[:-9])
    result = CliRunner().invoke(main, [str(run.path.parent), "--workers", "1"])
    assert (result.exit_code, "a-broken" in result.stderr, run.path.name in result.stdout) == (1, True, True)
    assert grade_files(run)


def test_counts_sum_to_all_planned_samples() -> None:
    grades = {"a": {"verdict": "correct"}, "b": {"verdict": "wrong"}, "c": {"verdict": "correct"}}
    assert counts(grades, 5) == "correct 2, wrong 1, not_run 2, sum 5"


@pytest.mark.parametrize("arguments", [[], ["--new", GRADER_VERSION], ["--nothing"]])
def test_a_mistake_is_one_line_and_exit_code_2(tmp_path: Path, arguments: list[str]) -> None:
    result = CliRunner().invoke(main, [str(tmp_path), *arguments])
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert arguments[:1] == [] or arguments[0] in result.stderr
