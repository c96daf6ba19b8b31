"""Decide from files and one look at Slurm's queue what is left to submit, and submit it.

A shard that is neither finished nor known to Slurm is submitted; so the same command may be typed any number of times,
by two people at once too, and whatever was killed is submitted again.
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
from jobs.slurm import client, profiles
from jobs.submission import snapshot, submit


@dataclass(frozen=True)
class Dispatched:
    """What a dispatch did."""

    submitted: list[str]
    """Job ids of arrays submitted now."""
    tasks: int
    """Tasks in them."""
    at_work: int
    """Shards that Slurm already had."""
    warning: str | None = None
    """Where Slurm did not take the job behind them: why, and what to type instead."""

    @property
    def behind(self) -> str:
        """What a line about the submission ends with."""
        return "" if self.warning else "; a job behind them grades, loads and reports"


def dispatch(run: RunFolder, options: Mapping[str, Any], shards_per_task: int = 1) -> Dispatched:
    """Submit every shard that needs it as array jobs, and a job behind them that grades, loads and reports.

    `options` are sbatch's words. Raises ValueError on a wrong one, SlurmRefused where sbatch does not take the arrays,
    and SlurmSilent where Slurm does not answer.
    """
    parameters = profiles.submitit_parameters(options)
    with run.submission_lock():
        before = submissions.read(run)
        busy = submissions.shards_at_work(before, _queued(before))
        # Read behind the look at the queue: a task that ends in between is then seen as ended, not as missing.
        todo = [shard for shard in by_shard(run, read_endings(run)).unfinished_shards if shard not in busy]
        if not todo:
            return Dispatched([], 0, len(busy))
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
        except client.SlurmRefused as refused:  # such as a partition that takes no job without a GPU
            warning = (
                f"WARNING: Slurm did not take the job that grades, loads and reports: {refused}. "
                f"When the tasks have ended:  python -m jobs finalize {run.path}"
            )
        return Dispatched(jobs, len(tasks), len(busy), warning)


def clear(run: RunFolder) -> None:
    """Take out of Slurm's queue what it holds of a run and will never start. Raises SlurmSilent."""
    with run.submission_lock():
        _queued(submissions.read(run))


def _queued(before: Sequence[Submission]) -> list[client.Task]:
    """What Slurm has of these submissions; what it has given up is cancelled.

    A task of an array is then submitted anew, and a job that waits behind it no longer waits for ever.
    """
    names = [submission.name for submission in before]
    queued = client.queue([*names, *map(submissions.finalizer_name, names)])
    client.cancel_tasks([task for task in queued if task.given_up])
    return [task for task in queued if not task.given_up]


def preview(run: RunFolder, shards: int, options: Mapping[str, Any], shards_per_task: int = 1) -> str:
    """The batch script of a first submission, for --dry-run; nothing is written."""
    parameters = profiles.submitit_parameters(options)
    tasks = _portions(list(range(shards)), shards_per_task)
    submission = Submission(0, submissions.job_name(run, 0), tasks, 0.0, dict(options), shards_per_task)
    return submit.batch_script(run, submission, _with_code(run, "code-….zip", parameters))


def _portions(items: Sequence[Any], size: int) -> list[list[Any]]:
    return [list(items[i : i + size]) for i in range(0, len(items), size)]


def _with_code(run: RunFolder, code: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    return snapshot.running((run.path / code).resolve(), submit.python(), parameters)
