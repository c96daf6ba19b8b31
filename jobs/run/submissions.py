"""Slurm submissions of a run: the shards of each task, canceled jobs, and withdrawals from shared jobs.

A submission is recorded before sbatch is called. It contains the job's name, by which Slurm's queue is queried, so a
launcher that dies right after sbatch leaves no unknown job. Queries of accounting by name are slow, so accounting is
queried by the ids recorded after sbatch.

A task of a shared job has shards of several runs in the same parent folder and works on one run after the other. Each
run records the job as its own submission. A canceled run withdraws from its shared jobs: their tasks skip it from then
on, and the other runs continue.

A night's verdict job resubmits killed jobs but not jobs that a user canceled.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Le

from harness.sizing.memory import num_tasks
from jobs.run.files import records_of
from jobs.run.folder import RunFolder, is_name
from jobs.slurm.client import Task


@dataclass(frozen=True)
class Submission:
    """One array job."""

    number: int
    name: str
    """The job's name in Slurm, unique among the submissions of all run folders."""
    tasks: list[list[int]]
    """Shards of each task, by array index."""
    submitted_at: Annotated[float, Ge(0), Le(1e11)]
    """UTC, seconds since the epoch."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The options of sbatch."""
    shards_per_task: int = 1
    code: str | None = None
    """Code archive of the job, in the run folder."""
    workers_per_task: int = 1
    """Workers that a task starts on its node."""
    runs: list[str] = field(default_factory=list)
    """Names of the runs that share the job; the first run's folder has its logs and code. Empty: not shared."""

    def __post_init__(self) -> None:
        """Reject names that lead out of the parent folder of the runs."""
        if not all(map(is_name, self.runs)):
            raise ValueError("runs must be names of run folders")

    @property
    def has_several_workers(self) -> bool:
        """True if a task has several concurrent workers, each of which may take any of its shards."""
        return self.workers_per_task * num_tasks(self.options) > 1

    def first_shards(self, shards: Collection[int]) -> set[int]:
        """Return the possible first shards of workers that ran one of these shards."""
        tasks = [task for task in self.tasks if not set(task).isdisjoint(shards)]
        return {shard for task in tasks for shard in (task if self.has_several_workers else task[:1])}


_ATTEMPT = re.compile(r"-deal(?P<assignment>\d+)-shard(?P<shard>\d+)$")


def read(run: RunFolder) -> list[Submission]:
    """Return all submissions of a run in order; an incomplete last line is ignored: that job was not submitted."""
    return list(records_of(run.events_path, Submission, run.events("submission")))


def record(run: RunFolder, submission: Submission) -> None:
    """Durably record a submission."""
    run.append("submission", **asdict(submission))


def record_job(run: RunFolder, job_id: str) -> None:
    """Durably record the id of a run's job."""
    run.append("job", id=job_id)


def job_ids(run: RunFolder) -> list[str]:
    """Return the ids of all jobs of a run, in order."""
    return [event["id"] for event in run.events("job")]


def job_name(run: RunFolder, number: int) -> str:
    """`<run id>.<folder>.<number>`: the folder part distinguishes copies of a run in Slurm."""
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


def attempt_name(stamp: str, assignment: int, shard: int) -> str:
    """Return the name of an attempt, its journal and its trace file.

    `assignment`: number of the plan's assignment to shards. `shard`: the first shard assigned to the worker.
    """
    return f"{stamp}-deal{assignment}-shard{shard}"


def first_shard(path: Path, assignment: int) -> int | None:
    """Return the first shard of the worker that wrote a file; None if the file is from another assignment."""
    name = _ATTEMPT.search(path.stem)
    return int(name["shard"]) if name is not None and int(name["assignment"]) == assignment else None


def files_of_shards(run: RunFolder, shards: Sequence[int], paths: Iterable[Path]) -> list[Path]:
    """Return the journals or trace files that may contain samples of these shards, judging by their names.

    Without this selection, each of a thousand workers would open the files of all others.
    """
    assignment = run.assignment()
    firsts = set(shards).union(*(submission.first_shards(shards) for submission in read(run)))
    return [path for path in sorted(paths) if (first := first_shard(path, assignment)) is None or first in firsts]


def left(run: RunFolder) -> set[str]:
    """Return the names of the shared jobs from which a run has withdrawn."""
    return {str(event["name"]) for event in run.events("left")}


def leave(run: RunFolder, name: str) -> None:
    """Durably record that a run withdraws from a shared job."""
    run.append("left", name=name)


def of_this_folder(run: RunFolder) -> list[Submission]:
    """Return the submissions whose jobs belong to this folder, in order.

    A copied folder has the records of the original, whose jobs it must neither wait for nor cancel, and an appended
    line may contain any job name. Job names include a hash of the folder's path.
    """

    def is_here(submission: Submission) -> bool:
        runs = submission.runs
        if not runs:
            return submission.name == job_name(run, submission.number)
        first = RunFolder(run.path.parent / runs[0])
        names = {f"{job_name(first, one.number)}+{len(runs) - 1}" for one in read(first)}
        return run.path.name in runs and submission.name in names

    return [submission for submission in read(run) if is_here(submission)]


def current(run: RunFolder) -> list[Submission]:
    """Return this folder's submissions in order, except shared jobs from which the run has withdrawn."""
    left_jobs = left(run)
    return [submission for submission in of_this_folder(run) if submission.name not in left_jobs]


def finalizer_of(run: RunFolder, submission: Submission) -> str:
    """Return the name of the job that grades and loads a run after a submission; each run of a shared job has one."""
    return finalizer_name(job_name(run, submission.number) if submission.runs else submission.name)


def others(run: RunFolder, submission: Submission) -> list[RunFolder]:
    """Return the other runs of a shared job."""
    return [RunFolder(run.path.parent / name) for name in submission.runs if name != run.path.name]


def logs_dir(run: RunFolder, job_name: str) -> Path:
    """Return the folder with a job's logs; for a shared job, that of its first run."""
    firsts = (one.runs[0] for one in read(run) if one.runs and one.name == job_name)
    return RunFolder(run.path.parent / next(firsts, run.path.name)).logs_dir


def record_canceled(run: RunFolder, names: Sequence[str]) -> None:
    """Durably record that the jobs with these names were canceled."""
    run.append("canceled", names=list(names))


def is_canceled(run: RunFolder) -> bool:
    """Return True if the last submission of a run was canceled."""
    submitted = read(run)
    canceled = {name for event in run.events("canceled") for name in event["names"]}
    return bool(submitted) and submitted[-1].name in canceled
