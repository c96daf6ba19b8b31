"""What the status of a finished run says where nothing has graded or loaded it: why not, and how to go on."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote

from harness.cli.program import typed
from jobs.run import submissions
from jobs.run.folder import RunFolder
from jobs.run.submissions import Submission
from jobs.slurm.client import Task
from jobs.watch import reasons
from jobs.watch.answers import Answers


def how_to_conclude(run: RunFolder, missing: str, why: str = "") -> str:
    """Return one line: what is missing, why if it is known, and the command."""
    reason = f" ({why})" if why else ""
    return f"{missing}{reason}:  {typed('jobs finalize')} {quote(str(run.path))}"


def after_job(run: RunFolder, missing: str, earlier: Sequence[Submission], answers: Answers) -> str:
    """Return the line of a run on Slurm, whose last job grades and loads it; empty where the queue did not answer."""
    if not answers.has_queue:
        return ""
    if tasks := at_work(run, earlier, answers):
        return in_queue(missing, tasks[-1])
    last = submissions.finalizer_of(run, earlier[-1])
    held = [task for task in answers.queued if task.name == last]
    ended = [*(task for task in answers.history if task.name == last and not task.is_active), *held]
    return how_to_conclude(run, missing, f"job {ended[-1].job_id}: {reasons.reason(run, ended[-1])}" if ended else "")


def at_work(run: RunFolder, earlier: Sequence[Submission], answers: Answers) -> list[Task]:
    """Return the jobs that grade and load a run, as far as they are running or queued."""
    names = {submissions.finalizer_of(run, submission) for submission in earlier}
    return [task for task in answers.queued if task.name in names and task.is_active]


def in_queue(missing: str, task: Task) -> str:
    """Return the line of a run whose last job is running or queued."""
    reason = f", {task.reason}" if task.state == "PENDING" and task.reason else ""
    return f"{missing} yet: job {task.job_id} does it ({task.state}{reason})"
