"""What Slurm is asked and told: one call for all tasks of a run, never one per job.

Slurm's answers are secondary: what is done is in the run folder. They say who is still at work, and what it cost.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

ANSWER_SECONDS = 30.0
_HELD_REASON = "launch failed requeued held"
"""Slurm's reason for a task that it could not start on a node and will not start again by itself."""
_ACTIVE_STATES = {"PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "REQUEUED", "REQUEUE_HOLD"}


class SlurmError(RuntimeError):
    """A Slurm command failed or did not answer; the message is one line, Slurm's own where it printed one."""


class SlurmRejected(SlurmError):
    """sbatch rejected a job as it was asked for."""


@dataclass(frozen=True)
class Task:
    """One task of an array job as Slurm sees it."""

    name: str
    """The job's name: that of its submission."""
    index: int
    """Place in the array."""
    job_id: str
    state: str
    """Slurm's word: PENDING, RUNNING, COMPLETED, TIMEOUT, …"""
    node: str = ""
    reason: str = ""
    """Why it waits."""
    elapsed_seconds: float = 0.0
    gpus: int = 0

    @property
    def is_held(self) -> bool:
        """Whether Slurm holds the task in its queue for good and will never start it."""
        return self.state == "PENDING" and self.reason == _HELD_REASON

    @property
    def is_active(self) -> bool:
        """Whether the task is running or queued and will still run."""
        return self.state in _ACTIVE_STATES and not self.is_held

    @property
    def gpu_hours(self) -> float:
        """GPU-hours of the task's last start."""
        return self.gpus * self.elapsed_seconds / 3600


def controller_answers() -> bool:
    """Whether there is a cluster to submit to: sbatch may be installed where no controller is."""
    if not shutil.which("sbatch"):
        return False
    try:
        return "UP" in ask("scontrol", "ping", seconds=10)
    except SlurmError:
        return False


def queue(names: Sequence[str]) -> list[Task]:
    """The tasks of these jobs that wait or run. Raises SlurmError."""
    if not names:
        return []
    said = ask("squeue", "-h", "-r", f"--name={','.join(names)}", "-o", "%j|%K|%A|%F|%T|%N|%r")
    tasks = []
    for line in said.splitlines():
        name, index, job_id, array_id, state, node, reason = line.split("|")
        shown = f"{array_id}_{index}" if index.isdigit() else job_id
        tasks.append(Task(name, int(index) if index.isdigit() else 0, shown, state, node, reason))
    return tasks


def accounts(names: Sequence[str]) -> list[Task]:
    """Every start of every task of these jobs, requeued ones included, from accounting. Raises SlurmError."""
    if not names:
        return []
    fields = "JobName,JobID,State,NodeList,ElapsedRaw,AllocTRES"
    said = ask("sacct", "-n", "-P", "-X", "-D", "-S", "now-365days", f"--name={','.join(names)}", "-o", fields)
    tasks = []
    for line in said.splitlines():
        name, job_id, state, node, elapsed, resources = line.split("|")
        gpus = re.search(r"gres/gpu=(\d+)", resources)
        index = job_id.rpartition("_")[2] if "_" in job_id else "0"
        if index.isdigit():  # pending tasks of an array share one line, 7_[3-9]
            word = state.partition(" ")[0]
            tasks.append(
                Task(name, int(index), job_id, word, node, "", float(elapsed or 0), int(gpus[1]) if gpus else 0)
            )
    return tasks


def latest(tasks: Sequence[Task]) -> dict[tuple[str, int], Task]:
    """The last known start of each task, by job name and place in the array."""
    return {(task.name, task.index): task for task in tasks}


def max_array_size() -> int:
    """The cluster's limit on tasks in one array. Raises SlurmError."""
    found = re.search(r"MaxArraySize\s*=\s*(\d+)", ask("scontrol", "show", "config"))
    return int(found[1]) if found else 1001


def this_job(environment: Mapping[str, str] = os.environ) -> str | None:
    """The id of the job that this process belongs to, for scontrol."""
    array, index = environment.get("SLURM_ARRAY_JOB_ID"), environment.get("SLURM_ARRAY_TASK_ID")
    return f"{array}_{index}" if array and index else environment.get("SLURM_JOB_ID")


def end_time(job_id: str) -> float | None:
    """When Slurm will end a running job, seconds since the epoch; None where it has no limit. Raises SlurmError."""
    said = ask("squeue", "-h", "-j", job_id, "-o", "%e").strip()
    try:
        return datetime.fromisoformat(said).timestamp()  # Slurm writes local time
    except ValueError:
        return None


def requeue(job_id: str) -> None:
    """Let a job start again from the beginning. Raises SlurmError."""
    ask("scontrol", "requeue", job_id)


def cancel(names: Sequence[str]) -> None:
    """End these jobs. Raises SlurmError."""
    for name in names:
        ask("scancel", f"--name={name}")


def cancel_tasks(tasks: Sequence[Task]) -> None:
    """End single tasks. Raises SlurmError."""
    if tasks:
        ask("scancel", *(task.job_id for task in tasks))


def ask(*command: str, seconds: float = ANSWER_SECONDS) -> str:
    """What a command of Slurm's prints. Raises SlurmError."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=seconds, env={**os.environ, "LC_ALL": "C"}
        )
    except (OSError, subprocess.TimeoutExpired) as failure:
        raise SlurmError(f"{command[0]}: {failure}") from failure
    if done.returncode != 0:
        raise SlurmError(f"{command[0]}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
