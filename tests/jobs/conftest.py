"""Fixtures of the tests of jobs."""

from __future__ import annotations

import pytest

from tests.jobs.edited_code import edit
from tests.jobs.slurm.fake import slurm

__all__ = ["edit", "slurm"]


@pytest.fixture
def journals_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the journals as if a worker was killed at its very end: no trace file has been written yet."""
    monkeypatch.setattr("jobs.run.endings.compact_own", lambda run, path: None)
