"""Runs on problems of one's own: launched, resumed, compared and checked as runs on known benchmarks are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from harness.launch import main
from harness.settings.launch_settings import Launch
from jobs import suite
from jobs.run.plan import plan
from jobs.run.spec import RunSpec
from warehouse.comparison.contrasts import compare_runs
from warehouse.database import reader, rows

QUESTIONS = [{"problem": f"What is {i} + {i}?", "answer": 2 * i} for i in range(1, 7)]
TOLD = 'file = "data/sums.jsonl"\ntitle = "Sums"\n[columns]\nproblem = "q"\n'


def write(path: Path, records: list[dict[str, Any]] = QUESTIONS) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(map(json.dumps, records)))
    return path


def launch(path: Path, **flags: Any) -> Launch:
    return Launch.from_flags({"method": "speccot", "dataset": str(path), "engine": "scripted", "samples": 2, **flags})


def run(*words: str, output: Path) -> Result:
    common = ["--engine", "scripted", "--samples", "2", "--cluster", "debug", "--output", str(output)]
    return CliRunner().invoke(main, [*words, *common])


def test_a_moved_file_resumes_its_run_and_a_changed_or_renamed_one_is_another(tmp_path: Path) -> None:
    first = plan(launch(write(tmp_path / "my.jsonl")), "local").spec
    moved = plan(launch(write(tmp_path / "sub" / "my.jsonl")), "local").spec
    renamed = plan(launch(write(tmp_path / "mine.jsonl")), "local").spec
    changed = plan(launch(write(tmp_path / "other" / "my.jsonl", QUESTIONS[1:])), "local").spec
    assert first.run_id == moved.run_id
    assert first.run_id.startswith("my-speccot-")
    assert len({first.run_id, renamed.run_id, changed.run_id}) == 3
    origins = [spec.dataset_origin for spec in (first, moved, renamed, changed)]
    contents = [origin.content for origin in origins if origin]
    assert contents[0] == contents[1] == contents[2] != contents[3]
    assert RunSpec.from_json(first.to_json()) == first


def test_a_run_is_graded_and_loaded_and_a_renamed_file_is_compared_with_it(tmp_path: Path) -> None:
    output = tmp_path / "runs"
    (tmp_path / "told.toml").write_text(TOLD)
    records = [{"q": question["problem"], "answer": question["answer"]} for question in QUESTIONS]
    write(tmp_path / "data" / "sums.jsonl", records)
    first = run("--method", "vanilla", "--dataset", str(tmp_path / "told.toml"), output=output)
    second = run("--method", "speccot", "--dataset", str(write(tmp_path / "renamed.jsonl")), output=output)
    assert (first.exit_code, second.exit_code) == (0, 0), (first, second)
    database = output / "warehouse.duckdb"
    with reader(database) as connection:
        found = rows(connection, "SELECT run_id, dataset, dataset_source, dataset_title FROM run ORDER BY dataset", {})
    assert [(row["dataset"], row["dataset_title"]) for row in found] == [("renamed", None), ("told", "Sums")]
    assert found[1]["dataset_source"] == f"file {tmp_path / 'data' / 'sums.jsonl'}"
    ids = {str(row["dataset"]): str(row["run_id"]) for row in found}
    compared = compare_runs([ids["renamed"], ids["told"]], database)
    [base] = compared.baselines
    assert (base.run.run_id, base.run.dataset) == (ids["told"], "renamed")
    assert {row.contrast.pair.num_shared_problems for row in compared.rows if row.contrast} == {6}


def test_a_suite_and_a_configuration_file_name_files_beside_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "suites" / "my.jsonl")
    (tmp_path / "suites" / "own.toml").write_text("system = 'Sir.'")
    (tmp_path / "suites" / "short.py").write_text("def grade(text, gold, problem): ...")
    text = 'dataset = "my.jsonl"\nprompts = "own.toml"\ngrader = "short.py:grade"\nengine = "scripted"\n'
    (tmp_path / "suites" / "mine.toml").write_text(f'{text}[[run]]\nmethod = "vanilla"\n')
    (tmp_path / "suites" / "config.toml").write_text(f'{text}method = "vanilla"\n')
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    [prepared] = suite.prepare(suite.read(Path("../suites/mine.toml")), None)
    assert prepared.plan.spec.dataset == "my"
    assert prepared.plan.spec.wording.system == "Sir."
    assert prepared.grader is not None
    words = ["--config", "../suites/config.toml", "--dry-run", "--cluster", "local"]
    assert CliRunner().invoke(main, words).exit_code == 0


SOLUTION = "3 * {0} = <<3*{0}=6>>\nso it is that.\n#### {0}"
SOLUTIONS = [SOLUTION.format(number) for number in range(4)]
GOLDS: dict[str, tuple[list[str], int, tuple[str, ...]]] = {
    "answers": (["42", r"\frac{1}{2}", "no solution", "5 cm", "50%", "√2"], 0, ()),
    "solutions": (SOLUTIONS, 2, ("4 of 4 reference answers", 'row/0 "3 * 0', '"hashes" in a TOML file', "row/2, …")),
    "boxes": ([rf"As it is so, \boxed{{{i}}} it is." for i in range(2)], 0, ("PROSE AS REFERENCE ANSWERS", "2 of 2")),
    "sentences": ([f"It is {i} because adding two to {i - 2} gives it." for i in range(4)], 2, ("no answer would be",)),
    "some braces": ([r"\frac{1", "5", "[red]\x1b[2J{"], 0, ("UNMATCHABLE REFERENCE ANSWERS: 2", "unbalanced", "row/2")),
    "all braces": ([r"\frac{1", r"[red]\sqrt{"], 2, ("no answer would be graded correct", "unbalanced")),
}  # fmt: skip


@pytest.mark.parametrize("name", GOLDS)
def test_golds_that_no_right_answer_meets_are_named_before_a_model_runs(name: str, tmp_path: Path) -> None:
    golds, exit_code, parts = GOLDS[name]
    path = write(tmp_path / "my.jsonl", [{"problem": f"{i}?", "answer": gold} for i, gold in enumerate(golds)])
    output = tmp_path / "runs"
    ended = run("--method", "vanilla", "--dataset", str(path), "--dry-run", output=output)
    assert ended.exit_code == exit_code, ended.output
    said = " ".join((ended.stderr if exit_code else ended.stdout).split())
    assert all(part in said for part in parts), said
    assert ("REFERENCE ANSWERS" in said or exit_code == 2) == bool(parts)
    assert "\x1b" not in ended.output
    assert not (tmp_path / "runs").exists()
