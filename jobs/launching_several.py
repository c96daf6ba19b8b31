"""Several launches as one: runs that can share engines follow each other, so that each engine is opened once.

Of each run one line is printed. On Slurm runs of one pair of models share array jobs (jobs.submission.together). In
this process (`debug`) a run is graded and printed as soon as its samples have ended, while no other run is measured.
Workers in processes of their own (`local`) go from run to run by themselves, and the runs are graded after the last.
What the target is to read of runs without one, it reads after all of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from shlex import quote

from rich.console import Console

from harness.cli.program import typed
from harness.settings.launch_settings import Cluster
from jobs import launching
from jobs.after import warehouse
from jobs.after.target_logprobs import check, num_unscored, score_each
from jobs.launching import LaunchFailed, OneLineEach
from jobs.preparation import NO_TARGET, PreparedLaunch
from jobs.run import codes
from jobs.run.endings import by_shard, read_endings
from jobs.run.folder import RunFolder
from jobs.run.spec import RunSpec
from jobs.slurm.client import SlurmError
from jobs.submission import dispatch
from jobs.submission.in_process import InProcessJob
from jobs.submission.submit import Job, in_process_log, log_of, submit_parts_here
from jobs.submission.together import Request, dispatch_together
from jobs.watch.failures import explained
from jobs.watch.follow import follow_several
from jobs.work.in_process_worker import InProcessWorker
from jobs.work.run_part import RunPart


def start_several(launches: Sequence[PreparedLaunch], console: Console) -> list[RunFolder]:
    """Run what is left of several launches, here or on Slurm, and return their run folders in the order given.

    A run that fails here does not keep the others from being run; LaunchFailed is
    raised after the last. Otherwise it raises what `launching.start` raises, costs.OverBudget before any run begins.
    """
    launching.check(launches)
    return carry_out_several(launches, console)


def carry_out_several(launches: Sequence[PreparedLaunch], console: Console) -> list[RunFolder]:
    """Do what `start_several` does, for launches that were checked already."""
    distinct = list({prepared.run.path: prepared for prepared in launches}.values())
    on: dict[Cluster, list[PreparedLaunch]] = {}
    for prepared in distinct:
        on.setdefault(prepared.cluster, []).append(prepared)
    lines = OneLineEach((prepared.run, prepared.plan.spec) for prepared in distinct)
    lines.print_notices(distinct, console)
    failures = _on_slurm(on.get("slurm", []), console, lines)
    failures += _in_processes(on.get("local", []), console, lines)
    failures += _in_this_process(on.get("debug", []), console, lines)
    if failures:
        raise LaunchFailed("; ".join(map(str, failures)))
    _score_targets(distinct, console)
    return [prepared.run for prepared in launches]


def _on_slurm(launches: Sequence[PreparedLaunch], console: Console, lines: OneLineEach) -> list[LaunchFailed]:
    """Submit launches: runs of one pair of models share jobs. A run that is finished is graded and printed here.

    Returns the errors of those that could not be.
    """
    unfinished, failures = [], []
    for prepared in launches:
        details = lines.details(prepared.run, console)
        launching.print_plan(prepared, details)
        launching.create(prepared)
        if launching.print_what_is_left(prepared, details):
            unfinished.append(prepared)
        else:
            with contextlib.suppress(SlurmError):  # the run is complete, whatever the queue holds
                dispatch.clear(prepared.run)
            failures += _concluded(prepared, console, lines)
    requests = [
        Request(p.run, p.sbatch, p.launch.shards_per_task, p.launch.workers_per_task, p.launch.accept_code_change)
        for p in unfinished
    ]
    for prepared, dispatched in zip(unfinished, dispatch_together(requests), strict=True):
        console.print(f"[bold]{prepared.run.path.name}[/bold]", soft_wrap=True)
        launching.print_dispatched(dispatched, prepared.run, console, says_how_to_watch=False)
    if unfinished:
        folders = " ".join(quote(str(prepared.run.path)) for prepared in unfinished)
        console.print(f"  {typed('jobs status')} {folders} --follow", soft_wrap=True)
    return failures


def _concluded(prepared: PreparedLaunch, console: Console, lines: OneLineEach) -> list[LaunchFailed]:
    """Conclude a run; returns the error where that failed, which keeps no other run from being concluded."""
    run = prepared.run
    try:
        launching.conclude(run, console, is_read_later=prepared.target_of is not None, among=lines.next(run))
    except LaunchFailed as error:
        return [error]
    return []


def _in_this_process(launches: Sequence[PreparedLaunch], console: Console, lines: OneLineEach) -> list[LaunchFailed]:
    """Run launches in this process over engines that stay open; returns the errors of those that failed."""
    if not launches:
        return []
    for prepared in launches:
        launching.create(prepared)
    unfinished = [(prepared.run, _unfinished_shards(prepared.run)) for prepared in launches]
    with InProcessWorker([RunPart(run.path, shards) for run, shards in unfinished if shards]) as shared:
        in_order = [part.run.path for part in shared.in_order()]
        return _one_after_the_other(
            sorted(launches, key=lambda prepared: _place(in_order, prepared)), shared, console, lines
        )


def _one_after_the_other(
    launches: Sequence[PreparedLaunch], shared: InProcessWorker, console: Console, lines: OneLineEach
) -> list[LaunchFailed]:
    parts = {part.run.path: part for part in shared.in_order()}

    def worker(run: RunFolder, shards: Sequence[int]) -> list[Job]:
        return [InProcessJob(shared.run, (parts[run.path],), in_process_log(run))]

    failures = []
    for prepared in launches:
        try:
            launching.carry_out(prepared, console, worker, lines.next(prepared.run))
        except LaunchFailed as error:
            failures.append(error)
            if prepared is not launches[-1]:
                console.print(f"{error} The other runs go on.", style="bold red", markup=False, soft_wrap=True)
    return failures


def _in_processes(launches: Sequence[PreparedLaunch], console: Console, lines: OneLineEach) -> list[LaunchFailed]:
    """Run launches in worker processes that go from run to run; returns the errors of those that failed.

    Each worker has one shard of every run, as many workers as the largest number of shards.
    """
    for prepared in launches:
        details = lines.details(prepared.run, console)
        launching.print_plan(prepared, details)
        launching.create(prepared)
        launching.print_what_is_left(prepared, details)
    unfinished = {prepared.run.path: _unfinished_shards(prepared.run) for prepared in launches}
    begun = [prepared.run for prepared in launches if unfinished[prepared.run.path]]
    for prepared in launches:
        if prepared.run in begun:
            codes.claim(prepared.run, accept=prepared.launch.accept_code_change)
    reasons: set[str] = set()
    if begun:
        most = max(len(shards) for shards in unfinished.values())
        workers = [
            [(run, [unfinished[run.path][number]]) for run in begun if number < len(unfinished[run.path])]
            for number in range(most)
        ]
        jobs = submit_parts_here(begun[0], workers)
        follow_several(begun, jobs, console)
        failed = [(job, error) for job in jobs if (error := job.exception()) is not None]
        reasons = {explained(begun[0], error, log_of(begun[0], job)) for job, error in failed}
    failures: list[LaunchFailed] = []
    for prepared in launches:
        if _unfinished_shards(prepared.run):
            failures.append(LaunchFailed(_unfinished_message(prepared.run, begun[0], sorted(reasons))))
        else:
            failures += _concluded(prepared, console, lines)
    return failures


def _unfinished_message(run: RunFolder, logged_in: RunFolder, reasons: Sequence[str]) -> str:
    """Say why a run is not finished: what its workers said of it, otherwise all that they said."""
    own = [reason for reason in reasons if run.path.name in reason] or reasons
    return (
        f"{run.path.name} is not finished: {'; '.join(own) or 'its workers ended early'}. "
        f"All logs: {logged_in.logs_dir}. Nothing finished is lost: run the same command again to resume."
    )


def _unfinished_shards(run: RunFolder) -> list[int]:
    return by_shard(run, read_endings(run)).unfinished_shards


def _place(in_order: Sequence[Path], prepared: PreparedLaunch) -> int:
    """Return the place of a run in the order of work; what is finished comes first."""
    return in_order.index(prepared.run.path) if prepared.run.path in in_order else -1


def assigned_targets(launches: Sequence[PreparedLaunch]) -> list[PreparedLaunch]:
    """Let the target of the other launches read the chains of those that ask for it and have none.

    Nothing changes on Slurm, where this process has no GPU, and where the others have several targets or none: their
    notice says what to do.
    """
    targets = {other.plan.spec.target.fingerprint: other.run for other in launches if other.plan.spec.target}
    if len(targets) != 1:
        return list(launches)
    [target_of] = targets.values()
    return [
        replace(
            prepared,
            launch=prepared.launch.changed(target_logprobs=False),  # its workers have no target
            plan=replace(prepared.plan, notices=[line for line in prepared.plan.notices if line != NO_TARGET]),
            target_of=target_of,
        )
        if prepared.launch.target_logprobs and prepared.plan.spec.target is None and prepared.cluster != "slurm"
        else prepared
        for prepared in launches
    ]


def _score_targets(launches: Sequence[PreparedLaunch], console: Console) -> None:
    """Score what finished launches ask for and no worker has scored, over as few starts of engines as possible.

    Where one cannot be scored the others are, and are loaded. Raises LaunchFailed, which names those that were not,
    each with its reason, and warehouse.WarehouseFailed.
    """
    reasons: dict[str, str] = {}
    asked: list[tuple[RunFolder, RunSpec]] = []
    for prepared in launches:
        if not _is_asked(prepared):
            continue
        try:
            if num_unscored(prepared.run):
                asked += [(prepared.run, spec) for spec in check([prepared.run], prepared.target_of)]
        except ValueError as error:
            reasons[prepared.run.path.name] = str(error)
    runs, specs = [run for run, _ in asked], [spec for _, spec in asked]
    for run, one in zip(runs, score_each(runs, specs, partial(console.print, soft_wrap=True)), strict=True):
        if isinstance(one, Exception):
            reasons[run.path.name] = str(one)
        if any(run.target_logprobs_dir.glob("*.parquet")):  # also what was scored before the target died
            warehouse.load(run)
    if reasons:
        told = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
        raise LaunchFailed(
            f"the target could not read finished chains of {told}. Nothing finished is lost: run the same command "
            "again to resume."
        )


def _is_asked(prepared: PreparedLaunch) -> bool:
    return bool(
        prepared.cluster != "slurm"
        and ((prepared.launch.target_logprobs and prepared.plan.spec.target) or prepared.target_of)
    )
