"""The job that gives a night's verdict, and a second one that takes its place if it dies.

The second depends on the failure of the first (`afternotok`), has the same name, and Slurm drops it when the first
succeeds (`--kill-on-invalid-dep`). It is what lets a night end unattended although its verdict job was killed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.nights.record import NightRecord
from jobs.run.folder import RunFolder
from jobs.slurm import client, profiles
from jobs.submission import submit

_LEAST_MINUTES = 60
_MOST_STARTS = 50
"""Starts of verdict jobs of one night after which no further one is submitted."""


@dataclass(frozen=True)
class VerdictJobs:
    """The verdict jobs of one night."""

    folder: Path
    """The folder of the night's page, record and logs."""
    name: str
    record: NightRecord
    options: Mapping[str, Any]
    """Options of sbatch, of which the job has what a job that grades has (`profiles.finalizer_parameters`)."""
    function: Callable[..., None]
    arguments: tuple[Any, ...]

    def behind(self, jobs: Sequence[str]) -> tuple[str, str]:
        """Have a verdict after these jobs; returns the verdict job's id, and a notice that says what became of others.

        One that is queued is kept if it waits for all of them, and replaced otherwise. Raises SlurmError.
        """
        with RunFolder(self.folder).submission_lock():
            own = client.this_job()
            queued = [task for task in client.queue([self.name]) if task.job_id != own]
            waiting = [task for task in queued if not task.is_held and task.state == "PENDING" and not task.colleague]
            last = self.record.verdict_job([task.job_id for task in waiting])
            if last and not set(jobs) - set(last["after"]):
                return last["job"], ", which was waiting for them already"
            running = [task.job_id for task in queued if task.state != "PENDING"]
            job = self._submit({"dependency": f"afterany:{':'.join([*jobs, *running])}"} if [*jobs, *running] else {})
            self.record.append("verdict job", job=job, after=list(jobs))
            # A colleague's, which only they can cancel, finds the verdict and judges again.
            client.cancel_tasks([task for task in queued if task.state == "PENDING" and not task.colleague])
            self._submit_successor(job)
            notice = f" (instead of job {last['job']}, which did not wait for all of them)" if last else ""
            return job, notice + (f"; job {', '.join(running)} was giving one" if running else "")

    def ensure_successor(self) -> None:
        """Have a job that takes this one's place if it dies, unless there is one; this is one of the verdict jobs."""
        job = client.this_job()
        if job is None or len(self.record.events("started")) >= _MOST_STARTS:
            return
        with contextlib.suppress(client.SlurmError):
            if not any(task.state == "PENDING" for task in client.queue([self.name]) if task.job_id != job):
                self._submit_successor(job)

    def dismiss_successors(self) -> None:
        """Cancel what would take this job's place; this job is done, whatever its exit code is."""
        own = client.this_job()
        with contextlib.suppress(client.SlurmError):
            waiting = [task for task in client.queue([self.name]) if task.state == "PENDING" and task.job_id != own]
            client.cancel_tasks(waiting)

    def _submit_successor(self, job: str) -> None:
        try:
            self._submit({"dependency": f"afternotok:{job}"}, **{"kill-on-invalid-dep": "yes"})
        except client.SlurmError as error:
            print(f"no job takes the place of verdict job {job} if it dies: {error}", flush=True)

    def _submit(self, dependency: Mapping[str, str], **further: str) -> str:
        parameters = profiles.finalizer_parameters(self.options)
        passed = {key: value for key, value in parameters["additional_parameters"].items() if key != "dependency"}
        parameters |= {"additional_parameters": {**passed, **further}, **dependency}
        parameters["time"] = max(_LEAST_MINUTES, int(parameters["time"]))
        return submit.submit_call(self.folder, self.name, parameters, self.function, *self.arguments)
