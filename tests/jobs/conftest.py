"""Fixtures of the tests of jobs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness import code_hash
from harness.code_hash import Code, running_code
from jobs.run import codes, submissions
from tests.jobs.slurm.fake import cluster, slurm

__all__ = ["cluster", "slurm"]
Edit = Callable[[str], Code]


@pytest.fixture
def journals_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the journals as if a worker was killed at its very end: no trace file has been written yet."""
    monkeypatch.setattr("jobs.run.endings.compact_own", lambda run, path: None)


@pytest.fixture
def short_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Call the jobs of a folder run.0, run.1 and so on."""
    monkeypatch.setattr(submissions, "job_name", lambda run, number: f"run.{number}")


@pytest.fixture
def edit(monkeypatch: pytest.MonkeyPatch) -> Edit:
    """Return a function that edits a file of the running code; only the hash sees it."""
    before = running_code()

    def edited(path: str) -> Code:
        now = Code({**before.digests, path: "edited"})
        for module in (codes, code_hash):
            monkeypatch.setattr(module, "running_code", lambda: now)
        return now

    return edited
