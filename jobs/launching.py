"""A launch from its plan to its result: create the run folder, run or submit what is left, grade, load and print.

The orchestration behind `python -m harness.launch`, the suites and the trainings. Library code: it prints to the
console that it is given and raises; only a command exits.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from shlex import quote

from rich.console import Console

from grading import GraderFailed
from harness.checks.storage import ONE_NODE, locks_of_one_node
from harness.cli.program import typed
from harness.plural import counted
from jobs import costs
from jobs.after import warehouse
from jobs.after.conclude import report
from jobs.launch_plan import print_plan
from jobs.preparation import PreparedLaunch, check_engines, prepare, sbatch_options
from jobs.run import codes, served, shards
from jobs.run.endings import by_shard, read_endings
from jobs.run.folder import RunFolder
from jobs.run.shards import expected_tokens
from jobs.run.spec import RunSpec, units
from jobs.run.state import read_state
from jobs.slurm.client import SlurmError
from jobs.submission import dispatch
from jobs.submission.submit import Job, log_of, submit_here
from jobs.timing import folder as timings
from jobs.watch import failures
from jobs.watch.follow import follow

__all__ = [
    "LaunchFailed",
    "OneLineEach",
    "PreparedLaunch",
    "Workers",
    "carry_out",
    "check",
    "conclude",
    "create",
    "prepare",
    "preview",
    "print_dispatched",
    "print_plan",
    "print_what_is_left",
    "sbatch_options",
    "start",
]


class LaunchFailed(RuntimeError):
    """Workers failed, or the result could not be loaded. What is finished is safe, and the same launch resumes.

    The message says what failed and what to do.
    """

    def __init__(self, message: str, worker_traceback: str = "") -> None:
        super().__init__(message)
        self.worker_traceback = worker_traceback
        """That of the first worker that failed, of its first exception; empty where it left none."""


def preview(prepared: PreparedLaunch, console: Console) -> None:
    """Print what a launch would do; on Slurm the batch script too. Writes nothing.

    Raises costs.OverBudget where the launch would be refused.
    """
    print_plan(prepared, console, is_preview=True)
    if prepared.cluster == "slurm":
        launch = prepared.launch
        script = dispatch.preview(
            prepared.run,
            prepared.plan.spec,
            prepared.num_shards,
            prepared.sbatch,
            launch.shards_per_task,
            launch.workers_per_task,
        )
        print(script, file=console.file)  # unchanged: rich would replace emoji codes and tabs
    costs.check([prepared])


class OneLineEach:
    """Several runs, of each of which one line is printed: `[2/8] speccot  96.2 ± 2.8 %`, numbered as they come.

    A run alone is printed in full. So is a probe, whose result is a table.
    """

    def __init__(self, runs: Iterable[tuple[RunFolder, RunSpec]]) -> None:
        several = {run.path: spec for run, spec in runs if not run.probe_dir.is_dir()}
        names = warehouse.short_names({path.name: spec for path, spec in several.items()}) if len(several) > 1 else []
        width = max(map(len, names), default=0)
        self._names = dict(zip(several, (name.ljust(width) for name in names), strict=False))
        self._num_begun = 0

    def next(self, run: RunFolder) -> str | None:
        """Return the beginning of the line of the run that comes next; None where it is printed in full."""
        name = self._names.get(run.path)
        if name is None:
            return None
        self._num_begun += 1
        return f"[{self._num_begun}/{len(self._names)}] {name}"

    def details(self, run: RunFolder, console: Console) -> Console:
        """Return the console for what only a run that is printed in full has."""
        return Console(quiet=True) if run.path in self._names else console

    def print_notices(self, launches: Sequence[PreparedLaunch], console: Console) -> None:
        """Print the warnings of the plans of these runs, each once."""
        own = [prepared for prepared in launches if prepared.run.path in self._names]
        notices: Counter[str] = Counter()
        for prepared in own:
            found = [*prepared.plan.notices, prepared.code_notice]
            notices.update(notice for notice in dict.fromkeys(found) if notice)
        for notice, number in notices.items():
            where = "" if number == len(own) else f"{number} of {counted(len(own), 'run')}: "
            console.print(f"{where}{notice}", style="bold yellow", markup=False, soft_wrap=not console.is_terminal)


Workers = Callable[[RunFolder, Sequence[int]], Sequence[Job]]
"""Starts the workers of these shards of a run."""


def start(prepared: PreparedLaunch, console: Console) -> RunFolder:
    """Run what is left of a launch, here or on Slurm, and return its run folder.

    Here it follows the workers, grades, loads and prints the result; on Slurm it returns once the jobs are submitted.
    Raises costs.OverBudget, and ValueError where the workers would lack the engine, before anything is written;
    LaunchFailed, SlurmRejected, SlurmError and RunBusyError.
    """
    check([prepared])
    return carry_out(prepared, console)


def check(launches: Sequence[PreparedLaunch]) -> None:
    """Raise ValueError where workers would lack an engine, and costs.OverBudget; call it before anything is written."""
    check_engines(launches)
    costs.check(launches)


def carry_out(
    prepared: PreparedLaunch, console: Console, workers: Workers | None = None, among: str | None = None
) -> RunFolder:
    """Do what `start` does, for a launch that was checked already.

    `workers` replaces the workers that it would start here. `among`: the beginning of the only line that is printed of
    the run (OneLineEach).
    """
    run = prepared.run
    details = console if among is None else Console(quiet=True)
    print_plan(prepared, details)
    create(prepared)
    num_unfinished = print_what_is_left(prepared, details)
    if num_unfinished and prepared.cluster == "slurm":
        _submit(prepared, console)
        return run
    if num_unfinished:
        codes.claim(run, accept=prepared.launch.accept_code_change)
        unfinished = by_shard(run, read_endings(run)).unfinished_shards
        jobs = (workers or partial(submit_here, cluster=prepared.cluster))(run, unfinished)
        _wait(run, jobs, console, in_this_process=prepared.cluster == "debug", among=among)
    elif prepared.cluster == "slurm":
        with contextlib.suppress(SlurmError):  # the run is complete, whatever the queue holds
            dispatch.clear(run)
    conclude(run, console, is_read_later=prepared.target_of is not None, among=among)
    return run


def print_what_is_left(prepared: PreparedLaunch, console: Console) -> int:
    """Say what earlier attempts have left; returns the number of samples that are not finished or not yet timed."""
    run = prepared.run
    state, num_planned = read_state(run), run.num_planned()
    ended = by_shard(run, state.endings)
    num_unfinished, num_untimed = ended.num_unfinished, ended.num_untimed
    if not num_unfinished:
        timing = f"; {counted(num_untimed, 'sample is', 'samples are')} still to be timed" if num_untimed else ""
        console.print(f"All {num_planned} samples are already finished{timing}.", soft_wrap=True)
    elif state.finished or state.unfinished:
        console.print(
            f"Resuming: {len(state.finished)} of {num_planned} samples are finished; of the others, "
            f"{len(state.unfinished)} continue from their last accepted step.",
            soft_wrap=True,
        )
    return ended.num_left


def create(prepared: PreparedLaunch) -> None:
    """Write the plan of a new run, or assign the samples of an existing one to another number of shards."""
    _assign(prepared)
    if prepared.launch.target_logprobs or prepared.target_of:
        prepared.run.target_logprobs_dir.mkdir(exist_ok=True)  # asks workers that have a target, and is what is told of


def _assign(prepared: PreparedLaunch) -> None:
    run, spec, problems = prepared.run, prepared.plan.spec, prepared.plan.problems
    if run.exists():
        served.record(run, prepared.plan.servers)
        _request_timing(prepared)
        if run.num_shards() == prepared.num_shards:
            return
    recorded = expected_tokens(problems, warehouse.spent_tokens(run, spec, problems))
    assigned = shards.assign_to_shards(units(spec, problems), prepared.num_shards, recorded)
    if run.exists():
        run.assign_again(assigned)
    else:
        run.create(spec, problems, assigned)
        served.record(run, prepared.plan.servers)
        _request_timing(prepared)


def _request_timing(prepared: PreparedLaunch) -> None:
    if prepared.launch.latency_sample is not None:
        timings.request(prepared.run, prepared.launch.latency_sample)


def _submit(prepared: PreparedLaunch, console: Console) -> None:
    run, launch = prepared.run, prepared.launch
    if option := locks_of_one_node(run.path):
        console.print(f"WARNING: {ONE_NODE.format(option)}", style="bold yellow", markup=False, soft_wrap=True)
    accept = launch.accept_code_change
    dispatched = dispatch.dispatch(
        run, prepared.sbatch, launch.shards_per_task, launch.workers_per_task, accept_code_change=accept
    )
    print_dispatched(dispatched, run, console)


def print_dispatched(
    dispatched: dispatch.Dispatched, run: RunFolder, console: Console, *, says_how_to_watch: bool = True
) -> None:
    """Say what was submitted, what was not, and how to watch it."""
    if dispatched.submitted:
        jobs = ", ".join(dispatched.submitted)
        console.print(
            f"Submitted {counted(dispatched.tasks, 'task')} as job {jobs}{dispatched.finalizer_notice}.", soft_wrap=True
        )
    for warning in (dispatched.refusal, dispatched.warning):
        if warning:
            console.print(warning, style="bold yellow", markup=False, soft_wrap=True)
    if number := dispatched.num_active_shards:
        console.print(
            f"Already running or queued: {counted(number, 'shard')}; nothing is submitted twice.", soft_wrap=True
        )
    elif not dispatched.submitted:
        console.print("Nothing to submit: every sample is finished.")
    if says_how_to_watch:
        console.print(f"  {typed('jobs status')} {quote(str(run.path))} --follow", soft_wrap=True)


def _wait(run: RunFolder, jobs: Sequence[Job], console: Console, *, in_this_process: bool, among: str | None) -> None:
    """Show progress until the workers have ended. Raises LaunchFailed."""
    follow(run, jobs, console, elsewhere=not in_this_process, among=among)
    failed = [(job, error) for job in jobs if (error := job.exception()) is not None]
    if failed:
        job, error = failed[0]
        raise LaunchFailed(
            f"{len(failed)} of {len(jobs)} workers failed: {failures.explained(run, error, log_of(run, job))}. "
            "Nothing finished is lost: run the same command again to resume.",
            failures.first_traceback(str(error)),
        )


def conclude(run: RunFolder, console: Console, *, is_read_later: bool = False, among: str | None = None) -> None:
    """Grade, load and print. Raises LaunchFailed where samples stay ungraded or the warehouse cannot be written.

    `is_read_later`: the target of another run is to read the chains after this, so that nothing is said of it here.
    `among`: as that of `carry_out`.
    """
    try:
        report(run, console, says_unscored=not is_read_later, among=among)
    except warehouse.WarehouseFailed as error:
        raise LaunchFailed(
            f"{error}. Traces and grades are safe. Try again later:  {typed('jobs finalize')} {quote(str(run.path))}"
        ) from error
    except GraderFailed as error:
        raise LaunchFailed(str(error)) from error
