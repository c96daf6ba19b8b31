"""Cancel a run: its own jobs end, and it leaves the jobs that it shares with other runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from jobs.run import endings, submissions
from jobs.run.files import FULL
from jobs.run.folder import RunDamaged, RunFolder
from jobs.slurm import client
from jobs.slurm.client import Task


class NotSubmitted(ValueError):
    """The run has no jobs; the message is one line."""


class Finished(Exception):
    """Every sample of the run is finished, and no job of its own is left; the message is one line."""


class NotPermitted(ValueError):
    """The jobs are another user's, and Slurm does not let this one cancel them; the message is one line."""


def cancel(run: RunFolder) -> list[str]:
    """Cancel a run's jobs; returns the names of the runs that go on in jobs which it shared.

    A task of a shared job ends with it where no other run has anything left to do there. Raises NotSubmitted, Finished
    and NotPermitted, with everything left as it was, and SlurmError.
    """
    with run.submission_lock():
        submitted = submissions.read(run)
        if not submitted:
            raise NotSubmitted(
                f"{run.path} was not submitted to Slurm; a local run ends with the command that started it"
            )
        shared = submissions.read_shared(run)
        own = [submission.name for submission in submitted if submission.name not in shared]
        own += [submissions.finalizer_of(run, submission) for submission in submitted]
        own_tasks = client.queue(own)
        if not own_tasks and _is_finished(run):
            raise Finished(f"{run.path.name} is finished; there is nothing to cancel")
        _cancel_of_colleagues(run, [task for task in own_tasks if task.colleague])
        # Before anything ends: a night that finds ended jobs must know that they were not killed.
        _record(run, [submission.name for submission in submitted])
        client.cancel(own)
        for name in shared.keys() - submissions.left(run):
            submissions.leave(run, name)
        active = [task for task in client.queue(list(shared)) if task.is_active]
        sizes = {submission.name: len(submission.tasks) for submission in submitted}
        idle = {name: submissions.tasks_without_others(run, job, sizes[name]) for name, job in shared.items()}
        # A colleague's task passes over this run by itself.
        client.cancel_tasks([task for task in active if task.index in idle[task.name] and not task.colleague])
        going_on = {task.name for task in active if task.index not in idle[task.name]}
        return sorted({other.path.name for name in going_on for other in submissions.others(run, shared[name])})


def _record(run: RunFolder, names: Sequence[str]) -> None:
    """Record the cancellation; a full disk does not keep the jobs that fill it from being canceled."""
    try:
        submissions.record_canceled(run, names)
    except OSError as error:
        if error.errno not in FULL:
            raise
        remark = "a night that this run belongs to would submit it again"
        print(f"WARNING: the cancellation is not recorded ({error.strerror}): {remark}", file=sys.stderr)


def _is_finished(run: RunFolder) -> bool:
    """True if no sample is left to run; False also where damage keeps one from knowing."""
    try:
        return endings.num_unfinished(run, whole=False) == 0
    except (RunDamaged, OSError):
        return False


def _cancel_of_colleagues(run: RunFolder, tasks: Sequence[Task]) -> None:
    """Cancel the tasks of other users, which only operators of Slurm and coordinators of accounts may do.

    It is tried, because Slurm alone knows who they are. Raises NotPermitted.
    """
    try:
        client.cancel_tasks(tasks)
    except client.SlurmError as error:
        users = ", ".join(sorted({task.colleague for task in tasks}))
        raise NotPermitted(
            f"{run.path.name} was not canceled: its jobs belong to {users}, who can cancel them, as can an operator of "
            f"Slurm or a coordinator of their account ({error})"
        ) from error
