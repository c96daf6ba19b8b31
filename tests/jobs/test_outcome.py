"""`--json`: what a launch and the status of runs print for programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from harness.cli.console import main as console
from harness.launch import main as launch
from harness.problems.benchmarks import BadDataset
from jobs.__main__ import main as jobs
from jobs.outcome import explained
from jobs.run import submissions
from jobs.run.files import FileDamaged
from jobs.run.folder import RunFolder, RunForbidden
from jobs.run.submissions import Submission
from jobs.watch.status import ListedRun
from tests.jobs.runs import plan
from tests.jobs.slurm.fake import FakeSlurm
from warehouse.report.summary import RunSummary

SPECCOT = ("--method", "speccot", "--dataset", "demo", "--engine", "scripted", "--limit", "2", "--cluster", "debug")


def launched(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(launch, [*SPECCOT, "--samples", "1", "--json", "--output", str(folder), *arguments])


def outcome(result: Result) -> dict[str, Any]:
    found = json.loads(result.stdout.splitlines()[-1])
    assert isinstance(found, dict)
    return found


def test_a_launch_prints_one_line_with_where_the_run_is_and_its_numbers(tmp_path: Path) -> None:
    result = launched(tmp_path)
    assert result.exit_code == 0, result.output
    found, run = outcome(result), RunFolder(tmp_path / outcome(result)["run_id"])
    assert len(result.stdout.splitlines()) == 1, "the rest is on standard error"
    assert "pass@1[avg-of-1]" in result.stderr
    assert (found["run"], found["database"]) == (str(run.path), str(tmp_path / "warehouse.duckdb"))
    assert (found["exit_code"], found["error"], found["state"], found["planned"]) == (0, None, "finished", 2)
    results = json.loads(run.results_path.read_bytes())
    assert {name: found[name] for name in results} == results
    assert found.keys() == {*RunSummary.model_fields, *ListedRun.__annotations__, "database", "exit_code"}


def test_a_dry_run_says_where_the_run_would_be(tmp_path: Path) -> None:
    found = outcome(launched(tmp_path, "--dry-run"))
    assert (found["state"], found["exit_code"], Path(found["run"]).exists()) == ("not begun", 0, False)


def test_a_launch_that_is_refused_has_its_error_and_exit_code_in_the_line_too(tmp_path: Path) -> None:
    (tmp_path / "warehouse.duckdb").write_text("notes", encoding="utf-8")
    result = launched(tmp_path)
    found = outcome(result)
    assert (result.exit_code, found["exit_code"]) == (2, 2)
    assert "is not a valid DuckDB database file" in found["error"]
    assert f"error: {found['error']}\n" == result.stderr


@pytest.mark.parametrize("words", [["--dataset", "nothing"], ["--nothing", "1"]], ids=str)
def test_flags_that_no_launch_can_have_are_in_the_line_too(tmp_path: Path, words: list[str]) -> None:
    result = launched(tmp_path, *words)
    found = outcome(result)
    assert (result.exit_code, found) == (2, {"exit_code": 2, "error": found["error"]})
    assert f"error: {found['error']}\n" == result.stderr


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (launch, ["--dateset", "demo"]),
        (launch, ["--samples", "x"]),
        (jobs, ["suite", "--dri-run", "demo"]),
        (jobs, ["suite", "demo", "--tag", "2026-01-01"]),
        (jobs, ["suite", "no.toml"]),
        (jobs, ["nightly", "--suite", "no.toml"]),
        (jobs, ["nightly", "--suite", "no.toml", "--date", "today"]),
        (console, ["suite", "no.toml", "--no"]),
    ],
    ids=str,
)
def test_whatever_is_refused_is_one_line_with_exit_code_2(command: click.Command, words: list[str]) -> None:
    result = CliRunner().invoke(command, [*words, "--json"])
    [line] = result.stdout.splitlines()
    assert (result.exit_code, json.loads(line)["exit_code"]) == (2, 2)
    assert result.stderr == f"error: {json.loads(line)['error']}\n"


def test_a_suite_prints_one_line_with_its_runs_and_the_report(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    common = f'output = "{tmp_path}"\ndataset = "demo"\nengine = "scripted"\nlimit = 2\nsamples = 1\n'
    file.write_text(f'{common}cluster = "debug"\n[[run]]\nmethod = ["vanilla", "speccot"]\n', encoding="utf-8")
    planned = outcome(CliRunner().invoke(jobs, ["suite", str(file), "--json", "--dry-run"]))
    assert [run["state"] for run in planned["runs"]] == ["not begun", "not begun"]
    assert planned["report"] is None
    result = CliRunner().invoke(jobs, ["suite", str(file), "--json"])
    assert (result.exit_code, len(result.stdout.splitlines())) == (0, 1), result.output
    found = outcome(result)
    assert (found["suite"], found["exit_code"], found["error"]) == ("mine", 0, None)
    assert [run["run"] for run in found["runs"]] == [run["run"] for run in planned["runs"]]
    assert [(run["method"], run["state"], run["planned"]) for run in found["runs"]] == [
        ("vanilla", "finished", 2),
        ("speccot", "finished", 2),
    ]
    assert Path(found["report"]).is_file()
    assert "baseline" in result.stderr, "the table is there"


def test_the_status_of_runs_has_the_keys_of_the_list(tmp_path: Path) -> None:
    run = plan(tmp_path, samples=1, shards=2)
    listed = json.loads(CliRunner().invoke(jobs, ["list", str(tmp_path), "--json"]).stdout)
    found = json.loads(CliRunner().invoke(jobs, ["status", str(run.path), "--json"]).stdout)
    same = found[0].keys() & listed[0].keys()
    assert same >= {"run", "state", "planned", "finished", "failed"}
    assert {name: found[0][name] for name in same} == {name: listed[0][name] for name in same}
    assert [shard["num_unfinished"] for shard in found[0]["shards"]] == [4, 4]


def test_the_status_of_a_run_on_slurm_has_its_tasks_and_one_line_per_look(
    tmp_path: Path, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = plan(tmp_path, samples=1)
    submissions.record(run, Submission(0, "run.0", [[0]], 0.0))
    slurm.prints(squeue="run.0|0|42|40|RUNNING|n1|None", sacct="")
    monkeypatch.setattr("time.sleep", lambda seconds: slurm.prints(squeue=""))
    result = CliRunner().invoke(jobs, ["status", str(run.path), "--json", "--follow"])
    looks = [json.loads(line)[0] for line in result.stdout.splitlines()]
    assert [look["states"] for look in looks] == [{"running": 1}, {"stopped": 1}]
    assert looks[0]["shards"][0]["task"]["job_id"].startswith("4")


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (RunForbidden("runs/a: not yours"), 2),
        (FileDamaged("runs/a/spec.json: not JSON"), 1),
        (BadDataset("--dataset a.csv: no rows"), 2),
        (ValueError("--limit 0: expected 1 or more"), 2),
        (json.JSONDecodeError("Expecting value", "", 0), None),
    ],
)
def test_an_error_is_a_line_with_its_exit_code_unless_it_is_a_librarys(error: Exception, exit_code: int | None) -> None:
    line = explained(error)
    assert (None if line is None else line.exit_code) == exit_code
