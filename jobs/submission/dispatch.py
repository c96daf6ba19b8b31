"""Decide from files and one query of Slurm's queue which shards need a job, and submit them.

A shard that is neither finished nor known to Slurm is submitted. So the same command may be run any number of times,
even by two people at once, and whatever was killed is submitted again.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Any, TypeVar

from harness.cli.program import typed
from harness.plural import counted
from harness.sizing.cards import Option, num_tasks
from jobs import after
from jobs.run import codes, submissions
from jobs.run.endings import by_shard, read_endings
from jobs.run.folder import RunFolder
from jobs.run.spec import RunSpec, check_prompts
from jobs.run.submissions import Submission
from jobs.slurm import client, profiles
from jobs.slurm.python_command import PythonCommand
from jobs.submission import snapshot, submit
from jobs.watch.answers import how_to_conclude, in_queue

_ENDING = "COMPLETING"
_ENDING_SECONDS = 120.0
"""How long to wait for tasks that are ending: longer than Slurm's usual KillWait of 30 s and an epilog."""
_ENDING_POLL_SECONDS = 3.0

_T = TypeVar("_T")


@dataclass(frozen=True)
class Dispatched:
    """What a dispatch did."""

    submitted: list[str]
    """Ids of the array jobs submitted now."""
    tasks: int
    """Number of tasks in them."""
    num_active_shards: int
    """Number of shards that were already running or queued."""
    warning: str | None = None
    """Why Slurm rejected the job that grades, loads and reports, and what to run instead; None where it did not."""
    refusal: str | None = None
    """Why Slurm rejected further array jobs after the submitted ones, and what to run later; None where it did not."""
    shared_with: tuple[str, ...] = ()
    """Names of the other runs that the array jobs hold shards of."""

    @property
    def finalizer_notice(self) -> str:
        """The end of a line about the submission: whom it is shared with, and that a job grades and loads after it."""
        shared = f", shared with {', '.join(self.shared_with)}" if self.shared_with else ""
        return shared + ("" if self.warning else "; a job after them grades, loads and reports")


def dispatch(
    run: RunFolder,
    options: Mapping[str, Option],
    shards_per_task: int = 1,
    workers_per_task: int = 1,
    *,
    accept_code_change: bool = False,
) -> Dispatched:
    """Submit every shard that needs it as array jobs, and a job that grades, loads and reports after them.

    `options` are sbatch's options; those for several tasks (`ntasks-per-node`) multiply the workers. `shards_per_task`
    are those of one worker; `accept_code_change`: whether to go on with a run that other code began. Raises ValueError
    where an option is wrong, OtherPrompts where the run was begun with other prompts, CodeChanged where it was begun by
    other code, SlurmRejected where sbatch rejects the arrays, and SlurmError where Slurm does not answer.
    """
    parameters = profiles.submitit_parameters(options)
    with run.submission_lock():
        todo, num_active = to_submit(run)
        if not todo:
            if num_active and not accept_code_change:
                codes.check_queued(run)
            return Dispatched([], 0, num_active)
        check_prompts(run.spec())
        codes.claim(run, accept=accept_code_change, is_queued=bool(num_active))
        code = snapshot.take(run)
        jobs: list[str] = []
        num_taken, refusal = 0, None
        tasks = list(portions(todo, shards_of_task(options, shards_per_task, workers_per_task)))
        for number, array in enumerate(portions(tasks, client.max_array_size() - 1), len(submissions.read(run))):
            name = submissions.job_name(run, number)
            submission = Submission(
                *(number, name, list(array), time.time(), options, shards_per_task, code, workers_per_task)
            )
            submissions.record(run, submission)
            try:
                jobs.append(submit.submit_array(run, submission, with_code(run, code, parameters)))
            except client.SlurmError as error:  # such as a limit on the jobs of an account
                if not jobs:
                    raise
                refusal = refused(num_taken, len(tasks), error, run)
                break
            num_taken += len(array)
        warning = submit_finalizer(run, name, jobs, code, options)
        return Dispatched(jobs, num_taken, num_active, warning, refusal)


def refused(num_taken: int, num_tasks: int, error: client.SlurmError, run: RunFolder) -> str:
    """Return the warning about array jobs that Slurm rejected after it had taken others."""
    return (
        f"WARNING: Slurm took {num_taken} of {num_tasks} tasks and rejected the others: {error}. "
        f"To submit them later:  {typed('jobs resume')} {quote(str(run.path))}"
    )


def to_submit(run: RunFolder) -> tuple[list[int], int]:
    """Return the shards of a run that need a job, and how many are running or queued.

    Tasks that are ending (COMPLETING), such as those just canceled, are waited for: they will not finish their shards,
    and hold the locks until they have ended. The run's submission lock must be held. Raises SlurmError, also where they
    do not end.
    """
    before = submissions.current(run)
    deadline, has_said = time.monotonic() + _ENDING_SECONDS, False
    while True:
        queued = _queued(run, before)
        # Read after the queue: a task that ends in between is then seen as ended, not as missing.
        unfinished = by_shard(run, read_endings(run)).unfinished_shards
        ending = [task for task in queued if task.state == _ENDING]
        if submissions.active_shards(before, ending).isdisjoint(unfinished):
            active = submissions.active_shards(before, queued)
            return [shard for shard in unfinished if shard not in active], len(active)
        if time.monotonic() >= deadline:
            raise client.SlurmError(
                f"{counted(len(ending), 'task')} of it, such as {ending[0].job_id} on {ending[0].node}, did not end "
                f"({_ENDING}) within {_ENDING_SECONDS:g} s; try again later"
            )
        if not has_said:
            print(f"Waiting for {counted(len(ending), 'task')} to end ({_ENDING}).", file=sys.stderr, flush=True)
        has_said = True
        time.sleep(_ENDING_POLL_SECONDS)


def submit_finalizer(
    run: RunFolder, name: str, jobs: Sequence[str], code: str, options: Mapping[str, Option]
) -> str | None:
    """Submit the job that grades, loads and reports after a submission with these options of sbatch.

    Returns a warning where Slurm rejects it.
    """
    try:
        submit.submit_finalizer(run, name, jobs, with_code(run, code, profiles.finalizer_parameters(options)))
    except client.SlurmRejected as rejection:  # such as a partition that takes no job without a GPU
        return (
            f"WARNING: Slurm rejected the job that grades, loads and reports: {rejection}. "
            f"When the tasks have ended, run:  {typed('jobs finalize')} {quote(str(run.path))}"
        )
    return None


def conclude_again(run: RunFolder) -> str:
    """Submit the last job of a finished run that lacks grades or results; returns one line on it.

    The line is empty where nothing is missing or samples are not finished, and nothing is submitted twice. Raises
    SlurmError where Slurm does not answer.
    """
    with run.submission_lock():
        missing = after.missing(run, read_endings(run))
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


def clear(run: RunFolder) -> None:
    """Cancel the jobs of a finished run that Slurm holds in its queue and will never start. Raises SlurmError."""
    with run.submission_lock():
        _queued(run, submissions.current(run))


def _queued(run: RunFolder, before: Sequence[Submission]) -> list[client.Task]:
    """Return the tasks of these submissions that are running or queued, and cancel those that Slurm holds for good.

    A canceled task of an array is then submitted again, and a job that depends on it no longer waits forever.
    """
    queued = client.queue(_names(run, before))
    client.cancel_tasks([task for task in queued if task.is_held])
    return [task for task in queued if not task.is_held]


def _names(run: RunFolder, before: Sequence[Submission]) -> list[str]:
    """Return the names of the jobs of these submissions, those that grade included."""
    names = [submission.name for submission in before]
    return [*names, *(submissions.finalizer_of(run, submission) for submission in before)]


def preview(
    run: RunFolder,
    spec: RunSpec,
    shards: int,
    options: Mapping[str, Option],
    shards_per_task: int = 1,
    workers_per_task: int = 1,
) -> str:
    """Return the batch script of a first submission, for --dry-run; nothing is written."""
    parameters = profiles.submitit_parameters(options)
    tasks = portions(list(range(shards)), shards_of_task(options, shards_per_task, workers_per_task))
    name = submissions.job_name(run, 0)
    submission = Submission(0, name, tasks, 0.0, dict(options), shards_per_task, None, workers_per_task)
    return submit.batch_script(run, submission, with_code(run, "code-….zip", parameters, spec))


def shards_of_task(options: Mapping[str, Option], shards_per_task: int, workers_per_task: int) -> int:
    """Return the shards of a task, for all workers in it."""
    return shards_per_task * workers_per_task * num_tasks(options)


def portions(items: Sequence[_T], size: int) -> list[list[_T]]:
    """Divide items into lists of this size; the last one may be shorter."""
    return [list(items[i : i + size]) for i in range(0, len(items), size)]


def with_code(run: RunFolder, code: str, parameters: Mapping[str, Any], spec: RunSpec | None = None) -> dict[str, Any]:
    """Add to submitit's parameters that a job runs the code in this archive of the run folder.

    `spec` is the run's, where it is not in the run folder yet.
    """
    own = parameters.get("python")
    if isinstance(own, PythonCommand):
        parameters = {**parameters, "python": own.showing(_model_folders(spec or run.spec()))}
    return snapshot.running((run.path / code).resolve(), submit.python(), parameters)


def _model_folders(spec: RunSpec) -> list[str]:
    """Return the folders of a run's weights; a model of the hub has none."""
    weights = (spec.draft, spec.target, spec.reward, spec.speculator, spec.selection)
    return [model.path for model in weights if model is not None]
