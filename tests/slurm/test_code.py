"""Jobs run the code that was submitted, even if the checkout that they start in is edited while they wait."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.code_hash import read
from harness.engines.factory import SCRIPTED_SECONDS
from jobs.run import codes, trace_files
from jobs.run.folder import RunFolder
from tests.own_methods import write_method
from tests.slurm.conftest import ROOT, Launched, wait_for, warehouse

pytestmark = pytest.mark.slurm
_EDIT = "raise SystemExit('the edited code runs')\n"


def committed_copy(folder: Path) -> str:
    """Make a checkout of this code in a separate repository; return its commit."""
    for package in ("harness", "jobs", "grading", "warehouse"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__", "models"))
    identity = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.org"]
    for command in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-q", "-m", "as submitted"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize("further", [[], ["--slurm", "export=NONE"]], ids=["exported", "export=NONE"])
def test_a_job_whose_checkout_is_edited_while_it_waits_runs_what_was_submitted(
    tmp_path: Path, further: list[str]
) -> None:
    checkout = tmp_path / "checkout"
    commit, as_submitted, disk = committed_copy(checkout), read(checkout), tmp_path / "disk"
    disk.mkdir()
    profile = tmp_path / "profile.toml"
    profile.write_text(f'setup = ["export TMPDIR={disk}"]')
    arguments = ["--method", "speccot", "--dataset", "demo", "--engine", "scripted", "--samples", "1", "--limit", "4"]
    arguments += ["--cluster", "slurm", "--mem", "1G", "--output", str(tmp_path / "runs"), "--slurm", "begin=now+8"]
    arguments += ["--profile", str(profile)]
    environment = {**os.environ, SCRIPTED_SECONDS: "0"}
    subprocess.run(
        [sys.executable, "-m", "harness.launch", *arguments, *further],
        cwd=checkout,
        env=environment,
        check=True,
        timeout=120,
        stdout=subprocess.DEVNULL,
    )
    for module in ("jobs/work/worker.py", "jobs/after/conclude.py", "grading/grade.py"):
        (checkout / module).write_text(_EDIT)
    [path] = (tmp_path / "runs").glob("demo-*")
    launched = Launched(RunFolder(path), arguments, environment)
    wait_for(launched.has_ended, "the end", 180)
    logs = "".join(log.read_text() for log in sorted((path / "logs" / "jobs").glob("*_log.*")))
    assert "the edited code runs" not in logs
    assert launched.status().finished == launched.status().planned == 4
    assert "pass@1" in logs, "the job that grades and reports ran too"
    [trace_file] = launched.run.trace_files()
    attempt = json.loads(trace_files.read_metadata(trace_file)["attempt"])
    assert attempt["git_commit"] == commit
    assert attempt["code_hash"] == as_submitted.hash
    assert read(checkout) != as_submitted, "the edit is one that counts"
    [archive] = path.glob("code-*.zip")
    assert attempt["code_archive"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    assert [record.code_hash for record in codes.read(launched.run)] == [as_submitted.hash]
    assert list(disk.iterdir()) == [], "the unpacked code is removed"


def test_a_method_and_problems_of_ones_own_that_are_edited_while_the_job_waits_are_those_submitted(
    tmp_path: Path,
) -> None:
    method, problems = write_method(tmp_path), tmp_path / "doubles.jsonl"
    problems.write_text("".join(f'{{"problem": "{n} + {n}?", "answer": "{2 * n}"}}\n' for n in range(4)))
    arguments = ["--method", f"{method.name}:Confident", "--dataset", problems.name, "--engine", "scripted"]
    arguments += ["--samples", "2", "--shards", "2", "--cluster", "slurm", "--mem", "1G", "--slurm", "begin=now+8"]
    environment = {**os.environ, SCRIPTED_SECONDS: "0", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "harness.launch", *arguments]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, timeout=120, stdout=subprocess.DEVNULL)
    method.write_text(_EDIT)
    problems.write_text('{"problem": "edited", "answer": "1"}\n')
    [path] = (tmp_path / "runs").glob("doubles-confident-*")
    launched = Launched(RunFolder(path), arguments, environment)
    wait_for(launched.has_ended, "the end", 180)
    assert launched.status().finished == launched.status().planned == 8
    assert warehouse(launched.run, "SELECT count(*), count(DISTINCT problem_id) FROM sample_grade") == [(8, 4)]
    assert warehouse(launched.run, "SELECT DISTINCT method FROM run") == [("confident",)]
