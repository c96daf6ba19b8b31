"""Submit jobs to Slurm; the only module that imports submitit.

A job is a command with a path and short arguments (jobs.submission.task); nothing is pickled.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.sizing.memory import Option
from jobs.run import submissions
from jobs.run.folder import RunFolder
from jobs.run.submissions import Submission
from jobs.slurm import client
from jobs.submission import batch_script, code_archive


def submit_array(run: RunFolder, submission: Submission, parameters: Mapping[str, Option]) -> str:
    """Submit one array job; return its id. `parameters` are submitit's. Raises client.SlurmRejected."""
    return _submit(*_array(run, submission, parameters))


def script_of(run: RunFolder, submission: Submission, parameters: Mapping[str, Option]) -> str:
    """Return the batch script of a submission, without submitting it."""
    executor, command = _array(run, submission, parameters)
    return str(executor._make_submission_file_text(command, "preview"))


def _array(run: RunFolder, submission: Submission, parameters: Mapping[str, Option]) -> tuple[Any, str]:
    tasks = len(submission.tasks)
    executor = _executor(run.path, submission.name, {"array_parallelism": tasks, **parameters})
    if tasks > 1:
        executor.parameters["map_count"] = tasks
    return executor, _command(executor, "work", str(run.path.resolve()), str(submission.number))


def submit_finalizer(run: RunFolder, name: str, jobs: Sequence[str], parameters: Mapping[str, Option]) -> str:
    """Submit the job that grades, loads and reports once `jobs` have ended, successfully or not; return its id.

    Without `jobs` it starts at once. Raises client.SlurmRejected.
    """
    after_jobs = {**parameters, "dependency": f"afterany:{':'.join(jobs)}"} if jobs else parameters
    executor = _executor(run.path, submissions.finalizer_name(name), after_jobs)
    return _submit(executor, _command(executor, "conclude", str(run.path.resolve())))


def submit_alone(
    folder: Path, name: str, parameters: Mapping[str, Option], *task: str, folders: Sequence[str] = ()
) -> str:
    """Submit one job of any kind in jobs.submission.task, with the code archived in `folder`; return its id.

    `parameters` are submitit's, `task` is the kind with its arguments, and `folders` are mounted in a container.
    Raises client.SlurmRejected.
    """
    archive = (folder / code_archive.take(RunFolder(folder))).resolve()
    executor = _executor(folder, name, batch_script.running(archive, parameters, folders))
    return _submit(executor, _command(executor, *task))


def _executor(folder: Path, name: str, parameters: Mapping[str, Any]) -> Any:
    import submitit

    if shutil.which("srun") is None:
        raise client.NoCluster("srun: not found; submitting jobs, e.g. by a verdict job, requires Slurm's commands")
    options = dict(parameters)
    logs = RunFolder(folder).logs_dir.resolve() / "jobs"
    executor = submitit.SlurmExecutor(folder=str(logs), python=options.pop("python", None))
    executor.update_parameters(job_name=name, **options)
    return executor


def _command(executor: Any, *task: str) -> str:
    """Return the command of a job in the syntax of its batch script."""
    return f"{executor.python} -u -m jobs.submission.task {shlex.join(task)}"


def _submit(executor: Any, command: str) -> str:
    from submitit.core.utils import CommandFunction, FailedJobError

    Path(executor.folder).mkdir(parents=True, exist_ok=True)
    try:
        # Other users with write access to the run folder could replace a script there before sbatch reads it.
        with _outside_of_any_job(), tempfile.TemporaryDirectory(prefix="harness-") as private:
            script = Path(private, "submission.sh")
            script.write_text(executor._make_submission_file_text(command, "submission"), encoding="utf-8")
            answer = CommandFunction(["sbatch", str(script)], verbose=False)()
            return str(executor._get_job_id_from_submission_command(answer))
    except FailedJobError as error:
        lines = [line.removeprefix("sbatch: error: ").strip() for line in str(error).splitlines()]
        raise client.SlurmRejected("; ".join(line for line in lines if line)) from error


@contextlib.contextmanager
def _outside_of_any_job() -> Iterator[None]:
    """Hide the variables of the Slurm job that this process may run in.

    sbatch would pass them on, and srun would use them for the new job. This process runs in a job if Slurm's cron
    starts a nightly run, or if a verdict job launches runs again.
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
