"""Slurm's commands as scripts at the front of PATH, for tests without a cluster."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from jobs.run import submissions
from jobs.run.folder import RunFolder
from jobs.run.submissions import Submission
from jobs.submission import code_archive, submit, task

SACCT_DOWN = """cat >&2 <<'EOF'
sacct: error: slurm_persist_conn_open_without_init: failed to open persistent connection to host:localhost:6819
sacct: error: Sending PersistInit msg: Connection refused
sacct: error: Problem talking to the database: Connection refused
EOF
exit 1"""
SQUEUE_DOWN = "echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1"


class FakeSlurm:
    """Commands made of shell scripts, and what they were called with."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self._log = folder / "calls.log"
        folder.mkdir()
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def answers(self, **scripts: str) -> None:
        """Put each command's script in place; the script decides what it prints and its exit status."""
        for command, script in scripts.items():
            path = self.folder / command
            path.write_text(f"#!/bin/sh\necho {command} \"$@\" >> '{self._log}'\n{script}\n")
            path.chmod(0o755)

    def prints(self, **outputs: str) -> None:
        self.answers(
            **{command: f"cat <<'EOF'\n{output}\nEOF" if output else "" for command, output in outputs.items()}
        )

    def calls(self) -> list[str]:
        return self._log.read_text().splitlines() if self._log.exists() else []


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    """A cluster whose commands do not exist until a test defines them."""
    return FakeSlurm(tmp_path / "slurm-commands", monkeypatch)


class Cluster:
    """What was submitted to a cluster that takes 3 tasks per array."""

    def __init__(self) -> None:
        self.shared: dict[str, list[list[tuple[str, list[int]]]]] = {}
        self.own: list[Submission] = []
        self.finalizers: list[tuple[str, str, list[str]]] = []

    def array(self, run: RunFolder, job: Submission, parameters: dict[str, Any]) -> str:
        if not job.runs:
            self.own.append(job)
            return str(200 + len(self.own))
        runs = [RunFolder(run.path.parent / name) for name in job.runs]
        of_runs = [(one, task._recorded(one, lambda other: other.name == job.name).tasks) for one in runs]
        self.shared[job.name] = [
            [(one.path.name, tasks[index]) for one, tasks in of_runs if tasks[index]] for index in range(len(job.tasks))
        ]
        return str(100 + len(self.shared))

    def finalizer(self, run: RunFolder, name: str, jobs: Sequence[str], parameters: dict[str, Any]) -> str:
        self.finalizers.append((run.path.name, submissions.finalizer_name(name), list(jobs)))
        return "300"


@pytest.fixture
def cluster(slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    slurm.prints(squeue="", scontrol="MaxArraySize = 4", scancel="", sacct="")
    submitted = Cluster()
    monkeypatch.setattr(code_archive, "take", lambda run: "code-0.zip")
    monkeypatch.setattr(submit, "submit_array", submitted.array)
    monkeypatch.setattr(submit, "submit_finalizer", submitted.finalizer)
    return submitted
