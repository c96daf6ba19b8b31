"""Submit the job again that grades and loads a finished run, where the one that was to do it has died."""

from __future__ import annotations

from jobs.after.missing import missing_after
from jobs.run import submissions
from jobs.run.endings import read_endings
from jobs.run.folder import RunFolder
from jobs.slurm import client, profiles
from jobs.submission import snapshot, submit
from jobs.submission.dispatch import with_code
from jobs.watch.conclusion import how_to_conclude, in_queue


def conclude_again(run: RunFolder) -> str:
    """Submit the last job of a finished run that lacks grades or results; returns one line on it.

    The line is empty where nothing is missing or samples are not finished, and nothing is submitted twice. Raises
    SlurmError where Slurm does not answer.
    """
    with run.submission_lock():
        missing = missing_after(run, read_endings(run))
        if not missing:
            return ""
        before = submissions.read(run)
        queued = client.queue([submissions.finalizer_of(run, submission) for submission in before])
        if at_work := [task for task in queued if task.is_active]:
            return in_queue(missing, at_work[-1])
        client.cancel_tasks(queued)  # held for good
        name = submissions.finalizer_of(run, before[-1]).removesuffix(submissions.finalizer_name(""))
        parameters = profiles.finalizer_parameters(before[-1].options)
        try:
            job = submit.submit_finalizer(run, name, [], with_code(run, snapshot.take(run), parameters))
        except client.SlurmRejected as rejection:
            return how_to_conclude(run, missing, f"Slurm rejected the job that does it: {rejection}")
    return f"{missing}: submitted job {job}, which grades, loads and reports"
