"""Submit several runs at once: runs of one pair of models share array jobs, so that a node loads their models once.

A task has some shards of each run and works on one run after the other. Every run records the jobs as its own, so that
status, resume and a second launch know its shards; what is special about them is in jobs.run.submissions.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from harness.methods import build
from harness.sizing.cards import Option
from jobs.run import codes, submissions
from jobs.run.folder import RunFolder
from jobs.run.spec import check_prompts
from jobs.run.submissions import SharedJob, Submission
from jobs.slurm import client, profiles
from jobs.submission import snapshot, submit
from jobs.submission.dispatch import (
    Dispatched,
    dispatch,
    portions,
    refused,
    shards_of_task,
    submit_finalizer,
    to_submit,
    with_code,
)


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
        return shards_of_task(self.options, self.shards_per_task, self.workers_per_task)


def dispatch_together(requests: Sequence[Request]) -> list[Dispatched]:
    """Submit every shard of these runs that needs it; returns what was done for each run.

    Raises what `dispatch` raises; runs that were submitted before stay so, and the same call submits the rest.
    """
    for request in requests:
        profiles.submitit_parameters(request.options)
    done: dict[int, Dispatched] = {}
    for group in _groups(requests):
        members = [requests[number] for number in group]
        outcomes = _dispatch_group(members) if len(members) > 1 else [_dispatch_alone(members[0])]
        done |= dict(zip(group, outcomes, strict=True))
    return [done[number] for number in range(len(requests))]


def _groups(requests: Sequence[Request]) -> list[list[int]]:
    """Return the numbers of the requests whose runs share jobs, in the order of the first of each group."""
    keys: list[object] = []
    groups: list[list[int]] = []
    for number, request in enumerate(requests):
        key = _in_common(request)
        if key in keys:
            groups[keys.index(key)].append(number)
        else:
            keys.append(key)
            groups.append([number])
    return groups


def _in_common(request: Request) -> object:
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
    resources = [request.run.path.resolve().parent, dict(request.options), request.workers_per_task]
    return [resources, sorted(roles), used, adapter, proposing, engine, starts, spec.concurrency]


def _dispatch_alone(request: Request) -> Dispatched:
    per_task = request.shards_per_task, request.workers_per_task
    return dispatch(request.run, request.options, *per_task, accept_code_change=request.accept_code_change)


def _dispatch_group(requests: Sequence[Request]) -> list[Dispatched]:
    """Submit runs whose tasks are shared."""
    with contextlib.ExitStack() as locks:
        # In one order everywhere: two launches of overlapping suites would otherwise wait for each other for ever.
        for run in sorted((request.run for request in requests), key=lambda run: str(run.path.resolve())):
            locks.enter_context(run.submission_lock())
        found = [to_submit(request.run) for request in requests]
        waiting = [number for number, (todo, _) in enumerate(found) if todo]
        if len(waiting) > 1:
            for number, (todo, num_active) in enumerate(found):
                if todo:
                    run, accept = requests[number].run, requests[number].accept_code_change
                    check_prompts(run.spec())
                    codes.claim(run, accept=accept, is_queued=bool(num_active))
                elif num_active and not requests[number].accept_code_change:
                    codes.check_queued(requests[number].run)
            submitted = _submit([requests[number] for number in waiting], [found[number][0] for number in waiting])
            by_number = dict(zip(waiting, submitted, strict=True))
            return [
                replace(by_number[number], num_active_shards=num_active)
                if number in by_number
                else Dispatched([], 0, num_active)
                for number, (_, num_active) in enumerate(found)
            ]
    return [_dispatch_alone(request) for request in requests]


def _submit(requests: Sequence[Request], shards: Sequence[Sequence[int]]) -> list[Dispatched]:
    """Submit these shards of each run in shared arrays, and a finalizer for each run. All locks are held."""
    runs = [request.run for request in requests]
    archives = [snapshot.take(run) for run in runs]
    parameters = profiles.submitit_parameters(requests[0].options)
    of_runs = [portions(todo, request.shards_of_task) for request, todo in zip(requests, shards, strict=True)]
    tasks = [list(task) for task in itertools.zip_longest(*of_runs, fillvalue=[])]
    jobs: list[str] = []
    num_taken, rejection = 0, None
    for array in portions(tasks, client.max_array_size() - 1):
        name = _record(requests, archives, array)
        parts = [[(run, part) for run, part in zip(runs, task, strict=True) if part] for task in array]
        with_its_code = with_code(runs[0], archives[0], parameters)
        workers = requests[0].workers_per_task
        try:
            jobs.append(submit.submit_shared_array(runs[0], name, parts, with_its_code, workers))
        except client.SlurmError as error:
            if not jobs:
                raise
            rejection = error
            break
        num_taken += len(array)
    outcomes = []
    for run, code, of_run in zip(runs, archives, of_runs, strict=True):
        last = submissions.job_name(run, len(submissions.read(run)) - 1)
        warning = submit_finalizer(run, last, jobs, code, requests[0].options)
        names = tuple(other.path.name for other in runs if other != run)
        taken = min(num_taken, len(of_run))
        refusal = refused(taken, len(of_run), rejection, run) if rejection and taken < len(of_run) else None
        outcomes.append(Dispatched(jobs, taken, 0, warning, refusal, names))
    return outcomes


def _record(requests: Sequence[Request], archives: Sequence[str], array: Sequence[Sequence[list[int]]]) -> str:
    """Record an array in every run, before it is submitted; returns its name."""
    first = requests[0].run
    name = f"{submissions.job_name(first, len(submissions.read(first)))}+{len(requests) - 1}"
    names = [request.run.path.name for request in requests]
    for number, (request, code) in enumerate(zip(requests, archives, strict=True)):
        run, of_run = request.run, [task[number] for task in array]
        place = len(submissions.read(run))
        finalizer = submissions.finalizer_name(submissions.job_name(run, place))
        submissions.record_shared(run, SharedJob(name, names, finalizer))
        options, per_task = dict(request.options), (request.shards_per_task, code, request.workers_per_task)
        submission = Submission(place, name, of_run, time.time(), options, *per_task)
        submissions.record(run, submission)
    return name
