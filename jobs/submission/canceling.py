"""Cancel a run: its own jobs end, and it leaves the jobs that it shares with other runs."""

from __future__ import annotations

from jobs.run import endings, submissions
from jobs.run.folder import RunFolder
from jobs.slurm import client


def cancel(run: RunFolder) -> list[str] | None:
    """Cancel a run's jobs; returns the names of the runs that go on in jobs which it shared; None: it is finished.

    A task of a shared job ends with it where no other run has anything left to do there. Raises ValueError where
    it has no jobs, and SlurmError, such as where the tasks are another user's.
    """
    with run.lock("submission"):
        submitted = submissions.of_this_folder(run)
        if not submitted:
            raise ValueError(
                f"{run.path} was not submitted to Slurm from where it is; a local run ends with the command that "
                "started it, and a copy's jobs are the original's"
            )
        shared = {submission.name: submission for submission in submitted if submission.runs}
        own = [submission.name for submission in submitted if not submission.runs]
        own += [submissions.finalizer_of(run, submission) for submission in submitted]
        own_tasks = client.queue(own)
        if not own_tasks and not endings.num_unfinished(run, whole=False):
            return None
        client.cancel_tasks([task for task in own_tasks if task.colleague])  # first: Slurm may not let this user
        # Before anything ends: a night that finds ended jobs must know that they were not killed.
        submissions.record_canceled(run, [submission.name for submission in submitted])
        client.cancel(own)
        for name in shared.keys() - submissions.left(run):
            submissions.leave(run, name)
        active = [task for task in client.queue(list(shared)) if task.is_active]
        idle = {name: _tasks_without_others(run, submission) for name, submission in shared.items()}
        # A colleague's task passes over this run by itself.
        client.cancel_tasks([task for task in active if task.index in idle[task.name] and not task.colleague])
        going_on = {task.name for task in active if task.index not in idle[task.name]}
        return sorted({other.path.name for name in going_on for other in submissions.others(run, shared[name])})


def _tasks_without_others(run: RunFolder, job: submissions.Submission) -> set[int]:
    """Return the tasks of a shared job, by index, in which no other run has anything left to do."""
    busy: set[int] = set()
    for other in submissions.others(run, job):
        if not other.exists() or job.name in submissions.left(other):
            continue
        unfinished = set(endings.by_shard(other, endings.read_endings(other)).unfinished_shards)
        for submission in submissions.read(other):
            if submission.name == job.name:
                busy |= {index for index, shards in enumerate(submission.tasks) if not unfinished.isdisjoint(shards)}
    return set(range(len(job.tasks))) - busy
