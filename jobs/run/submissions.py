"""What was submitted to Slurm: which shards each task of each job was assigned, and which jobs were canceled or left.

A submission is recorded before sbatch is called and names the job, and Slurm's queue is asked for jobs by name. So a
launcher that dies right after sbatch leaves no job that nobody knows of. Accounting, which is slow by name, is asked by
the ids that are recorded after sbatch.

A task of a shared job holds shards of several runs, whose folders stand beside each other, and works on one run after
the other. Each run records the job as a submission of its own. A run that is canceled leaves its shared jobs: their
tasks pass over it from then on, and the other runs stay.

A night submits what was killed again, and leaves alone what a person canceled.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

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
    runs: list[str] = field(default_factory=list)
    """Names of the runs that share the job; the first one's folder has its logs and code. Empty: it is not shared."""

    def __post_init__(self) -> None:
        """Refuse names that lead out of the folder of the runs."""
        if not all(map(is_name, self.runs)):
            raise ValueError("runs are not names of run folders")

    @property
    def has_several_workers(self) -> bool:
        """True if several workers of a task, each of which may take any of the task's shards, run at a time."""
        return self.workers_per_task * num_tasks(self.options) > 1

    def first_shards(self, shards: Collection[int]) -> set[int]:
        """Return the shards that a worker may have had first which has had one of these."""
        tasks = [task for task in self.tasks if not set(task).isdisjoint(shards)]
        return {shard for task in tasks for shard in (task if self.has_several_workers else task[:1])}


_ATTEMPT = re.compile(r"-deal(?P<assignment>\d+)-shard(?P<shard>\d+)$")


def read(run: RunFolder) -> list[Submission]:
    """Return all submissions of a run in order; a torn last line is one that was never submitted."""
    return list(records_of(run.events_path, Submission, run.events("submission")))


def record(run: RunFolder, submission: Submission) -> None:
    """Record a submission, durable when this returns."""
    run.append("submission", **asdict(submission))


def record_job(run: RunFolder, job_id: str) -> None:
    """Record the id of a job that works on a run or concludes it, durable when this returns."""
    run.append("job", id=job_id)


def job_ids(run: RunFolder) -> list[str]:
    """Return the ids of all jobs of a run, in order."""
    return [event["id"] for event in run.events("job")]


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


def attempt_name(stamp: str, assignment: int, shard: int) -> str:
    """Name an attempt, its journal and its trace file.

    `assignment` is the number of the plan's assignment to shards, `shard` the first shard that the worker was assigned.
    """
    return f"{stamp}-deal{assignment}-shard{shard}"


def first_shard(path: Path, assignment: int) -> int | None:
    """Return the first shard of the worker that wrote a journal or trace file; None where that is of other shards."""
    name = _ATTEMPT.search(path.stem)
    return int(name["shard"]) if name is not None and int(name["assignment"]) == assignment else None


def files_of_shards(run: RunFolder, shards: Sequence[int], paths: Iterable[Path]) -> list[Path]:
    """Return the journals or trace files that may hold samples of these shards, as their names tell.

    This way a thousand workers do not each open the files of all the others.
    """
    assignment = run.assignment()
    firsts = set(shards).union(*(submission.first_shards(shards) for submission in read(run)))
    return [path for path in sorted(paths) if (first := first_shard(path, assignment)) is None or first in firsts]


def left(run: RunFolder) -> set[str]:
    """Return the names of the shared jobs that a run has left."""
    return {str(event["name"]) for event in run.events("left")}


def leave(run: RunFolder, name: str) -> None:
    """Let a run leave a shared job, durable when this returns."""
    run.append("left", name=name)


def of_this_folder(run: RunFolder) -> list[Submission]:
    """Return the submissions whose jobs are this folder's, in order.

    A copy of a folder has the records of the original, whose jobs it must neither wait for nor cancel, and what
    somebody appended may name any job. The name of a job holds the folder's path.
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
    """Return the submissions of this folder in order, without the shared jobs that the run has left."""
    left_jobs = left(run)
    return [submission for submission in of_this_folder(run) if submission.name not in left_jobs]


def finalizer_of(run: RunFolder, submission: Submission) -> str:
    """Return the name of the job that grades and loads a run after a submission; each run of a shared job has one."""
    return finalizer_name(job_name(run, submission.number) if submission.runs else submission.name)


def others(run: RunFolder, submission: Submission) -> list[RunFolder]:
    """Return the other runs of a shared job."""
    return [RunFolder(run.path.parent / name) for name in submission.runs if name != run.path.name]


def logs_dir(run: RunFolder, job_name: str) -> Path:
    """Return the folder with the logs of a job, which are those of the first run where the job is shared."""
    firsts = (one.runs[0] for one in read(run) if one.runs and one.name == job_name)
    return RunFolder(run.path.parent / next(firsts, run.path.name)).logs_dir


def record_canceled(run: RunFolder, names: Sequence[str]) -> None:
    """Record that the jobs of these submissions were canceled, durable when this returns."""
    run.append("canceled", names=list(names))


def is_canceled(run: RunFolder) -> bool:
    """True if the last submission of a run was canceled, and it has not been submitted since."""
    submitted = read(run)
    canceled = {name for event in run.events("canceled") for name in event["names"]}
    return bool(submitted) and submitted[-1].name in canceled
