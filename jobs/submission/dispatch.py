"""Decide from files and one query of Slurm's queue which shards need a job, and submit them.

A shard that is neither finished nor known to Slurm is submitted. So the same command may be run any number of times,
even by two people at once, and whatever was killed is submitted again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.run import submissions
from jobs.run.endings import by_shard, read_endings
from jobs.run.folder import RunFolder
from jobs.run.submissions import Submission
from jobs.run.wording import check_prompts
from jobs.slurm import client, profiles
from jobs.submission import snapshot, submit


@dataclass(frozen=True)
class Dispatched:
    """What a dispatch did."""

    submitted: list[str]
    """Ids of the array jobs submitted now."""
    tasks: int
    """Number of tasks in them."""
    num_active_shards: int
    """Number of shards that were already running or queued."""
    warning: str | None = None
    """Why Slurm rejected the job that grades, loads and reports, and what to run instead; None where it did not."""

    @property
    def finalizer_notice(self) -> str:
        """The end of a line about the submission: that a job grades, loads and reports after it."""
        return "" if self.warning else "; a job after them grades, loads and reports"


def dispatch(run: RunFolder, options: Mapping[str, Any], shards_per_task: int = 1) -> Dispatched:
    """Submit every shard that needs it as array jobs, and a job that grades, loads and reports after them.

    `options` are sbatch's options. Raises ValueError where one is wrong, OtherPrompts where the run was begun with
    other prompts, SlurmRejected where sbatch rejects the arrays, and SlurmError where Slurm does not answer.
    """
    parameters = profiles.submitit_parameters(options)
    with run.submission_lock():
        before = submissions.read(run)
        active = submissions.active_shards(before, _queued(before))
        # Read after the queue: a task that ends in between is then seen as ended, not as missing.
        todo = [shard for shard in by_shard(run, read_endings(run)).unfinished_shards if shard not in active]
        if not todo:
            return Dispatched([], 0, len(active))
        check_prompts(run.spec())
        code = snapshot.take(run)
        jobs: list[str] = []
        tasks = list(_portions(todo, shards_per_task))
        for number, array in enumerate(_portions(tasks, client.max_array_size() - 1), len(before)):
            name = submissions.job_name(run, number)
            submission = Submission(number, name, list(array), time.time(), dict(options), shards_per_task, code)
            submissions.record(run, submission)
            jobs.append(submit.submit_array(run, submission, _with_code(run, code, parameters)))
        warning = None
        try:
            submit.submit_finalizer(run, name, jobs, _with_code(run, code, profiles.light(parameters)))
        except client.SlurmRejected as rejection:  # such as a partition that takes no job without a GPU
            warning = (
                f"WARNING: Slurm rejected the job that grades, loads and reports: {rejection}. "
                f"When the tasks have ended, run:  python -m jobs finalize {run.path}"
            )
        return Dispatched(jobs, len(tasks), len(active), warning)


def clear(run: RunFolder) -> None:
    """Cancel the jobs of a run that Slurm holds in its queue and will never start. Raises SlurmError."""
    with run.submission_lock():
        _queued(submissions.read(run))


def _queued(before: Sequence[Submission]) -> list[client.Task]:
    """Return the tasks of these submissions that are running or queued, and cancel those that Slurm holds for good.

    A canceled task of an array is then submitted again, and a job that depends on it no longer waits forever.
    """
    names = [submission.name for submission in before]
    queued = client.queue([*names, *map(submissions.finalizer_name, names)])
    client.cancel_tasks([task for task in queued if task.is_held])
    return [task for task in queued if not task.is_held]


def preview(run: RunFolder, shards: int, options: Mapping[str, Any], shards_per_task: int = 1) -> str:
    """Return the batch script of a first submission, for --dry-run; nothing is written."""
    parameters = profiles.submitit_parameters(options)
    tasks = _portions(list(range(shards)), shards_per_task)
    submission = Submission(0, submissions.job_name(run, 0), tasks, 0.0, dict(options), shards_per_task)
    return submit.batch_script(run, submission, _with_code(run, "code-….zip", parameters))


def _portions(items: Sequence[Any], size: int) -> list[list[Any]]:
    return [list(items[i : i + size]) for i in range(0, len(items), size)]


def _with_code(run: RunFolder, code: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    return snapshot.running((run.path / code).resolve(), submit.python(), parameters)
