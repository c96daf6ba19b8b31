"""The jobs that a launch submits to Slurm."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.engines.scripted import SCRIPTED_SECONDS
from jobs.run import submissions
from jobs.run.folder import RunFolder
from tests.slurm.conftest import Launched, harness, slurm_output, wait_for

pytestmark = pytest.mark.slurm


def other_slurm(folder: Path) -> str:
    """Return a PATH on which arrays have at most two tasks, and sbatch rejects every job that depends on another."""
    folder.mkdir()
    for name, script in (
        ("scontrol", "'{real}' \"$@\" | sed -E 's/^(MaxArraySize *= )[0-9]+/\\13/'"),
        (
            "sbatch",
            "if grep -q dependency= \"$1\"; then echo 'sbatch: error: no GPU asked for' >&2; exit 1; fi\n"
            "exec '{real}' \"$@\"",
        ),
    ):
        wrapper = folder / name
        wrapper.write_text(f"#!/bin/sh\n{script.format(real=shutil.which(name))}\n")
        wrapper.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def test_an_array_larger_than_the_cluster_allows_is_split_and_without_its_last_job_a_run_is_finalized_by_hand(
    tmp_path: Path,
) -> None:
    environment = {**os.environ, SCRIPTED_SECONDS: "0", "PATH": other_slurm(tmp_path / "bin")}
    arguments = ["--method", "vanilla", "--dataset", "demo", "--engine", "scripted", "--samples", "1"]
    arguments += ["--cluster", "slurm", "--shards", "6", "--shards-per-task", "2", "--mem", "1G"]
    arguments += ["--output", str(tmp_path / "runs")]
    output = harness("harness.launch", *arguments, environment=environment)
    [path] = (tmp_path / "runs").glob("demo-*")
    assert f"python -m jobs finalize {path}" in output, "what sbatch rejected"
    launched = Launched(RunFolder(path), arguments, environment)
    assert [submission.tasks for submission in submissions.read(launched.run)] == [[[0, 1], [2, 3]], [[4, 5]]]
    wait_for(launched.has_ended, "the end", 180)
    assert launched.status().finished == launched.status().planned == 40
    assert "pass@1" in harness("jobs", "finalize", str(path), environment=environment)


def test_a_job_that_sbatch_rejects_is_reported_in_one_line(tmp_path: Path) -> None:
    arguments = ["--method", "vanilla", "--dataset", "demo", "--engine", "scripted", "--cluster", "slurm"]
    arguments += ["--partition", "moon", "--output", str(tmp_path / "runs")]
    done = subprocess.run(
        [sys.executable, "-m", "harness.launch", *arguments], capture_output=True, text=True, check=False, timeout=120
    )
    line = done.stderr.splitlines()[-1]  # the lines above are sbatch's own
    assert (done.returncode, line.startswith("error: "), "partition" in line) == (2, True, True)


def test_a_dependency_is_the_workers_and_they_run_from_a_path_that_a_shell_would_expand(tmp_path: Path) -> None:
    environment = {**os.environ, SCRIPTED_SECONDS: "0"}
    first = slurm_output("sbatch", "--parsable", "-o", "/dev/null", "--hold", "--wrap=true").strip()
    folder = tmp_path / "a $HOME `touch here` 'q' b"
    arguments = ["--method", "vanilla", "--dataset", "demo", "--engine", "scripted", "--samples", "1", "--limit", "4"]
    arguments += ["--cluster", "slurm", "--mem", "1G", "--gpus-per-node", "h200:2", "--slurm", "requeue=false"]
    arguments += ["--slurm", f"dependency=afterany:{first}", "--output", str(folder)]
    harness("harness.launch", *arguments, environment=environment)
    [path] = folder.glob("demo-*")
    launched = Launched(RunFolder(path), arguments, environment)
    jobs = slurm_output("squeue", "-h", "-o", "%A|%j|%E|%b")
    by_name = {line.split("|")[1]: line.split("|") for line in jobs.splitlines()}
    array, _, dependency, cards = by_name[launched.array]
    assert dependency.startswith(f"afterany:{first}")
    assert "h200:2" in cards
    assert by_name[f"{launched.array}.finalize"][2].startswith(f"afterany:{array}"), "grading waits for the workers"
    assert "Requeue=0" in slurm_output("scontrol", "show", "job", array)
    slurm_output("scontrol", "release", first)
    wait_for(launched.has_ended, "the end", 180)
    assert launched.status().finished == launched.status().planned == 4
    assert not list(tmp_path.rglob("here"))


_FREQUENT_LOOKS = "from jobs import drive; drive.LOOK_SECONDS = 2.0; from harness.launch import main; main()"
"""`python -m harness.launch` that looks more often at the run that it waits for."""


def test_a_launch_that_waits_ends_with_the_result_of_its_run_and_leaves_no_process_behind(tmp_path: Path) -> None:
    environment = {**os.environ, SCRIPTED_SECONDS: "0", "HARNESS_TEST_MARK": str(tmp_path)}
    arguments = ["--method", "vanilla", "--dataset", "demo", "--engine", "scripted", "--samples", "1", "--limit", "4"]
    arguments += ["--cluster", "slurm", "--mem", "1G", "--output", str(tmp_path / "runs"), "--wait", "--json"]
    done = subprocess.run(
        [sys.executable, "-c", _FREQUENT_LOOKS, *arguments],
        capture_output=True, text=True, check=False, timeout=300, env=environment,
    )  # fmt: skip
    here = [pid for pid in Path("/proc").glob("[0-9]*") if _marked(pid, str(tmp_path))]
    assert not here, "no process of the launcher remains; jobs have their own environment"
    found = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, found["exit_code"], found["state"]) == (0, 0, "finished"), done.stderr
    assert found["measures"] == json.loads((Path(found["run"]) / "results.json").read_bytes())["measures"]
    assert "waiting: " in done.stderr


def _marked(process: Path, mark: str) -> bool:
    try:
        environment = (process / "environ").read_bytes()
    except OSError:
        return False
    return f"HARNESS_TEST_MARK={mark}".encode() in environment and b"SLURM_JOB_ID=" not in environment
