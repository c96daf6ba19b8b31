"""How launches end: `--json` for programs, and one line where folders, disks, engines or a person stop them."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from harness.cli import exit_codes
from harness.cli.console import main as console
from harness.engine import EngineDied
from harness.launch import main as launch
from harness.problems.benchmarks import BadDataset
from jobs.__main__ import main as jobs_command
from jobs.outcome import explained
from jobs.run.endings import num_unfinished
from jobs.run.files import FileDamaged
from jobs.run.folder import RunFolder, RunForbidden, run_folders
from jobs.slurm.client import SlurmError, SlurmRejected
from jobs.submission.here import InProcessJob
from jobs.watch.status import ListedRun
from jobs.work.worker import InProcessWorker, run_shard
from tests.jobs.runs import jobs, launched, plan, write_suite
from warehouse.report.summary import RunSummary


def outcome(result: Result) -> dict[str, Any]:
    found = json.loads(result.stdout.splitlines()[-1])
    assert isinstance(found, dict)
    return found


def test_a_launch_prints_one_line_with_where_the_run_is_and_its_numbers(tmp_path: Path) -> None:
    result = launched(tmp_path, "--json")
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
        (launch, ["--method", "vanilla", "--dataset", "nothing"]),
        (jobs_command, ["suite", "--dri-run", "demo"]),
        (jobs_command, ["suite", "demo", "--tag", "2026-01-01"]),
        (jobs_command, ["suite", "no.toml"]),
        (jobs_command, ["nightly", "--suite", "no.toml", "--date", "today"]),
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
    file = write_suite(tmp_path, {"method": ["vanilla", "speccot"]}, limit=2, samples=1)
    planned = outcome(jobs("suite", file, "--json", "--dry-run"))
    assert (len(planned["runs"]), planned["report"]) == (2, None)
    result = jobs("suite", file, "--json")
    assert (result.exit_code, len(result.stdout.splitlines())) == (0, 1), result.output
    found = outcome(result)
    assert (found["suite"], found["exit_code"], found["error"]) == ("small", 0, None)
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


def test_an_output_folder_below_a_file_or_in_proc_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    for output in (file / "runs", tmp_path / "gone" / "runs", Path("/proc/runs")):
        result = launched(output)
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
        assert result.stderr.startswith(f"error: --output {output}: ")


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC])
def test_a_read_only_or_full_file_system_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(**_: object) -> None:
        raise OSError(number, "no")

    monkeypatch.setattr("tempfile.TemporaryDirectory", refuse)
    result = launched(tmp_path / "runs")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert str(tmp_path) in result.stderr
    assert not (tmp_path / "runs").exists()


def test_a_disk_that_fills_while_grades_are_written_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = plan(tmp_path)
    run_shard(str(run.path), 0)

    def fill(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    with monkeypatch.context() as patched:
        patched.setattr("jobs.run.events.write_atomically", fill)
        result = jobs("finalize", run.path)
    assert result.exit_code == 1
    assert len([line for line in result.stderr.splitlines() if line.startswith("error")]) == 1
    with monkeypatch.context() as patched:  # files open, and the kernel finds no room; its error names no file
        patched.setattr("jobs.run.files.opened", lambda path, flags: os.open("/dev/full", os.O_WRONLY))
        result = jobs("finalize", run.path)
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1), result.output
    assert str(run.path / "derived") in result.stderr
    assert jobs("finalize", run.path).exit_code == 0


def broken(folder: str, shard: int) -> int:
    raise EngineDied("the target engine did not start: OSError: libnuma.so.1 is missing")


def test_a_cancelled_job_does_not_run(tmp_path: Path) -> None:
    job = InProcessJob(broken, ("run", 0), tmp_path / "log")
    job.cancel()
    assert job.done()
    assert job.exception() is None


def test_a_launch_whose_engine_does_not_start_ends_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(InProcessWorker, "run", broken)
    result = launched(tmp_path)
    assert result.exit_code == 1
    [line] = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert "1 of 1 workers failed: the target engine did not start: OSError: libnuma.so.1 is missing" in line
    assert "Traceback" not in result.output
    assert list(tmp_path.glob("demo-*/logs/jobs/in-process.log"))


ROOT = Path(__file__).resolve().parents[2]
SECONDS = 60


def test_an_interrupt_ends_a_local_launch_with_one_line(tmp_path: Path) -> None:
    flags = "--method speccot --dataset demo --engine scripted --cluster local --samples 2000 --output"
    launch = subprocess.Popen(
        [sys.executable, "-m", "harness.launch", *flags.split(), str(tmp_path)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    until = time.monotonic() + SECONDS
    while not any(run.journals() for run in run_folders([tmp_path])):
        assert time.monotonic() < until, "no worker has begun"
        time.sleep(0.1)
    os.killpg(launch.pid, signal.SIGINT)  # as a terminal does
    out, error = launch.communicate(timeout=SECONDS)
    assert launch.returncode == exit_codes.INTERRUPTED
    assert "Traceback" not in out + error
    assert error.strip() == "Interrupted. Finished samples are kept; run the same command again to resume."
    [run] = run_folders([tmp_path])
    assert 0 < num_unfinished(run) <= run.num_planned()
