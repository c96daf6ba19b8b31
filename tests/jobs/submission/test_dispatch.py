"""Jobs that Slurm holds for good do not block a new submission."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from jobs.run import submissions
from jobs.run.folder import RunFolder
from jobs.run.submissions import Submission
from jobs.slurm import client
from jobs.slurm.client import Task
from jobs.submission import dispatch


def test_a_task_that_slurm_holds_for_good_is_cancelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunFolder(tmp_path / "run")
    run.path.mkdir()
    submissions.record(run, Submission(0, "run.0", [[0], [1]], 0.0))
    held = "launch failed requeued held"
    queue = [
        Task("run.0", 0, "5_0", "RUNNING", "n1"),
        Task("run.0", 1, "5_1", "PENDING", reason=held),
        Task("run.0.finalize", 0, "6", "PENDING", reason=held),
    ]
    asked: list[str] = []
    cancelled: list[str] = []

    def answer(names: Sequence[str]) -> list[Task]:
        asked.extend(names)
        return queue

    monkeypatch.setattr(client, "queue", answer)
    monkeypatch.setattr(client, "cancel_tasks", lambda tasks: cancelled.extend(task.job_id for task in tasks))
    dispatch.clear(run)
    assert asked == ["run.0", "run.0.finalize"]
    assert cancelled == ["5_1", "6"], "a job that waits behind a held one waits for ever"
