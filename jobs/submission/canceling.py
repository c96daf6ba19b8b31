"""Cancel a run: end its own jobs, and withdraw it from the jobs shared with other runs."""

from __future__ import annotations

from jobs.run import endings, submissions
from jobs.run.folder import RunFolder
from jobs.slurm import client


def cancel(run: RunFolder) -> list[str] | None:
    """Cancel a run's jobs; return the names of the runs that continue in shared jobs; None if the run is finished.

    A task of a shared job is canceled too if no other run needs it. Raises ValueError if the run has no jobs, and
    SlurmError, e.g. if the tasks belong to another user.
    """
    with run.lock("submission"):
        submitted = submissions.of_this_folder(run)
        if not submitted:
            raise ValueError(
                f"{run.path} was not submitted to Slurm from this folder. To stop a local run, stop the command that "
                "started it; to cancel the jobs of a copied run, use the original folder"
            )
        shared = {submission.name: submission for submission in submitted if submission.runs}
        own = [submission.name for submission in submitted if not submission.runs]
        own += [submissions.finalizer_of(run, submission) for submission in submitted]
        own_tasks = client.queue(own)
        if not own_tasks and not endings.num_unfinished(run, whole=False):
            return None
        # First, because Slurm may refuse to cancel tasks of another user.
        client.cancel_tasks([task for task in own_tasks if task.colleague])
        # Recorded before any job ends, so no verdict job treats them as killed.
        submissions.record_canceled(run, [submission.name for submission in submitted])
        client.cancel(own)
        for name in shared.keys() - submissions.left(run):
            submissions.leave(run, name)
        active = [task for task in client.queue(list(shared)) if task.is_active]
        idle = {name: _tasks_without_others(run, submission) for name, submission in shared.items()}
        # Another user's task skips this run on its own.
        client.cancel_tasks([task for task in active if task.index in idle[task.name] and not task.colleague])
        going_on = {task.name for task in active if task.index not in idle[task.name]}
        return sorted({other.path.name for name in going_on for other in submissions.others(run, shared[name])})


def _tasks_without_others(run: RunFolder, job: submissions.Submission) -> set[int]:
    """Return the tasks of a shared job, by index, that no other run needs."""
    busy: set[int] = set()
    for other in submissions.others(run, job):
        if not other.exists() or job.name in submissions.left(other):
            continue
        unfinished = set(endings.by_shard(other, endings.read_endings(other)).unfinished_shards)
        for submission in submissions.read(other):
            if submission.name == job.name:
                busy |= {index for index, shards in enumerate(submission.tasks) if not unfinished.isdisjoint(shards)}
    return set(range(len(job.tasks))) - busy
