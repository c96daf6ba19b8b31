"""Jobs on Slurm that a run shares with other runs, and those that it has left.

A task of a shared job holds shards of several runs, whose folders stand beside each other, and works on one run after
the other. Each run records the job as a submission of its own (jobs.run.submissions). What only a shared job has stands
in a file of its own, which versions that do not know it need not read. A run that is canceled leaves its shared jobs:
their tasks pass over it from then on, and the other runs stay.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter

from jobs.run import submissions
from jobs.run.endings import by_shard, read_endings
from jobs.run.files import append_record, read_records, records_of
from jobs.run.folder import RunFolder
from jobs.run.submissions import Submission


@dataclass(frozen=True)
class SharedJob:
    """A job that a run shares, as the run records it."""

    name: str
    """Its name in Slurm."""
    runs: list[str]
    """Names of the run folders; the first one has the job's logs and code."""
    finalizer: str
    """Name of the job that grades and loads this run after it."""


_SHARED_JOB = TypeAdapter(SharedJob)


def read(run: RunFolder) -> dict[str, SharedJob]:
    """Return the shared jobs of a run by name, those that it has left included."""
    records = (record["shared"] for record in read_records(_path(run), run.spec_id()) if "shared" in record)
    return {job.name: job for job in records_of(_path(run), _SHARED_JOB, records)}


def record(run: RunFolder, job: SharedJob) -> None:
    """Record a shared job, durable when this returns."""
    append_record(_path(run), {"shared": asdict(job)}, run.spec_id() or "")


def left(run: RunFolder) -> set[str]:
    """Return the names of the shared jobs that a run has left."""
    return {name for record in read_records(_path(run), run.spec_id()) if isinstance(name := record.get("left"), str)}


def leave(run: RunFolder, name: str) -> None:
    """Let a run leave a shared job, durable when this returns."""
    append_record(_path(run), {"left": name}, run.spec_id() or "")


def current(run: RunFolder) -> list[Submission]:
    """Return the submissions of a run in order, without the shared jobs that it has left."""
    left_jobs = left(run)
    return [submission for submission in submissions.read(run) if submission.name not in left_jobs]


def finalizer_of(run: RunFolder, submission: Submission) -> str:
    """Return the name of the job that grades and loads a run after a submission."""
    shared = read(run).get(submission.name)
    return shared.finalizer if shared else submissions.finalizer_name(submission.name)


def others(run: RunFolder, job: SharedJob) -> list[RunFolder]:
    """Return the other runs of a shared job."""
    return [RunFolder(run.path.parent / name) for name in job.runs if name != run.path.name]


def logs_dir(run: RunFolder, job_name: str) -> Path:
    """Return the folder with the logs of a job, which are those of the first run where the job is shared."""
    shared = read(run).get(job_name)
    return (RunFolder(run.path.parent / shared.runs[0]) if shared else run).logs_dir


def tasks_without_others(run: RunFolder, job: SharedJob, num_tasks: int) -> set[int]:
    """Return the tasks of a shared job, by index, in which no other run has anything left to do."""
    busy: set[int] = set()
    for other in others(run, job):
        if not other.exists() or job.name in left(other):
            continue
        unfinished = set(by_shard(other, read_endings(other)).unfinished_shards)
        for submission in submissions.read(other):
            if submission.name == job.name:
                busy |= {index for index, shards in enumerate(submission.tasks) if not unfinished.isdisjoint(shards)}
    return set(range(num_tasks)) - busy


def _path(run: RunFolder) -> Path:
    return run.path / "shared_jobs.jsonl"
