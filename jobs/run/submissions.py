"""What was handed to Slurm: which task of which job was given which shards.

Written before sbatch is called, so that a launcher that dies right after it leaves no job that nobody knows: Slurm is
asked by the job's name, which is the submission's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from jobs.run.folder import RunFolder, append_record, read_records
from jobs.slurm.client import Task


@dataclass(frozen=True)
class Submission:
    """One array job."""

    number: int
    name: str
    """The job's name in Slurm; unlike any other's, of this or of another run folder."""
    tasks: list[list[int]]
    """Shards of each task, by its place in the array."""
    submitted_at: float
    """UTC, seconds since the epoch."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """What sbatch was told."""
    shards_per_task: int = 1
    code: str | None = None
    """Archive of the code that runs, in the run folder."""


def read(run: RunFolder) -> list[Submission]:
    """All submissions of a run in order; a torn last line is one that was never handed over."""
    return [Submission(**record) for record in read_records(run.submissions_path)]


def record(run: RunFolder, submission: Submission) -> None:
    """Write a submission down, durable when this returns."""
    append_record(run.submissions_path, asdict(submission))


def job_name(run: RunFolder, number: int) -> str:
    """`<run id>.<folder>.<number>`: two folders of one run id are two runs to Slurm."""
    folder = hashlib.sha256(str(run.path.resolve()).encode()).hexdigest()[:6]
    return f"{run.path.name}.{folder}.{number}"


def shards_at_work(submissions: list[Submission], tasks: list[Task]) -> set[int]:
    """Shards that Slurm is at, or will be."""
    by_name = {submission.name: submission for submission in submissions}
    return {
        shard
        for task in tasks
        if task.at_work and task.name in by_name and task.index < len(by_name[task.name].tasks)
        for shard in by_name[task.name].tasks[task.index]
    }


def finalizer_name(submission_name: str) -> str:
    """Of the job that grades and loads after a submission."""
    return f"{submission_name}.finalize"
