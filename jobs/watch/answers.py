"""What Slurm says of the jobs of runs that are watched: one query of its queue per look, and few of its accounting."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from jobs.slurm import client
from jobs.slurm.client import Task

_HISTORY_SECONDS = 600.0
"""Time after which accounting is asked again though no task has left the queue."""
_RETRY_SECONDS = 120.0
"""The same where it did not answer."""


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
        seconds = time.monotonic() - self._asked_at
        if self._history_error:
            return seconds >= _RETRY_SECONDS
        if seconds >= _HISTORY_SECONDS:
            return True
        if not answers.has_queue:
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
