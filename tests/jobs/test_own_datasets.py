"""Runs on problems of one's own: launched, resumed, compared and checked as runs on known benchmarks are."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from grading.check import main as check_golds
from harness.doctor import main as doctor
from harness.launch import main
from harness.settings.launch_settings import Launch
from jobs import suite
from jobs.run.endings import compact, read_state
from jobs.run.folder import RunFolder
from jobs.run.plan import plan
from jobs.run.spec import RunSpec, assign_to_shards, units
from jobs.work.worker import run_shard
from tests.jobs.runs import SLOW_WORKER, finished_ids, planned_ids, wait_for_steps
from warehouse.comparison.contrasts import compare_runs
from warehouse.database import reader, rows

QUESTIONS = [{"problem": f"What is {i} + {i}?", "answer": 2 * i} for i in range(1, 7)]
TOLD = 'file = "data/sums.jsonl"\ntitle = "Sums of our own"\n[columns]\nproblem = "q"\n'


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


def test_the_first_problems_and_those_by_number_or_id_can_be_chosen(tmp_path: Path) -> None:
    named = [{**question, "id": f"q-{i}"} for i, question in enumerate(QUESTIONS)]
    limited = plan(launch(write(tmp_path / "my.jsonl"), limit=2), "local")
    chosen = plan(launch(tmp_path / "my.jsonl", problems="1,3-4"), "local")
    by_id = plan(launch(write(tmp_path / "named.jsonl", named), problems="q-5,q-0"), "local")
    assert (limited.spec.num_problems, limited.spec.dataset_size, limited.spec.limited) == (2, 6, True)
    assert [problem.id for problem in chosen.problems] == ["row/1", "row/3", "row/4"]
    assert [problem.id for problem in by_id.problems] == ["q-0", "q-5"]


def test_problems_without_numbers_in_their_ids_are_numbered_and_an_end_of_two_ids_names_neither(tmp_path: Path) -> None:
    letters = [{**question, "id": f"sum-{'abcdef'[i]}"} for i, question in enumerate(QUESTIONS)]
    by_number = plan(launch(write(tmp_path / "letters.jsonl", letters), problems="2,4-5"), "local")
    assert [problem.id for problem in by_number.problems] == ["sum-c", "sum-e", "sum-f"]
    twice = [{**question, "id": f"{'ab'[i % 2]}/{i // 2}"} for i, question in enumerate(QUESTIONS)]
    with pytest.raises(ValueError, match="unknown problem '1'"):
        plan(launch(write(tmp_path / "twice.jsonl", twice), problems="1"), "local")
    named = plan(launch(tmp_path / "twice.jsonl", problems="b/1"), "local")
    assert [problem.id for problem in named.problems] == ["b/1"]


def test_a_killed_run_goes_on_after_its_file_is_gone(tmp_path: Path) -> None:
    planned = plan(launch(write(tmp_path / "my.jsonl"), samples=3), "local")
    folder = RunFolder(tmp_path / planned.spec.run_id)
    folder.create(planned.spec, planned.problems, assign_to_shards(units(planned.spec, planned.problems), 1))
    worker = subprocess.Popen([sys.executable, "-c", SLOW_WORKER, str(folder.path)], env=dict(os.environ))
    wait_for_steps(folder, 3)
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    (tmp_path / "my.jsonl").unlink()
    assert read_state(folder).unfinished
    run_shard(str(folder.path), 0)
    compact(folder)
    assert finished_ids(folder) == planned_ids(folder)


def test_a_run_is_graded_and_loaded_and_a_renamed_file_is_compared_with_it(tmp_path: Path) -> None:
    output = tmp_path / "runs"
    (tmp_path / "told.toml").write_text(TOLD)
    records = [{"q": question["problem"], "answer": question["answer"]} for question in QUESTIONS]
    write(tmp_path / "data" / "sums.jsonl", records)
    first = run("--method", "vanilla", "--dataset", str(tmp_path / "told.toml"), output=output)
    second = run("--method", "speccot", "--dataset", str(write(tmp_path / "renamed.jsonl")), output=output)
    third = run("--method", "vanilla", "--dataset", "demo", "--limit", "2", output=output)
    assert (first.exit_code, second.exit_code, third.exit_code) == (0, 0, 0), (first, second, third)
    assert "problems: Sums of our own, file" in " ".join(first.stdout.split())
    database = output / "warehouse.duckdb"
    with reader(database) as connection:
        found = rows(connection, "SELECT run_id, dataset, dataset_source, dataset_title FROM run ORDER BY dataset", {})
    assert [row["dataset"] for row in found] == ["demo", "renamed", "told"]
    assert [row["dataset_title"] for row in found] == [None, None, "Sums of our own"]
    assert found[0]["dataset_source"] is None
    assert found[2]["dataset_source"] == f"file {tmp_path / 'data' / 'sums.jsonl'}"
    ids = {str(row["dataset"]): str(row["run_id"]) for row in found}
    compared = compare_runs([ids["renamed"], ids["told"]], database)
    [base] = compared.baselines
    assert (base.run.run_id, base.run.dataset) == (ids["told"], "renamed")
    assert {row.contrast.pair.num_shared_problems for row in compared.rows if row.contrast} == {6}
    assert "source of the problems" in {difference.name for difference in compared.differences}


def test_a_wrong_file_is_one_line_with_exit_code_2_before_anything_is_written(tmp_path: Path) -> None:
    path = write(tmp_path / "my.jsonl", [*QUESTIONS, QUESTIONS[2]])
    ended = run("--method", "vanilla", "--dataset", str(path), output=tmp_path / "runs")
    assert ended.exit_code == 2
    assert ended.stderr.strip() == f"error: {path}, line 7: the same problem as line 3"
    assert not (tmp_path / "runs").exists()


def test_a_suite_and_a_configuration_file_name_files_beside_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "suites" / "my.jsonl")
    (tmp_path / "suites" / "own.toml").write_text("system = 'Sir.'")
    text = 'dataset = "my.jsonl"\nprompts = "own.toml"\nengine = "scripted"\n'
    (tmp_path / "suites" / "mine.toml").write_text(f'{text}[[run]]\nmethod = "vanilla"\n')
    (tmp_path / "suites" / "config.toml").write_text(f'{text}method = "vanilla"\n')
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    [prepared] = suite.prepare(suite.read(Path("../suites/mine.toml")), None)
    assert prepared.plan.spec.dataset == "my"
    assert prepared.plan.spec.wording.system == "Sir."
    words = ["--config", "../suites/config.toml", "--dry-run", "--cluster", "local"]
    assert CliRunner().invoke(main, words).exit_code == 0
    (tmp_path / "elsewhere" / "here.jsonl").write_text('{"problem": "1?", "answer": 1}')
    (tmp_path / "suites" / "mine.toml").write_text(
        'engine = "scripted"\n[[run]]\nmethod = "vanilla"\ndataset = "here.jsonl"'
    )
    [prepared] = suite.prepare(suite.read(Path("../suites/mine.toml")), None)
    assert prepared.plan.spec.dataset == "here"
    (tmp_path / "suites" / "mine.toml").write_text('[[run]]\nmethod = "vanilla"\ndataset = "nowhere.jsonl"')
    with pytest.raises(suite.BadSuite, match=r"run 1: nowhere\.jsonl: no such file"):
        suite.read(Path("../suites/mine.toml"))


def test_the_doctor_and_the_check_of_golds_take_a_file(tmp_path: Path) -> None:
    path = write(tmp_path / "my.jsonl")
    flags = ["--method", "vanilla", "--engine", "scripted", "--dataset", str(path), "--output", str(tmp_path), "--json"]
    checks = json.loads(CliRunner().invoke(doctor, flags).stdout)["here"]["checks"]
    [found] = [check for check in checks if check["subject"] == "dataset"]
    assert (found["status"], found["text"][:15]) == ("ok", "my: 6 problems,")
    bad = write(tmp_path / "bad.jsonl", [*QUESTIONS, {"problem": "Half?", "answer": "\\frac{1"}])
    assert CliRunner().invoke(check_golds, ["--dataset", str(path)]).exit_code == 0
    ended = CliRunner().invoke(check_golds, ["--dataset", str(bad)])
    assert ended.exit_code == 1
    assert "row/6" in ended.stdout
    missing = CliRunner().invoke(check_golds, ["--dataset", str(tmp_path / "no.jsonl")])
    assert (missing.exit_code, "no such file" in missing.stderr) == (2, True)


SOLUTION = "3 * {0} = <<3*{0}=6>>\nso it is that.\n#### {0}"
SOLUTIONS = [SOLUTION.format(number) for number in range(4)]
GOLDS: dict[str, tuple[list[str], int, tuple[str, ...]]] = {
    "answers": (["42", r"\frac{1}{2}", "no solution", "5 cm", "50%", "√2"], 0, ()),
    "solutions": (SOLUTIONS, 2, ("4 of 4 golds", 'row/0 "3 * 0', '"hashes" in a TOML file', "row/2, …")),
    "two forms": (["42", "43", SOLUTION.format(1)], 2, ("1 of 3 golds", "row/2", '"hashes" in a TOML')),
    "boxes": ([rf"As it is so, \boxed{{{i}}} it is." for i in range(2)], 0, ("PROSE AS GOLDS", "2 of 2")),
    "sentences": ([f"It is {i} because adding two to {i - 2} gives it." for i in range(4)], 2, ("no answer would be",)),
    "some sentences": (["It is 4 as it is so.", "5\n6", "7"], 0, ("PROSE AS GOLDS", "2 of 3 golds", "row/0", "row/1")),
    "some braces": ([r"\frac{1", "5", "[red]\x1b[2J{"], 0, ("NO ANSWER MEETS: 2 of 3", "unbalanced", "row/2")),
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
    assert ("GOLDS" in said or exit_code == 2) == bool(parts)
    assert "\x1b" not in ended.output
    assert not (tmp_path / "runs").exists()


def test_every_run_of_a_suite_has_its_golds_checked(tmp_path: Path) -> None:
    write(tmp_path / "my.jsonl", [{"problem": f"{i}?", "answer": gold} for i, gold in enumerate(SOLUTIONS)])
    (tmp_path / "mine.toml").write_text('engine = "scripted"\n[[run]]\nmethod = "vanilla"\ndataset = "my.jsonl"\n')
    with pytest.raises(ValueError, match="solutions: 4 of 4 golds"):
        suite.prepare(suite.read(tmp_path / "mine.toml"), None)


def test_the_list_of_datasets_says_that_files_are_accepted() -> None:
    assert (
        "or a file (.jsonl, .csv, .parquet, .toml) or hf:ORG/NAME"
        in CliRunner().invoke(main, ["--list", "datasets"]).stdout
    )
