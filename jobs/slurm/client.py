"""Slurm queries and commands. A query covers all tasks of a run at once.

Progress is read from the run folder, not from Slurm. Slurm is queried for running or queued tasks and their cost.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from harness.settings.launch_settings import Cluster

ANSWER_SECONDS = 30.0
_PING_SECONDS = 10.0
_RESOLVER_OPTIONS = "timeout:1 attempts:4"
"""Resolver options (resolv.conf(5)) for the ping: four lookups of one second each fit into the ping's time limit."""
_DEFAULT_MAX_ARRAY_SIZE = 1001
"""Slurm's default of MaxArraySize."""
_HELD_REASON = "launch failed requeued held"
"""Slurm's reason for a task that failed to start on a node and will not be retried automatically."""
_NO_CONFIGURATION = "Could not establish a configuration source"
"""Slurm's message if its packages are installed but no cluster is configured."""
END_TIME = "SLURM_JOB_END_TIME"
"""Environment variable of a job: end of its time limit, in seconds since the epoch (Slurm 23.02 and later)."""
REQUEUE_CODE = "HARNESS_REQUEUE_CODE"
"""Environment variable of a job: if the task exits with this code, the batch script requeues the job."""
ASKS_FOR_REQUEUE = 85
_NAMES_PER_QUERY = 500
"""Maximum number of job names or ids in one query: Linux limits an argument to 128 KiB."""
_CLOCK_SECONDS = 3600.0
"""Maximum assumed clock difference between the submitting machine and Slurm."""
_ACTIVE_STATES = {"PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "REQUEUED", "REQUEUE_HOLD"}


class SlurmError(RuntimeError):
    """A Slurm command failed or timed out; the message is one line, from Slurm if available."""


class SlurmRejected(SlurmError):
    """sbatch rejected the job."""


class NoCluster(SlurmError):
    """No Slurm: its commands are not installed, or no cluster is configured."""


@dataclass(frozen=True)
class Task:
    """One start of an array task, as reported by Slurm."""

    name: str
    """Name of the job, which is also the name of the submission."""
    index: int
    """Index in the array."""
    job_id: str
    state: str
    """Slurm's name of the state: PENDING, RUNNING, COMPLETED, TIMEOUT, …"""
    node: str = ""
    reason: str = ""
    """Why the task is queued."""
    elapsed_seconds: float = 0.0
    gpus: int = 0
    colleague: str = ""
    """Owner of a queued or running task if that is another user; otherwise empty."""
    exit_code: int = 0
    """Exit code of the batch script, once known to accounting."""
    exit_signal: int = 0
    """Signal that ended the batch script, or 0."""

    @property
    def is_held(self) -> bool:
        """True if Slurm holds the task in its queue and will never start it."""
        return self.state == "PENDING" and self.reason == _HELD_REASON

    @property
    def is_active(self) -> bool:
        """True if the task is running, or queued and able to start."""
        return self.state in _ACTIVE_STATES and not self.is_held

    @property
    def gpu_hours(self) -> float:
        """GPU-hours of this start of the task."""
        return self.gpus * self.elapsed_seconds / 3600


def check_controller() -> None:
    """Check that there is a cluster to submit to.

    Raises NoCluster if there is none (sbatch may be installed without a configured cluster), and another SlurmError if
    the cluster's controller does not respond.
    """
    if not shutil.which("sbatch"):
        raise NoCluster("sbatch: not installed")
    # Without a configured cluster, the command queries the DNS, and after a lost packet waits longer than our limit.
    # A shorter resolver timeout makes it report the missing configuration in time.
    soon = {"RES_OPTIONS": _RESOLVER_OPTIONS}
    try:
        answer = ask("scontrol", "ping", seconds=_PING_SECONDS, environment=soon)
    except SlurmError as error:
        if _NO_CONFIGURATION in str(error):
            raise NoCluster(str(error)) from error
        if " is UP" not in str(error):  # otherwise, a backup controller is up
            raise
        return
    if "UP" not in answer:
        raise SlurmError(f"scontrol ping: {' '.join(answer.split())}")


def queue(names: Sequence[str]) -> list[Task]:
    """Return the queued or running tasks of the jobs with these names, of any user. Raises SlurmError."""
    tasks = []
    for line in _lines("name", names, "squeue", "-h", "-r", "-o", "%j|%K|%A|%F|%T|%N|%r|%U|%u|%M"):
        name, index, job_id, array_id, state, node, reason, *owner = line.split("|")
        task_id = f"{array_id}_{index}" if index.isdigit() else job_id
        colleague = "".join(owner[1:2]) if owner[:1] != [str(os.geteuid())] else ""
        number = int(index) if index.isdigit() else 0
        elapsed = _seconds("".join(owner[2:]))
        tasks.append(Task(name, number, task_id, state, node, reason, elapsed, colleague=colleague))
    return tasks


def _seconds(elapsed: str) -> float:
    """Convert Slurm's days-hours:minutes:seconds to seconds; 0 for invalid text."""
    days, _, clock = elapsed.rpartition("-")
    try:
        seconds = sum(int(part) * 60**place for place, part in enumerate(reversed(clock.split(":"))))
        return float(int(days or 0) * 86_400 + seconds)
    except ValueError:  # INVALID, N/A
        return 0.0


def accounts(job_ids: Sequence[str], since: float) -> list[Task]:
    """Return all starts of all tasks of these jobs, including requeued ones, from accounting. Raises SlurmError.

    Jobs are given by id, because queries by name are slow. `since`: time of the first submission, in seconds since the
    epoch. The search starts on that day, because sites limit ranges (MaxQueryTimeRange) and ids eventually restart at
    1. Jobs of other users are included (`-a`) if the site shows them.
    """
    fields = "JobName,JobID,State,NodeList,ElapsedRaw,AllocTRES,ExitCode"
    day = datetime.fromtimestamp(since - _CLOCK_SECONDS).strftime("%Y-%m-%d")  # noqa: DTZ006 Slurm uses local time
    tasks = []
    for line in _lines("jobs", job_ids, "sacct", "-a", "-n", "-P", "-X", "-D", "-S", day, "-o", fields):
        name, job_id, state, node, elapsed, resources, *ended = line.split("|")
        index = job_id.rpartition("_")[2] if "_" in job_id else "0"
        if index.isdigit():  # pending tasks of an array share one line, 7_[3-9]
            code, _, number = "".join(ended).partition(":")
            known = name, int(index), job_id, state.partition(" ")[0], node  # "CANCELLED by 1000"
            used, exit_code, signal = float(elapsed or 0), int(code or 0), int(number or 0)
            tasks.append(Task(*known, "", used, _num_gpus(resources), exit_code=exit_code, exit_signal=signal))
    return tasks


def _lines(by: str, names: Sequence[str], *command: str) -> Iterator[str]:
    """Yield a command's output lines for jobs, selected with the option `by`; without names, no command is run."""
    for start in range(0, len(names), _NAMES_PER_QUERY):
        chosen = ",".join(names[start : start + _NAMES_PER_QUERY])
        yield from ask(*command, f"--{by}={chosen}").splitlines()


def _num_gpus(resources: str) -> int:
    """Return the number of allocated GPUs. Some sites only report types, `gres/gpu:a100=4`."""
    if every_kind := re.search(r"gres/gpu=(\d+)", resources):
        return int(every_kind[1])
    return sum(map(int, re.findall(r"gres/gpu:[^=,]+=(\d+)", resources)))


def latest(tasks: Sequence[Task]) -> dict[tuple[str, int], Task]:
    """Return the last start of each task, by job name and array index."""
    return {(task.name, task.index): task for task in tasks}


def max_array_size() -> int:
    """Return the cluster's limit on array size. Raises SlurmError."""
    setting = re.search(r"MaxArraySize\s*=\s*(\d+)", ask("scontrol", "show", "config"))
    return int(setting[1]) if setting else _DEFAULT_MAX_ARRAY_SIZE


def this_job() -> str | None:
    """Return the id of the job that runs this process, as scontrol expects it; None outside of Slurm."""
    array, index = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    return f"{array}_{index}" if array and index else os.environ.get("SLURM_JOB_ID")


def end_time(job_id: str) -> float | None:
    """Return when a running job reaches its time limit, in seconds since the epoch; None if there is no limit.

    Without Slurm commands, e.g. in a container, the job's environment variable is used. Raises SlurmError.
    """
    if shutil.which("squeue") is None and (told := os.environ.get(END_TIME, "")).isdigit():
        return float(told) or None
    output = ask("squeue", "-h", "-j", job_id, "-o", "%e").strip()
    try:
        return datetime.fromisoformat(output).timestamp()  # Slurm prints local time
    except ValueError:
        return None


def requeue(job_id: str) -> None:
    """Requeue a job, which makes Slurm start it again from the beginning.

    Without Slurm commands, e.g. in a container, this process exits with the code that makes the batch script requeue
    the job. Raises SlurmError.
    """
    if shutil.which("scontrol") is None and (code := os.environ.get(REQUEUE_CODE)):
        sys.exit(int(code))
    ask("scontrol", "requeue", job_id)


def cancel(names: Sequence[str]) -> None:
    """Cancel all jobs with these names. Raises SlurmError."""
    for name in names:
        ask("scancel", f"--name={name}")


def cancel_tasks(tasks: Sequence[Task]) -> None:
    """Cancel single tasks. Raises SlurmError."""
    if tasks:
        ask("scancel", *(task.job_id for task in tasks))


def ask(*command: str, seconds: float = ANSWER_SECONDS, environment: Mapping[str, str] | None = None) -> str:
    """Return the standard output of a Slurm command. Raises SlurmError.

    Variables in this process's environment take precedence over those given here.
    """
    try:
        completed = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
            env={**(environment or {}), **os.environ, "LC_ALL": "C"},
        )
    except subprocess.TimeoutExpired as timeout:
        raise SlurmError(f"{command[0]}: no answer within {seconds:g} s") from timeout
    except OSError as error:
        raise SlurmError(f"{command[0]}: {error.strerror}") from error
    if completed.returncode != 0:
        raise SlurmError(f"{command[0]}: {_last_line(command[0], completed.stderr or completed.stdout)}")
    return completed.stdout


def _last_line(command: str, output: str) -> str:
    """Return the line of an error message that describes the error: the last one, because sacct prints causes first.

    The box of asterisks that scontrol prints after that line is skipped.
    """
    lines = [line.strip() for line in output.splitlines() if line.strip(" *\n") and not line.startswith("**")]
    return lines[-1].removeprefix(f"{command}: ").removeprefix("error: ") if lines else "failed without a message"


def resolve(cluster: Cluster) -> Cluster:
    """Replace `auto` by `slurm` if there is a cluster, otherwise by `local`.

    Raises ValueError if the cluster does not respond: models must not run on a login node.
    """
    if cluster != "auto":
        return cluster
    try:
        check_controller()
    except NoCluster:
        return "local"
    except SlurmError as error:
        raise ValueError(
            f"--cluster auto: Slurm is installed here, but its controller does not respond ({error}); nothing was "
            "started. Try again later, or use --cluster slurm or --cluster local"
        ) from error
    return "slurm"
