"""Submit shards to a cluster; the only module that imports submitit.

A job gets the path of a run folder and shard numbers, so that nothing is pickled that an edit could break. `local` runs
the worker in a process of this machine, `debug` in this process, `slurm` as a task of an array job.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from harness import gpus
from harness.engines import placement
from harness.engines.processes import output_to
from harness.environment import accelerator
from harness.methods import build
from harness.settings.launch_settings import Cluster
from harness.sizing.memory import Option
from jobs import after
from jobs.run import submissions
from jobs.run.folder import RunFolder
from jobs.run.spec import RunSpec
from jobs.run.submissions import Submission
from jobs.slurm import client
from jobs.submission import in_process, snapshot
from jobs.submission.in_process import InProcessJob
from jobs.work.worker import LAUNCHER_PID, run_parts, run_share, run_side_by_side

_LOCAL_LIMIT_MINUTES = 60 * 24 * 30


class Job(Protocol):
    """The part of a submitit job that is used."""

    @property
    def job_id(self) -> str: ...

    def done(self, force_check: bool = False) -> bool:
        """Return True if the job has ended."""

    def result(self) -> Any:
        """Wait and return what the worker returned; raises what it raised."""

    def exception(self) -> BaseException | None:
        """Wait and return what the worker raised, None where it raised nothing."""

    def cancel(self, check: bool = True) -> None:
        """End the job."""


class ControllerSilent(ValueError):
    """There is a cluster, and its controller does not answer now; the message is one line."""


def resolve(cluster: Cluster) -> Cluster:
    """Replace `auto` by `slurm` where there is a cluster, and by `local` where there is none.

    Raises ControllerSilent where there is one that does not answer now: models do not belong on a login node.
    """
    if cluster != "auto":
        return cluster
    try:
        client.check_controller()
    except client.NoCluster:
        return "local"
    except client.SlurmError as error:
        raise ControllerSilent(
            f"--cluster auto: Slurm is installed here, but its controller does not answer now ({error}), and nothing "
            "was started on this machine instead; try again later, or choose --cluster slurm or --cluster local"
        ) from error
    return "slurm"


def python() -> str:
    """Return the interpreter that jobs run in unless the profile names one: this one, on the shared filesystem."""
    return sys.executable


def submit_parts_here(logged_in: RunFolder, workers: Sequence[Sequence[tuple[RunFolder, list[int]]]]) -> list[Job]:
    """Start workers in processes of this machine, each for its shards of one run or several."""
    import submitit

    executor = submitit.AutoExecutor(folder=str(logged_in.logs_dir / "jobs"), cluster="local")
    executor.update_parameters(timeout_min=_LOCAL_LIMIT_MINUTES)
    os.environ[LAUNCHER_PID] = str(os.getpid())
    parts = [[(str(run.path), shards) for run, shards in worker] for worker in _workers_here(workers)]
    # submitit's process above the workers, whose output is in their logs, would print its tracebacks at an interrupt.
    with output_to(Path(os.devnull)):
        jobs: list[Any] = (
            [executor.submit(run_parts, parts[0])]
            if len(parts) == 1
            else executor.map_array(run_share, parts, range(len(parts)), [len(parts)] * len(parts))
        )
    for job in jobs:  # a process of this machine: what it has not written when it ends will not come
        job._results_timeout_s = -math.inf  # otherwise 15 s of the clock, which are hours where it is set back
    return jobs


def in_process_log(run: RunFolder) -> Path:
    """Return the path that the traceback of a worker in the launcher's process is written to."""
    return run.logs_dir / "jobs" / in_process.LOG_NAME


def log_of(run: RunFolder, job: Job) -> Path:
    """Return the log that a worker on this machine has written its failure to, in the run that it is logged in."""
    return in_process_log(run) if isinstance(job, InProcessJob) else run.logs_dir / "jobs" / f"{job.job_id}_0_log.err"


def _workers_here(workers: Sequence[Sequence[tuple[RunFolder, list[int]]]]) -> list[list[tuple[RunFolder, list[int]]]]:
    """Return the workers, put together until there are enough of this machine's cards for the engines of each."""
    cards = len(gpus.visible_gpus()) if accelerator() == "gpu" else 0
    if not cards:
        return [list(worker) for worker in workers]
    needed = max(num_cards(run.spec()) for worker in workers for run, _ in worker)
    count = min(len(workers), max(1, cards // needed))
    merged: list[dict[Path, tuple[RunFolder, list[int]]]] = [{} for _ in range(count)]
    for number, worker in enumerate(workers):
        for run, shards in worker:
            merged[number % count].setdefault(run.path, (run, []))[1].extend(shards)
    return [list(parts.values()) for parts in merged]


def num_cards(spec: RunSpec) -> int:
    """Return the cards that the engines of one worker need, as far as the run says."""
    on_servers = {role for role, model in spec.models.items() if model is not None and model.server is not None}
    roles = [role for role in build(spec.method, dict(spec.params)).roles if role not in on_servers]
    named = {role: own.gpus for role, own in spec.settings.items() if role in roles}
    return placement.num_cards(named, {role: spec.settings[role].tensor_parallel or 1 for role in roles})


@contextlib.contextmanager
def _outside_of_any_job() -> Iterator[None]:
    """Hide the variables of the job that this process may run in.

    sbatch would pass them on, and srun would take them for those of the new job. It happens: a night is launched by
    Slurm's cron, and its verdict launches runs again.
    """
    hidden: dict[str, str] = {}
    if "SLURM_JOB_ID" in os.environ:
        prefixes = ("SLURM_", "SLURMD_", "SRUN_")
        hidden = {name: text for name, text in os.environ.items() if name.startswith(prefixes) and name != "SLURM_CONF"}
    for name in hidden:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(hidden)


@contextlib.contextmanager
def _rejections_in_one_line() -> Iterator[None]:
    """Raise SlurmRejected, a message of one line, where submitit raises what sbatch printed."""
    from submitit.core.utils import FailedJobError

    try:
        yield
    except FailedJobError as error:
        lines = [line.removeprefix("sbatch: error: ").strip() for line in str(error).splitlines()]
        raise client.SlurmRejected("; ".join(line for line in lines if line)) from error


def submit_array(run: RunFolder, submission: Submission, parameters: Mapping[str, Option]) -> str:
    """Submit one array job; returns its id. `parameters` are submitit's. Raises client.SlurmRejected."""
    tasks = [[(run, shards)] for shards in submission.tasks]
    return _submit_tasks(run, submission.name, tasks, parameters, submission.workers_per_task, None)


def submit_shared_array(
    logged_in: RunFolder,
    name: str,
    tasks: Sequence[Sequence[tuple[RunFolder, list[int]]]],
    parameters: Mapping[str, Option],
    workers_per_task: int = 1,
) -> str:
    """Submit one array job whose tasks have shards of several runs; returns its id. Raises client.SlurmRejected."""
    return _submit_tasks(logged_in, name, tasks, parameters, workers_per_task, name)


def _submit_tasks(
    logged_in: RunFolder,
    name: str,
    tasks: Sequence[Sequence[tuple[RunFolder, list[int]]]],
    parameters: Mapping[str, Option],
    workers_per_task: int,
    shared_job: str | None,
) -> str:
    executor = _slurm_executor(logged_in, name, {"array_parallelism": len(tasks), **parameters})
    parts = [[(str(run.path.resolve()), shards) for run, shards in task] for task in tasks]
    names, workers = [shared_job] * len(parts), [workers_per_task] * len(parts)
    with _outside_of_any_job(), _rejections_in_one_line():
        jobs: list[Job] = (
            executor.map_array(run_parts, parts, names)
            if workers_per_task == 1
            else executor.map_array(run_side_by_side, parts, workers, names)
        )
    return jobs[0].job_id.partition("_")[0]


def batch_script(run: RunFolder, submission: Submission, parameters: Mapping[str, Option]) -> str:
    """Return the batch script of a submission, without submitting it."""
    executor = _slurm_executor(run, submission.name, {"array_parallelism": len(submission.tasks), **parameters})
    if len(submission.tasks) > 1:
        executor.parameters["map_count"] = len(submission.tasks)
    script: str = executor._make_submission_file_text(executor._submitit_command_str, "preview")
    return script


def submit_finalizer(run: RunFolder, name: str, jobs: Sequence[str], parameters: Mapping[str, Option]) -> str:
    """Submit the job that grades, loads and reports once `jobs` have ended, whether or not they succeeded.

    Without jobs it starts at once. Returns its id. Raises client.SlurmRejected.
    """
    after_jobs = {**parameters, "dependency": f"afterany:{':'.join(jobs)}"} if jobs else parameters
    return _submit(run, submissions.finalizer_name(name), after_jobs, after.conclude, str(run.path.resolve()))


def submit_call(
    folder: Path, name: str, parameters: Mapping[str, Option], function: Callable[..., None], *arguments: Any
) -> str:
    """Submit one call of a module's function as a job of its own, with a snapshot of the code; returns the job's id.

    `parameters` are submitit's. Raises client.SlurmRejected.
    """
    run = RunFolder(folder)
    archive = (folder / snapshot.take(run)).resolve()
    return _submit(run, name, snapshot.running(archive, python(), parameters), function, *arguments)


def _submit(
    run: RunFolder, name: str, parameters: Mapping[str, Option], function: Callable[..., Any], *arguments: Any
) -> str:
    executor = _slurm_executor(run, name, parameters)
    with _outside_of_any_job(), _rejections_in_one_line():
        return str(executor.submit(function, *arguments).job_id)


def _slurm_executor(run: RunFolder, name: str, parameters: Mapping[str, Any]) -> Any:
    import submitit

    if shutil.which("srun") is None:
        raise client.NoCluster("srun: not found; what submits jobs, such as a night's verdict, needs Slurm's commands")
    options = dict(parameters)
    executor = submitit.SlurmExecutor(folder=str(run.logs_dir.resolve() / "jobs"), python=options.pop("python", None))
    executor.update_parameters(job_name=name, **options)
    return executor
