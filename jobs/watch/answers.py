"""What Slurm says of the jobs of runs that are watched: one query of its queue per look, and few of its accounting.

And what that means for a finished run that nothing has graded or loaded: why not, and how to go on.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from shlex import quote

from harness.cli.program import typed
from jobs.run import submissions
from jobs.run.folder import RunFolder
from jobs.run.submissions import Submission
from jobs.slurm import client
from jobs.slurm.client import Task
from jobs.watch import failures

_HISTORY_SECONDS = 600.0
"""Time after which accounting is asked again though no task has left the queue."""


@dataclass
class Answers:
    """What is known of jobs at one look."""

    queued: list[Task] = field(default_factory=list)
    history: list[Task] = field(default_factory=list)
    """From accounting, perhaps of an earlier look."""
    has_queue: bool = True
    """False where the queue did not answer."""
    has_history: bool = False
    errors: list[str] = field(default_factory=list)
    """Why the queue or accounting did not answer, one line each."""


class SlurmWatch:
    """Asks about the same jobs again and again, as seldom as it can.

    Accounting is a database that all users of a site share: it is asked at the first look, when a task has left the
    queue, and otherwise every ten minutes.
    """

    def __init__(self) -> None:
        self._history: list[Task] | None = None
        self._history_error = ""
        self._asked_at: float | None = None
        self._queued: set[str] = set()

    def ask(self, names: Sequence[str], since: float) -> Answers:
        """Ask about the jobs with these names, the first of which was submitted at `since` (seconds of the epoch)."""
        answers = Answers()
        if not names:
            return answers
        try:
            answers.queued = client.queue(names)
        except client.SlurmError as error:
            answers.has_queue = False
            answers.errors.append(str(error))
        if self._is_due(answers):
            self._read_history(names, since)
        if answers.has_queue:
            self._queued = {task.job_id for task in answers.queued}
        answers.history, answers.has_history = self._history or [], self._history is not None
        answers.errors += [self._history_error] if self._history_error else []
        return answers

    def _is_due(self, answers: Answers) -> bool:
        if self._asked_at is None:
            return True
        if time.monotonic() - self._asked_at >= _HISTORY_SECONDS:
            return True
        if self._history_error or not answers.has_queue:
            return False
        queued = {task.job_id for task in answers.queued}
        # Accounting may lag behind the queue by some seconds.
        may_have_ended = {task.job_id for task in client.latest(self._history or []).values() if task.is_active}
        return bool((self._queued | may_have_ended) - queued)

    def _read_history(self, names: Sequence[str], since: float) -> None:
        self._asked_at = time.monotonic()
        try:
            self._history, self._history_error = client.accounts(names, since), ""
        except client.SlurmError as error:
            self._history_error = str(error)


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
    return how_to_conclude(run, missing, f"job {ended[-1].job_id}: {failures.reason(run, ended[-1])}" if ended else "")


def at_work(run: RunFolder, earlier: Sequence[Submission], answers: Answers) -> list[Task]:
    """Return the jobs that grade and load a run, as far as they are running or queued."""
    names = {submissions.finalizer_of(run, submission) for submission in earlier}
    return [task for task in answers.queued if task.name in names and task.is_active]


def in_queue(missing: str, task: Task) -> str:
    """Return the line of a run whose last job is running or queued."""
    reason = f", {task.reason}" if task.state == "PENDING" and task.reason else ""
    return f"{missing} yet: job {task.job_id} does it ({task.state}{reason})"
