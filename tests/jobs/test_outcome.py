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
from jobs.run.files import FileDamaged
from jobs.run.folder import RunFolder, RunForbidden
from jobs.slurm.client import SlurmError, SlurmRejected
from jobs.watch.status import ListedRun
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


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (launch, ["--dateset", "demo"]),
        (launch, [*SPECCOT, "--dataset", "nothing"]),
        (jobs, ["suite", "--dri-run", "demo"]),
        (jobs, ["suite", "demo", "--tag", "2026-01-01"]),
        (jobs, ["suite", "no.toml"]),
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
    assert (len(planned["runs"]), planned["report"]) == (2, None)
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


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (RunForbidden("runs/a: not yours"), 2),
        (FileDamaged("runs/a/spec.json: not JSON"), 1),
        (BadDataset("--dataset a.csv: no rows"), 2),
        (ValueError("--limit 0: expected 1 or more"), 2),
        (SlurmRejected("invalid partition"), 2),
        (SlurmError("squeue: no answer within 30 s"), 1),
        (json.JSONDecodeError("Expecting value", "", 0), None),
    ],
)
def test_an_error_is_a_line_with_its_exit_code_unless_it_is_a_librarys(error: Exception, exit_code: int | None) -> None:
    line = explained(error)
    assert (None if line is None else line.exit_code) == exit_code
