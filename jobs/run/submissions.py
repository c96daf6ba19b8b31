"""What was submitted to Slurm: which shards each task of each job was assigned.

A submission is recorded before sbatch is called and names the job, and Slurm is asked for jobs by name. So a launcher
that dies right after sbatch leaves no job that nobody knows of.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from pydantic import TypeAdapter

from harness.sizing.cards import num_tasks
from jobs.run.files import append_record, read_records, records_of
from jobs.run.folder import RunFolder
from jobs.slurm.client import Task


@dataclass(frozen=True)
class Submission:
    """One array job."""

    number: int
    name: str
    """The job's name in Slurm, unique among the submissions of all run folders."""
    tasks: list[list[int]]
    """Shards of each task, by its place in the array."""
    submitted_at: float
    """UTC, seconds since the epoch."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The options of sbatch."""
    shards_per_task: int = 1
    code: str | None = None
    """Archive of the code that runs, in the run folder."""
    workers_per_task: int = 1
    """Workers that a task starts on its node."""

    @property
    def has_several_workers(self) -> bool:
        """True if several workers of a task, each of which may take any of the task's shards, run at a time."""
        return self.workers_per_task * num_tasks(self.options) > 1

    def first_shards(self, shards: Collection[int]) -> set[int]:
        """Return the shards that a worker may have had first which has had one of these."""
        tasks = [task for task in self.tasks if not set(task).isdisjoint(shards)]
        return {shard for task in tasks for shard in (task if self.has_several_workers else task[:1])}


_SUBMISSION = TypeAdapter(Submission)


def read(run: RunFolder) -> list[Submission]:
    """Return all submissions of a run in order; a torn last line is one that was never submitted."""
    return list(records_of(run.submissions_path, _SUBMISSION, read_records(run.submissions_path, run.spec_id())))


def record(run: RunFolder, submission: Submission) -> None:
    """Record a submission, durable when this returns."""
    append_record(run.submissions_path, asdict(submission), run.spec_id() or "")


def job_name(run: RunFolder, number: int) -> str:
    """`<run id>.<folder>.<number>`: two folders of one run id are two runs to Slurm."""
    folder = hashlib.sha256(str(run.path.resolve()).encode()).hexdigest()[:6]
    return f"{run.path.name}.{folder}.{number}"


def active_shards(submissions: list[Submission], tasks: list[Task]) -> set[int]:
    """Return the shards whose tasks are running or queued."""
    by_name = {submission.name: submission for submission in submissions}
    return {
        shard
        for task in tasks
        if task.is_active and task.name in by_name and task.index < len(by_name[task.name].tasks)
        for shard in by_name[task.name].tasks[task.index]
    }


def finalizer_name(submission_name: str) -> str:
    """Return the name of the job that grades and loads after a submission."""
    return f"{submission_name}.finalize"
