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
from harness.engines.scripted import SCRIPTED_SECONDS
from jobs.run import codes, trace_files
from jobs.run.endings import read_endings
from jobs.run.folder import RunFolder
from tests.slurm.conftest import ROOT, slurm_output, wait_for

pytestmark = pytest.mark.slurm
_EDIT = "raise SystemExit('the edited code runs')\n"


def committed_copy(folder: Path) -> str:
    for package in ("harness", "jobs", "grading", "warehouse"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__", "models"))
    identity = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.org"]
    for command in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-q", "-m", "as submitted"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_jobs_whose_checkout_is_edited_while_they_wait_run_what_was_submitted(tmp_path: Path) -> None:
    held = slurm_output("sbatch", "--parsable", "-o", "/dev/null", "--hold", "--wrap=true").strip()
    checkout = tmp_path / "checkout"
    commit, as_submitted, disk = committed_copy(checkout), read(checkout), tmp_path / "disk"
    disk.mkdir()
    profile = tmp_path / "profile.toml"
    profile.write_text(f'setup = ["export TMPDIR={disk}"]')
    command = [sys.executable, "-m", "harness.launch", "--engine", "scripted", "--cluster", "slurm", "--mem", "1G"]
    command += ["--method", "speccot", "--dataset", "demo", "--samples", "1", "--limit", "4"]
    command += ["--profile", str(profile), "--slurm", f"dependency=afterany:{held}"]
    environment = {**os.environ, SCRIPTED_SECONDS: "0"}
    further: dict[str, list[str]] = {"exported": [], "not": ["--slurm", "export=NONE"]}
    for name, options in further.items():
        words = [*command, *options, "--output", str(tmp_path / name)]
        subprocess.run(words, cwd=checkout, env=environment, check=True, timeout=120, stdout=subprocess.DEVNULL)
    for module in ("jobs/work/worker.py", "jobs/after.py", "grading/grade.py"):
        (checkout / module).write_text(_EDIT)
    slurm_output("scontrol", "release", held)
    wait_for(lambda: not slurm_output("squeue", "-h"), "the end", 180)
    assert read(checkout) != as_submitted, "the edit is one that counts"
    assert list(disk.iterdir()) == [], "the copy of the code is removed"
    for name in further:
        [path] = (tmp_path / name).glob("demo-*")
        run = RunFolder(path)
        logs = "".join(log.read_text() for log in sorted((path / "logs" / "jobs").glob("*_log.*")))
        assert "the edited code runs" not in logs
        assert len(read_endings(run).finished) == 4
        assert "pass@1" in logs, "the job that grades and reports ran too"
        [trace_file] = run.trace_files()
        attempt = json.loads(trace_files.read_metadata(trace_file)["attempt"])
        assert attempt["git_commit"] == commit
        assert attempt["code_hash"] == as_submitted.hash
        [archive] = path.glob("code-*.zip")
        assert attempt["code_archive"] == hashlib.sha256(archive.read_bytes()).hexdigest()
        assert [record.code_hash for record in codes.read(run)] == [as_submitted.hash]
