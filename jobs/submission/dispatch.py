"""Find the shards of runs that need a job, from files and Slurm's queue, and submit them.

A shard that is neither finished nor known to Slurm is submitted. The same command can therefore be repeated, even by
two users at once, and resubmits killed jobs.

Runs with the same models share array jobs, so a node loads their models once. A task has some shards of each run and
works on one run after the other. Each run records the jobs as its own, so status, resume and repeated launches know its
shards; jobs.run.submissions describes shared jobs.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from shlex import quote
from typing import Any, TypeVar

from harness.cli.messages import counted
from harness.cli.program import typed
from harness.methods import build
from harness.sizing.memory import Option, num_tasks
from jobs.finished import grading
from jobs.run import codes, submissions, trust
from jobs.run.endings import by_shard, read_endings
from jobs.run.folder import RunFolder
from jobs.run.spec import RunSpec
from jobs.run.submissions import Submission
from jobs.slurm import client, profiles
from jobs.submission import batch_script, code_archive, submit

_ENDING = "COMPLETING"
_ENDING_SECONDS = 120.0
"""How long to wait for tasks that are ending: longer than Slurm's usual KillWait of 30 s plus an epilog."""
_ENDING_POLL_SECONDS = 3.0

_T = TypeVar("_T")


@dataclass(frozen=True)
class Dispatched:
    """The result of a dispatch."""

    submitted: list[str]
    """Ids of the array jobs submitted now."""
    tasks: int
    """Number of tasks in the submitted jobs."""
    num_active_shards: int
    """Number of shards that were already running or queued."""
    warning: str | None = None
    """Why Slurm rejected the job that grades, loads and reports, and the command to run instead; None if accepted."""
    refusal: str | None = None
    """Why Slurm rejected further array jobs, and the command to run later; None if all were accepted."""
    shared_with: tuple[str, ...] = ()
    """Names of the other runs in the array jobs."""


@dataclass(frozen=True)
class Request:
    """A run to submit, with its settings."""

    run: RunFolder
    options: Mapping[str, Option]
    """The options of sbatch."""
    shards_per_task: int = 1
    workers_per_task: int = 1
    accept_code_change: bool = False
    """Whether to resume a run that was started with other code."""

    @property
    def shards_of_task(self) -> int:
        """Number of shards per task, for all its workers together."""
        return self.shards_per_task * self.workers_per_task * num_tasks(self.options)


def dispatch_together(requests: Sequence[Request]) -> list[Dispatched]:
    """Submit the shards that need a job as array jobs, with a dependent job that grades and loads each run.

    Returns the result for each run. After an error, runs already submitted stay submitted, and the same call submits
    the rest. Raises ValueError for an invalid option, RunDamaged for an unusable plan, CodeChanged for a run with other
    prompts or code, SlurmRejected if sbatch rejects the arrays, and SlurmError if Slurm does not respond.
    """
    for request in requests:
        profiles.submitit_parameters(request.options)
        request.run.check()
    groups: dict[str, list[int]] = {}
    for number, request in enumerate(requests):
        groups.setdefault(_in_common(request) if len(requests) > 1 else "", []).append(number)
    done: dict[int, Dispatched] = {}
    for group in groups.values():
        done |= dict(zip(group, _dispatch_group([requests[number] for number in group]), strict=True))
    return [done[number] for number in range(len(requests))]


def _in_common(request: Request) -> str:
    """Return a key for what the runs of a job must have in common: resources and the settings that determine engines.

    Only a node can tell which engines are shared (harness.engines.pool); here it is enough that sharing is likely. The
    number of drafts and the context are left out, because at least the target stays the same.
    """
    spec = request.run.spec()
    roles = build(spec.method, dict(spec.params)).roles
    used = [(model.path, model.revision) if (model := spec.models[role]) else None for role in sorted(roles)]
    adapter = spec.selection and spec.selection.fingerprint
    proposing = spec.speculator and (spec.speculator.path, spec.speculator.revision)
    engine = replace(spec.engine, max_context=None)
    settings = [spec.settings[role] for role in sorted(roles)]
    starts = [(own.dtype, own.tensor_parallel, own.memory, own.gpus, own.engine) for own in settings]
    resources = request.run.path.resolve().parent, sorted(request.options.items()), request.workers_per_task
    return repr((resources, sorted(roles), used, adapter, proposing, engine, starts, spec.concurrency))


def _dispatch_group(requests: Sequence[Request]) -> list[Dispatched]:
    with contextlib.ExitStack() as locks:
        # Always lock in the same order, so launches of overlapping suites cannot deadlock.
        for run in sorted((request.run for request in requests), key=lambda run: str(run.path.resolve())):
            locks.enter_context(run.lock("submission"))
        found = [to_submit(request.run) for request in requests]
        for request, (todo, num_active) in zip(requests, found, strict=True):
            if todo:
                trust.require(request.run, trust.options(request.options))
                codes.claim(request.run, accept=request.accept_code_change, is_queued=bool(num_active))
            elif num_active and not request.accept_code_change:
                codes.check_queued(request.run)
        waiting = [(request, todo) for request, (todo, _) in zip(requests, found, strict=True) if todo]
        submitted = iter(_submit([one for one, _ in waiting], [todo for _, todo in waiting]) if waiting else [])
        return [
            replace(next(submitted) if todo else Dispatched([], 0, 0), num_active_shards=num_active)
            for todo, num_active in found
        ]


def _submit(requests: Sequence[Request], shards: Sequence[Sequence[int]]) -> list[Dispatched]:
    """Submit these shards of each run in arrays, and a finalizer for each run. The caller holds all locks."""
    runs, first = [request.run for request in requests], requests[0]
    archives = [code_archive.take(run) for run in runs]
    parameters = with_code(runs[0], archives[0], profiles.submitit_parameters(first.options))
    of_runs = [_portions(todo, request.shards_of_task) for request, todo in zip(requests, shards, strict=True)]
    tasks = [list(task) for task in itertools.zip_longest(*of_runs, fillvalue=[])]
    jobs: list[str] = []
    num_taken, rejection = 0, None
    for array in _portions(tasks, client.max_array_size() - 1):
        recorded = _record(requests, archives, array)
        try:
            jobs.append(submit.submit_array(runs[0], recorded, parameters))
            for run in runs:
                submissions.record_job(run, jobs[-1])
        except client.SlurmError as error:  # e.g. a job limit of the account
            if not jobs:
                raise
            rejection = error
            break
        num_taken += len(array)
    outcomes = []
    for run, code, of_run in zip(runs, archives, of_runs, strict=True):
        last = submissions.job_name(run, len(submissions.read(run)) - 1)
        warning = _submit_finalizer(run, last, jobs, code, first.options)
        names = tuple(other.path.name for other in runs if other != run)
        taken = min(num_taken, len(of_run))
        refusal = (
            f"WARNING: Slurm accepted {taken} of {len(of_run)} tasks and rejected the others: {rejection}. "
            f"To submit them later:  {typed('jobs resume')} {quote(str(run.path))}"
        )
        is_refused = rejection is not None and taken < len(of_run)
        outcomes.append(Dispatched(jobs, taken, 0, warning, refusal if is_refused else None, names))
    return outcomes


def _record(requests: Sequence[Request], archives: Sequence[str], array: Sequence[Sequence[list[int]]]) -> Submission:
    """Record an array in every run before it is submitted; return the record of the first run."""
    first, runs = requests[0].run, [request.run.path.name for request in requests] if len(requests) > 1 else []
    name = submissions.job_name(first, len(submissions.read(first))) + (f"+{len(runs) - 1}" if runs else "")
    recorded = []
    for number, (request, code) in enumerate(zip(requests, archives, strict=True)):
        place, of_run = len(submissions.read(request.run)), [task[number] for task in array]
        options, per_task = dict(request.options), (request.shards_per_task, code, request.workers_per_task)
        recorded.append(Submission(place, name, of_run, time.time(), options, *per_task, runs))
        submissions.record(request.run, recorded[-1])
    return recorded[0]


def to_submit(run: RunFolder) -> tuple[list[int], int]:
    """Return the shards of a run that need a job, and the number of shards running or queued.

    Waits for tasks that are ending (COMPLETING), e.g. after a cancellation: they will not finish their shards, but hold
    the locks until they end. The caller holds the run's submission lock. Raises SlurmError if a Slurm command fails or
    tasks do not end in time.
    """
    before = submissions.current(run)
    deadline, has_said = time.monotonic() + _ENDING_SECONDS, False
    while True:
        queued = _queued(run, before)
        # Read after the queue, so a task that ends in between counts as ended, not as missing.
        unfinished = by_shard(run, read_endings(run)).unfinished_shards
        ending = [task for task in queued if task.state == _ENDING]
        if submissions.active_shards(before, ending).isdisjoint(unfinished):
            active = submissions.active_shards(before, queued)
            return [shard for shard in unfinished if shard not in active], len(active)
        if time.monotonic() >= deadline:
            raise client.SlurmError(
                f"{counted(len(ending), 'task')}, for example {ending[0].job_id} on {ending[0].node}, did not exit "
                f"({_ENDING}) within {_ENDING_SECONDS:g} s; try again later"
            )
        if not has_said:
            print(f"Waiting for {counted(len(ending), 'task')} to end ({_ENDING}).", file=sys.stderr, flush=True)
        has_said = True
        time.sleep(_ENDING_POLL_SECONDS)


def _submit_finalizer(
    run: RunFolder, name: str, jobs: Sequence[str], code: str, options: Mapping[str, Option]
) -> str | None:
    """Submit the job that grades, loads and reports once `jobs` have ended; return a warning if Slurm rejects it.

    `options`: the sbatch options of those jobs.
    """
    try:
        parameters = with_code(run, code, profiles.finalizer_parameters(options))
        submissions.record_job(run, submit.submit_finalizer(run, name, jobs, parameters))
    except client.SlurmRejected as rejection:  # e.g. a partition that requires GPUs
        return (
            f"WARNING: Slurm rejected the job that grades, loads and reports: {rejection}. "
            f"When the tasks have ended, run:  {typed('jobs finalize')} {quote(str(run.path))}"
        )
    return None


def conclude_again(run: RunFolder) -> str:
    """Submit the job that grades and loads a finished run if grades or results are missing; return a line on the job.

    The line is empty if nothing is missing or samples are unfinished. A running or queued job is not submitted again.
    Raises SlurmError if Slurm does not respond.
    """
    from jobs.watch.status import how_to_conclude, in_queue  # not needed by launches

    with run.lock("submission"):
        missing = grading.missing(run, read_endings(run))
        if not missing:
            return ""
        last = submissions.read(run)[-1]
        queued = client.queue([submissions.finalizer_of(run, one) for one in submissions.of_this_folder(run)])
        if at_work := [task for task in queued if task.is_active]:
            return in_queue(missing, at_work[-1])
        client.cancel_tasks(queued)  # held forever
        trust.require(run, trust.options(last.options))
        name, parameters = submissions.job_name(run, last.number), profiles.finalizer_parameters(last.options)
        try:
            job = submit.submit_finalizer(run, name, [], with_code(run, code_archive.take(run), parameters))
        except client.SlurmRejected as rejection:
            return how_to_conclude(run, missing, f"Slurm rejected the job: {rejection}")
        submissions.record_job(run, job)
    return f"{missing}: submitted job {job}, which grades, loads and reports"


def clear(run: RunFolder) -> None:
    """Cancel jobs of a finished run that Slurm holds in its queue forever. Raises SlurmError."""
    with run.lock("submission"):
        _queued(run, submissions.current(run))


def _queued(run: RunFolder, before: Sequence[Submission]) -> list[client.Task]:
    """Return the running or queued tasks of these submissions, and cancel those that Slurm holds forever.

    Canceled tasks of an array can then be resubmitted, and dependent jobs no longer wait forever.
    """
    names = [submission.name for submission in before]
    queued = client.queue([*names, *(submissions.finalizer_of(run, submission) for submission in before)])
    client.cancel_tasks([task for task in queued if task.is_held])
    return [task for task in queued if not task.is_held]


def preview(request: Request, spec: RunSpec, shards: int) -> str:
    """Return the batch script of a first submission, for --dry-run; writes nothing."""
    run, parameters = request.run, profiles.submitit_parameters(request.options)
    tasks = _portions(list(range(shards)), request.shards_of_task)
    per_task = request.shards_per_task, None, request.workers_per_task
    submission = Submission(0, submissions.job_name(run, 0), tasks, 0.0, dict(request.options), *per_task)
    return submit.script_of(run, submission, with_code(run, "code-….zip", parameters, spec))


def _portions(items: Sequence[_T], size: int) -> list[list[_T]]:
    """Split items into lists of this size; the last one may be shorter."""
    return [list(items[i : i + size]) for i in range(0, len(items), size)]


def with_code(run: RunFolder, code: str, parameters: Mapping[str, Any], spec: RunSpec | None = None) -> dict[str, Any]:
    """Add to submitit's parameters the lines that run the code in an archive of the run folder.

    `spec`: the run's specification if the run folder does not exist yet.
    """
    spec = spec or run.spec()
    weights = (spec.draft, spec.target, spec.reward, spec.speculator, spec.selection)
    names = [model.path for model in weights if model is not None]
    return batch_script.running((run.path / code).resolve(), parameters, names)
