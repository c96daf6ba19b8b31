"""Hand shards to a cluster; the only module that imports submitit.

A job is given the path of a run folder and shard numbers, so nothing is pickled that an edit could break. `local` runs
the same worker in a process of this machine, `debug` in this very process, `slurm` as an array job.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from jobs.after.conclude import conclude
from jobs.run import submissions
from jobs.run.folder import RunFolder
from jobs.run.submissions import Submission
from jobs.slurm import client
from jobs.submission import snapshot
from jobs.submission.in_process import InProcessJob
from jobs.work.worker import LAUNCHER_PID, run_shard, run_shards

Cluster = Literal["auto", "slurm", "local", "debug"]
CLUSTERS: tuple[Cluster, ...] = ("auto", "slurm", "local", "debug")
_LOCAL_LIMIT_MINUTES = 60 * 24 * 30


class Job(Protocol):
    """What is used of a submitit job."""

    @property
    def job_id(self) -> str: ...

    def done(self, force_check: bool = False) -> bool:
        """Whether it has ended."""

    def result(self) -> Any:
        """Wait and return what the worker returned; raises what it raised."""

    def exception(self) -> BaseException | None:
        """Wait and return what the worker raised."""

    def cancel(self, check: bool = True) -> None:
        """End it."""


def resolve(cluster: Cluster) -> Cluster:
    """`auto`: Slurm where sbatch is and a controller answers, else this machine."""
    if cluster != "auto":
        return cluster
    return "slurm" if client.controller_answers() else "local"


def python() -> str:
    """The interpreter that jobs run in: this one, which the nodes see on the shared filesystem."""
    return sys.executable


def submit_here(run: RunFolder, shards: Sequence[int], cluster: Cluster) -> list[Job]:
    """Start one worker per shard on this machine (`local`), or run them in this very process (`debug`)."""
    if cluster == "debug":
        log = run.logs_dir / "jobs" / "in-process.log"
        return [InProcessJob(run_shard, (str(run.path), shard), log) for shard in shards]
    import submitit

    executor = submitit.AutoExecutor(folder=str(run.logs_dir / "jobs"), cluster=cluster)
    executor.update_parameters(timeout_min=_LOCAL_LIMIT_MINUTES)
    os.environ[LAUNCHER_PID] = str(os.getpid())
    if len(shards) == 1:
        return [executor.submit(run_shard, str(run.path), shards[0])]
    jobs: list[Job] = executor.map_array(run_shard, [str(run.path)] * len(shards), list(shards))
    return jobs


@contextlib.contextmanager
def _outside_of_any_job() -> Iterator[None]:
    """Hide the variables of the job that this process may be in: sbatch hands them on, and srun takes them for its own.

    A night is launched by Slurm's cron, and its verdict launches runs again.
    """
    inside: dict[str, str] = {}
    if "SLURM_JOB_ID" in os.environ:
        ours = ("SLURM_", "SLURMD_", "SRUN_")
        inside = {name: text for name, text in os.environ.items() if name.startswith(ours) and name != "SLURM_CONF"}
    for name in inside:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(inside)


@contextlib.contextmanager
def _refusals_in_one_line() -> Iterator[None]:
    """Raises SlurmRejected where submitit raises what sbatch printed."""
    from submitit.core.utils import FailedJobError

    try:
        yield
    except FailedJobError as error:
        lines = [line.removeprefix("sbatch: error: ").strip() for line in str(error).splitlines()]
        raise client.SlurmRejected("; ".join(line for line in lines if line)) from error


def submit_array(run: RunFolder, submission: Submission, parameters: Mapping[str, Any]) -> str:
    """Submit one array job; returns its id. `parameters` are submitit's. Raises client.SlurmRejected."""
    executor = _slurm_executor(run, submission.name, _all_at_a_time(submission, parameters))
    path = str(run.path.resolve())
    with _outside_of_any_job(), _refusals_in_one_line():
        jobs: list[Job] = executor.map_array(run_shards, [path] * len(submission.tasks), submission.tasks)
    return jobs[0].job_id.partition("_")[0]


def batch_script(run: RunFolder, submission: Submission, parameters: Mapping[str, Any]) -> str:
    """What sbatch would be given for a submission, without submitting it."""
    executor = _slurm_executor(run, submission.name, _all_at_a_time(submission, parameters))
    if len(submission.tasks) > 1:
        executor.parameters["map_count"] = len(submission.tasks)
    script: str = executor._make_submission_file_text(executor._submitit_command_str, "preview")
    return script


def _all_at_a_time(submission: Submission, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Without a word on it, submitit lets 256 tasks of an array run at a time."""
    return {"array_parallelism": len(submission.tasks), **parameters}


def submit_finalizer(run: RunFolder, name: str, jobs: Sequence[str], parameters: Mapping[str, Any]) -> str:
    """Submit the job that grades, loads and reports once these have ended, however they did; returns its id.

    Raises client.SlurmRejected.
    """
    behind = {**parameters, "dependency": f"afterany:{':'.join(jobs)}"}
    return _submit(run, submissions.finalizer_name(name), behind, conclude, str(run.path.resolve()))


def submit_call(
    folder: Path, name: str, parameters: Mapping[str, Any], function: Callable[..., None], *arguments: Any
) -> str:
    """Submit one call of a module's function as a job of its own, in the code as it is now; returns the job's id.

    `parameters` are submitit's. Raises client.SlurmRejected.
    """
    run = RunFolder(folder)
    archive = (folder / snapshot.take(run)).resolve()
    return _submit(run, name, snapshot.running(archive, python(), parameters), function, *arguments)


def _submit(
    run: RunFolder, name: str, parameters: Mapping[str, Any], function: Callable[..., Any], *arguments: Any
) -> str:
    executor = _slurm_executor(run, name, parameters)
    with _outside_of_any_job(), _refusals_in_one_line():
        return str(executor.submit(function, *arguments).job_id)


def _slurm_executor(run: RunFolder, name: str, parameters: Mapping[str, Any]) -> Any:
    import submitit

    executor = submitit.SlurmExecutor(folder=str(run.logs_dir.resolve() / "jobs"))
    executor.update_parameters(job_name=name, **parameters)
    return executor
