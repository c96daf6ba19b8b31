"""Decide from files and queries of Slurm's queue which shards of runs need a job, and submit them.

A shard that is neither finished nor known to Slurm is submitted. So the same command may be run any number of times,
even by two people at once, and whatever was killed is submitted again.

Runs of one pair of models share array jobs, so that a node loads their models once. A task has some shards of each run
and works on one run after the other. Every run records the jobs as its own, so that status, resume and a second launch
know its shards; what is special about them is in jobs.run.submissions.
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


@dataclass(frozen=True)
class Request:
    """A run to be submitted, and how."""

    run: RunFolder
    options: Mapping[str, Option]
    """The options of sbatch."""
    shards_per_task: int = 1
    workers_per_task: int = 1
    accept_code_change: bool = False
    """Whether to go on with a run that other code began."""

    @property
    def shards_of_task(self) -> int:
        """Shards of one task, for all workers in it."""
        return self.shards_per_task * self.workers_per_task * num_tasks(self.options)


def dispatch_together(requests: Sequence[Request]) -> list[Dispatched]:
    """Submit every shard of these runs that needs it as array jobs, and a job after them that concludes each run.

    Returns what was done for each run. Runs that were submitted before an error stay so, and the same call submits the
    rest. Raises ValueError where an option is wrong, RunDamaged where a plan cannot be used, CodeChanged where a run
    was begun with other prompts or by other code, SlurmRejected where sbatch rejects the
    arrays, and SlurmError where Slurm does not answer.
    """
    for request in requests:
        profiles.submitit_parameters(request.options)
        request.run.check()
    done: dict[int, Dispatched] = {}
    for group in _groups(requests):
        done |= dict(zip(group, _dispatch_group([requests[number] for number in group]), strict=True))
    return [done[number] for number in range(len(requests))]


def _groups(requests: Sequence[Request]) -> list[list[int]]:
    """Return the numbers of the requests whose runs share jobs, in the order of the first of each group."""
    groups: dict[str, list[int]] = {}
    for number, request in enumerate(requests):
        groups.setdefault(_in_common(request) if len(requests) > 1 else "", []).append(number)
    return list(groups.values())


def _in_common(request: Request) -> str:
    """Return what runs in one job must have in common: the resources, and what decides which engines are started.

    Only a node knows which engines can be shared (harness.engines.pool); here it is enough that they are likely to
    be. The number of drafts and the context are left out: they leave at least the target as it is.
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
    """Submit runs whose tasks are shared."""
    with contextlib.ExitStack() as locks:
        # In one order everywhere: two launches of overlapping suites would otherwise wait for each other for ever.
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
    """Submit these shards of each run in arrays, and a finalizer for each run. All locks are held."""
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
        except client.SlurmError as error:  # such as a limit on the jobs of an account
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
            f"WARNING: Slurm took {taken} of {len(of_run)} tasks and rejected the others: {rejection}. "
            f"To submit them later:  {typed('jobs resume')} {quote(str(run.path))}"
        )
        is_refused = rejection is not None and taken < len(of_run)
        outcomes.append(Dispatched(jobs, taken, 0, warning, refusal if is_refused else None, names))
    return outcomes


def _record(requests: Sequence[Request], archives: Sequence[str], array: Sequence[Sequence[list[int]]]) -> Submission:
    """Record an array in every run, before it is submitted; returns what is recorded in the first."""
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


def _submit_finalizer(
    run: RunFolder, name: str, jobs: Sequence[str], code: str, options: Mapping[str, Option]
) -> str | None:
    """Submit the job that grades, loads and reports after a submission with these options of sbatch.

    Returns a warning where Slurm rejects it.
    """
    try:
        parameters = with_code(run, code, profiles.finalizer_parameters(options))
        submissions.record_job(run, submit.submit_finalizer(run, name, jobs, parameters))
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
    from jobs.watch.status import how_to_conclude, in_queue  # not in a launch

    with run.lock("submission"):
        missing = grading.missing(run, read_endings(run))
        if not missing:
            return ""
        last = submissions.read(run)[-1]
        queued = client.queue([submissions.finalizer_of(run, one) for one in submissions.of_this_folder(run)])
        if at_work := [task for task in queued if task.is_active]:
            return in_queue(missing, at_work[-1])
        client.cancel_tasks(queued)  # held for good
        trust.require(run, trust.options(last.options))
        name, parameters = submissions.job_name(run, last.number), profiles.finalizer_parameters(last.options)
        try:
            job = submit.submit_finalizer(run, name, [], with_code(run, code_archive.take(run), parameters))
        except client.SlurmRejected as rejection:
            return how_to_conclude(run, missing, f"Slurm rejected the job that does it: {rejection}")
        submissions.record_job(run, job)
    return f"{missing}: submitted job {job}, which grades, loads and reports"


def clear(run: RunFolder) -> None:
    """Cancel the jobs of a finished run that Slurm holds in its queue and will never start. Raises SlurmError."""
    with run.lock("submission"):
        _queued(run, submissions.current(run))


def _queued(run: RunFolder, before: Sequence[Submission]) -> list[client.Task]:
    """Return the tasks of these submissions that are running or queued, and cancel those that Slurm holds for good.

    A canceled task of an array is then submitted again, and a job that depends on it no longer waits forever.
    """
    names = [submission.name for submission in before]
    queued = client.queue([*names, *(submissions.finalizer_of(run, submission) for submission in before)])
    client.cancel_tasks([task for task in queued if task.is_held])
    return [task for task in queued if not task.is_held]


def preview(request: Request, spec: RunSpec, shards: int) -> str:
    """Return the batch script of a first submission, for --dry-run; nothing is written."""
    run, parameters = request.run, profiles.submitit_parameters(request.options)
    tasks = _portions(list(range(shards)), request.shards_of_task)
    per_task = request.shards_per_task, None, request.workers_per_task
    submission = Submission(0, submissions.job_name(run, 0), tasks, 0.0, dict(request.options), *per_task)
    return submit.script_of(run, submission, with_code(run, "code-….zip", parameters, spec))


def _portions(items: Sequence[_T], size: int) -> list[list[_T]]:
    """Divide items into lists of this size; the last one may be shorter."""
    return [list(items[i : i + size]) for i in range(0, len(items), size)]


def with_code(run: RunFolder, code: str, parameters: Mapping[str, Any], spec: RunSpec | None = None) -> dict[str, Any]:
    """Add to submitit's parameters that a job runs the code in this archive of the run folder.

    `spec` is the run's, where it is not in the run folder yet.
    """
    spec = spec or run.spec()
    weights = (spec.draft, spec.target, spec.reward, spec.speculator, spec.selection)
    names = [model.path for model in weights if model is not None]
    return batch_script.running((run.path / code).resolve(), parameters, names)
