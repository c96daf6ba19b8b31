"""Carry out launches: create runs, start them here or on Slurm, follow them, grade and print the results.

A schedule yields rounds of launches. A single launch or a probe is one round. A suite has one round for its runs and
one for their probes; a nightly suite adds recovery and confirmation rounds.

Runs of a round that can share engines are scheduled consecutively, so each engine starts once. On Slurm, runs with the
same models share array jobs (jobs.submission.dispatch). In-process runs (`debug`) are graded and printed as soon as
their samples end, before the next run starts. Worker processes (`local`) take one run after the other; grading
follows the last run. This is library code: it prints to the given console and raises; only commands exit.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from shlex import quote
from time import sleep
from typing import TYPE_CHECKING, Literal

from rich.console import Console

from grading import GraderFailed
from harness.cli.messages import counted
from harness.cli.program import typed
from harness.cli.screen import terminal
from harness.settings.launch_settings import Cluster, Launch
from jobs import after, graders, preparation
from jobs.finished import grading
from jobs.outcome import LaunchFailed, Outcome
from jobs.preparation import PreparedLaunch, check_engines, distinct, print_plan
from jobs.run import codes, derived, endings, sizing, trust
from jobs.run import timing as timings
from jobs.run.endings import by_shard, read_endings, read_state
from jobs.run.folder import RunFolder
from jobs.run.spec import RunSpec, assign_to_shards, units
from jobs.submission.here import InProcessJob, Job, start_workers
from jobs.watch.exit_reasons import IN_PROCESS_LOG, explained, traceback_in
from jobs.watch.follow import follow
from jobs.work.run_part import RunPart
from jobs.work.worker import InProcessWorker

if TYPE_CHECKING:
    from jobs.submission.dispatch import Dispatched, Request
    from jobs.watch.status import RunStatus

Schedule = Iterable[Sequence[PreparedLaunch]]
"""Rounds of launches; each is requested when the previous one has ended or, on Slurm, has been submitted."""
Look = Literal["ended", "idle", "at work"]
LOOK_SECONDS = 30.0
"""Time between two polls of Slurm; not shorter than the interval of `jobs status --follow`."""
_IDLE_LOOKS = 3
"""Number of consecutive polls without an active job after which a wait ends: NFS may show the last files late."""


def launch(
    known: Outcome,
    launch: Launch,
    typed: Collection[str],
    console: Console,
    *,
    is_dry: bool = False,
    waits: bool = False,
    tracker: str | None = None,
) -> PreparedLaunch:
    """Carry out one launch or, with `is_dry`, print its plan. Fills in `known`.

    `typed`: the names of the flags on the command line. `tracker`: where to send the result of the finished run.
    Raises the errors of `jobs.preparation.prepare` and `drive`.
    """
    if tracker:
        from jobs.finished import tracking

        tracking.check(tracker)
    prepared = preparation.prepare(launch, typed)
    known.runs = [prepared.run]
    known.notices = [prepared.code_notice] if prepared.code_notice else []
    if tracker and prepared.cluster == "slurm" and not waits:
        raise ValueError(f"--tracker {tracker}: on Slurm, add --wait")
    if is_dry:
        preview(prepared, console)
        return prepared
    drive([[prepared]], console, waits=waits)
    if tracker:
        tracking.send(prepared.run, tracker)
        console.print(f"Sent to {tracker}.")
    return prepared


def drive(schedule: Schedule, console: Console, *, waits: bool = False) -> list[RunFolder]:
    """Carry out the rounds of a schedule; return the run folders in the given order.

    Local runs are followed, graded, loaded and printed. On Slurm, return once the jobs are submitted or, with `waits`,
    have ended. Raises ValueError, before anything for a round is written, if launches of the round are over budget or
    lack their engine; also LaunchFailed, SlurmRejected and SlurmError.
    """
    runs: list[RunFolder] = []
    for launches in schedule:
        check_engines(launches)
        preparation.check_budget(launches)
        if len(launches) > 1 and any(map(preparation.is_cost_said, launches)):
            console.print(preparation.total(launches), soft_wrap=True)
        carry_out(launches, console)
        started = [prepared.run for prepared in launches]
        runs += started
        if waits:
            wait(started, console)
    return runs


def preview(prepared: PreparedLaunch, console: Console) -> None:
    """Print a launch's plan and, on Slurm, its batch script; write nothing. Raises ValueError for an invalid launch."""
    print_plan(prepared, console, is_preview=True)
    if prepared.cluster == "slurm":
        from jobs.submission import dispatch

        script = dispatch.preview(_request(prepared), prepared.plan.spec, prepared.num_shards)
        print(script, file=console.file)  # unchanged: rich would replace emoji codes and tabs
    preparation.check_budget([prepared])


def create(prepared: PreparedLaunch) -> None:
    """Write the plan of a new run, or reassign the samples of an existing run if the number of shards changed."""
    run, spec, problems = prepared.run, prepared.plan.spec, prepared.plan.problems
    is_new = not run.exists()
    if is_new or run.num_shards() != prepared.num_shards:
        lengths, in_order = {problem.id: len(problem.text) for problem in problems}, prepared.keeps_order
        assigned = assign_to_shards(units(spec, problems), prepared.num_shards, lengths, in_order=in_order)
        if is_new:
            run.create(spec, problems, assigned)
        else:
            run.assign_again(assigned)
    sizing.record_servers(run, prepared.plan.served)
    if prepared.launch.latency_sample is not None:
        timings.request(run, prepared.launch.latency_sample)
    graders.record(run, prepared.grader)
    trust.remember(run, [*trust.options(prepared.sbatch), *trust.arguments(spec.settings)])
    if prepared.launch.target_logprobs:
        derived.ask_for_logprobs(run)  # computed by workers that run a target
    if prepared.write_derived is not None:
        prepared.write_derived(run)


def carry_out(launches: Sequence[PreparedLaunch], console: Console) -> None:
    """Carry out one round of checked launches; with several, print one line per run.

    If a run fails, the others still run; LaunchFailed is raised after the last run.
    """
    launches = distinct(launches)
    listed = {prepared.run.path: prepared.plan.spec for prepared in launches if prepared.write_derived is None}
    carried = _Round(console, listed, is_several=len(launches) > 1)
    if len(listed) > 1:
        carried.print_notices(launches)
    unfinished: dict[Cluster, list[PreparedLaunch]] = {}
    finished: list[PreparedLaunch] = []
    for prepared in launches:
        is_left = carried.begin(prepared)
        (unfinished.setdefault(prepared.cluster, []) if is_left else finished).append(prepared)
    for prepared in finished:
        carried.conclude(prepared.run)
    if on_slurm := unfinished.pop("slurm", []):
        carried.submit(on_slurm)
    for prepared in itertools.chain(*unfinished.values()):
        codes.claim(prepared.run, accept=prepared.launch.accept_code_change)
    if "local" in unfinished:
        carried.run_in_processes(unfinished["local"])
    if "debug" in unfinished:
        carried.run_in_this_process(unfinished["debug"])
    carried.raise_failures()


class _Round:
    """A round in progress: its output and its failures.

    With several runs, each run gets one numbered line: `[2/8] speccot  96.2 ± 2.8 %`. For a single run or a probe, the
    full result is printed.
    """

    def __init__(self, console: Console, listed: Mapping[Path, RunSpec], *, is_several: bool) -> None:
        """`listed`: specifications of the runs that are not probes, by run folder."""
        self.console, self.is_several = console, is_several
        self.failures: list[LaunchFailed] = []
        names = after.short_names([*listed.values()]) if len(listed) > 1 else []
        width = max(map(len, names), default=0)
        self._names = dict(zip(listed, (name.ljust(width) for name in names), strict=False))
        self._num_begun = 0

    def next(self, run: RunFolder) -> str | None:
        """Count the run and return the prefix of its line, e.g. `[2/8] speccot`; None if its full result is printed."""
        name = self._names.get(run.path)
        if name is None:
            return None
        self._num_begun += 1
        return f"[{self._num_begun}/{len(self._names)}] {name}"

    def print_notices(self, launches: Sequence[PreparedLaunch]) -> None:
        """Print the warnings of the runs that get one line each, without duplicates."""
        own = [prepared for prepared in launches if prepared.run.path in self._names]
        notices = Counter(notice for prepared in own for notice in prepared.plan.notices)
        for notice, number in notices.items():
            where = "" if number == len(own) else f"{number} of {counted(len(own), 'run')}: "
            soft_wrap = not self.console.is_terminal
            self.console.print(f"{where}{notice}", style="bold yellow", markup=False, soft_wrap=soft_wrap)

    def begin(self, prepared: PreparedLaunch) -> bool:
        """Print the plan, create the run and report earlier progress; return whether work remains."""
        run, details = prepared.run, terminal(quiet=True) if prepared.run.path in self._names else self.console
        print_plan(prepared, details)
        create(prepared)
        state, num_planned = read_state(run), run.num_planned()
        ended = by_shard(run, state.endings)
        if not ended.num_unfinished:
            to_time = counted(ended.timing.left, "sample is", "samples are")
            timing = f"; {to_time} not timed yet" if ended.timing.left else ""
            details.print(f"All {num_planned} samples are already finished{timing}.", soft_wrap=True)
        elif state.finished or state.unfinished:
            details.print(
                f"Resuming: {len(state.finished)} of {num_planned} samples are finished; "
                f"{len(state.unfinished)} others continue from their last accepted step.",
                soft_wrap=True,
            )
        if prepared.cluster == "slurm" and not ended.num_left:
            from jobs.slurm.client import SlurmError
            from jobs.submission import dispatch

            with contextlib.suppress(SlurmError):  # the run is complete in any case
                dispatch.clear(run)
        return bool(ended.num_left)

    def conclude(self, run: RunFolder, among: str | None = None) -> None:
        """Grade, load and print a finished run; record an error as a failure of this run."""
        try:
            after.report(run, self.console, among=among or self.next(run))
        except (GraderFailed, after.WarehouseError) as error:
            again = f". Traces and grades are kept. Try again later:  {typed('jobs finalize')} {quote(str(run.path))}"
            failure = LaunchFailed(f"{error}{'' if isinstance(error, GraderFailed) else again}")
            failure.__cause__ = error
            self.failures.append(failure)

    def raise_failures(self) -> None:
        """Raise LaunchFailed if a run failed."""
        if failures := self.failures:
            raise LaunchFailed("; ".join(map(str, failures)), failures[0].worker_traceback) from failures[0].__cause__

    def submit(self, launches: Sequence[PreparedLaunch]) -> None:
        """Submit runs; runs with the same models share jobs."""
        from harness.checks.machine import ONE_NODE, locks_of_one_node
        from jobs.submission.dispatch import dispatch_together

        if option := locks_of_one_node(launches[0].run.path):
            _warn(f"WARNING: {ONE_NODE.format(option)}", self.console)
        done = dispatch_together(list(map(_request, launches)))
        for prepared, dispatched in zip(launches, done, strict=True):
            if self.is_several:
                self.console.print(prepared.run.path.name, style="bold", soft_wrap=True)
            print_dispatched(dispatched, self.console)
        print_how_to_watch([prepared.run for prepared in launches], self.console)

    def run_in_processes(self, launches: Sequence[PreparedLaunch]) -> None:
        """Run launches in worker processes; each process takes a share of every run, one run after the other."""
        runs = [prepared.run for prepared in launches]
        parts = [(run, by_shard(run, read_endings(run)).unfinished_shards) for run in runs]
        jobs = start_workers(runs[0], parts)  # empty if another launch finished the runs
        follow(runs, jobs, self.console)
        reasons = _reasons(runs[0], jobs)
        for prepared in launches:
            self._end(prepared, jobs, reasons)

    def run_in_this_process(self, launches: Sequence[PreparedLaunch]) -> None:
        """Run launches in this process with engines that stay open."""
        by_path = {prepared.run.path: prepared for prepared in launches}
        parts = [RunPart(p.run.path, by_shard(p.run, read_endings(p.run)).unfinished_shards) for p in launches]
        with InProcessWorker(parts) as worker:
            in_order = worker.in_order()
            for part in in_order:
                run, among = part.run, self.next(part.run)
                jobs = [InProcessJob(worker.run, (part,), run.logs_dir / "jobs" / IN_PROCESS_LOG)]
                follow([run], jobs, self.console, elsewhere=False, among=among)
                num_failures = len(self.failures)
                self._end(by_path[run.path], jobs, _reasons(run, jobs), among)
                if len(self.failures) > num_failures and part is not in_order[-1]:
                    words = f"{self.failures[-1]} The other runs continue."
                    self.console.print(words, style="bold red", markup=False, soft_wrap=True)

    def _end(
        self, prepared: PreparedLaunch, jobs: Sequence[Job], reasons: dict[str, str], among: str | None = None
    ) -> None:
        """Conclude a run whose workers have ended, or record why it is unfinished."""
        run = prepared.run
        own = [reason for reason in reasons if run.path.name in reason] or list(reasons)
        if not by_shard(run, read_endings(run)).num_left:
            if own:  # failed after its last sample
                _warn(f"{len(reasons)} of {len(jobs)} workers failed after the last sample: {own[0]}", self.console)
            self.conclude(run, among)
            return
        failed = f"{len(reasons)} of {len(jobs)} workers failed: {own[0]}" if own else "workers exited early"
        name = f"{run.path.name}: " * self.is_several
        message = f"{name}{failed}. Finished samples are kept; run the same command again to resume."
        self.failures.append(LaunchFailed(message, reasons[own[0]] if own else ""))


def _request(prepared: PreparedLaunch) -> Request:
    from jobs.submission.dispatch import Request

    run, launch = prepared.run, prepared.launch
    per_task = launch.shards_per_task, launch.workers_per_task
    return Request(run, prepared.sbatch, *per_task, launch.accept_code_change)


def _reasons(logged_in: RunFolder, jobs: Sequence[Job]) -> dict[str, str]:
    """Return the reasons why workers failed, each with its traceback."""
    failed = [(job, error) for job in jobs if (error := job.exception()) is not None]
    return {explained(logged_in, error, job.log): traceback_in(str(error)) for job, error in failed}


def print_dispatched(dispatched: Dispatched, console: Console) -> None:
    """Print which jobs were submitted, with warnings."""
    if dispatched.submitted:
        jobs, others = ", ".join(dispatched.submitted), ", ".join(dispatched.shared_with)
        shared = f", shared with {others}" if others else ""
        after_them = "" if dispatched.warning else "; a dependent job then grades, loads and prints the result"
        tasks = counted(dispatched.tasks, "task")
        console.print(f"Submitted {tasks} as job {jobs}{shared}{after_them}.", soft_wrap=True)
    for warning in (dispatched.refusal, dispatched.warning):
        if warning:
            _warn(warning, console)
    if number := dispatched.num_active_shards:
        shards = counted(number, "shard")
        console.print(f"Already running or queued: {shards}; these are not submitted again.", soft_wrap=True)
    elif not dispatched.submitted:
        console.print("Nothing to submit: all samples are finished.")


def print_how_to_watch(runs: Sequence[RunFolder], console: Console) -> None:
    """Print the command that follows runs on Slurm."""
    folders = " ".join(quote(str(run.path)) for run in runs)
    console.print(f"  {typed('jobs status')} {folders} --follow", soft_wrap=True)


def _warn(line: str, console: Console) -> None:
    console.print(line, style="bold yellow", markup=False, soft_wrap=True)


def wait(runs: Sequence[RunFolder], console: Console) -> None:
    """Wait until no job works on the runs, then print the results that were not available when the wait began.

    Slurm is polled as rarely as by `jobs status --follow`: one query of the queue per poll for all runs, and one of
    accounting when a task has left the queue. Progress is read from the run folders.

    If the job that grades and loads a finished run died, this process grades and loads the run. Raises LaunchFailed if
    samples are unfinished or a result could not be loaded. An interrupt does not affect the jobs.
    """
    pending = [
        run
        for run in dict.fromkeys(runs)
        if endings.num_unfinished(run) or timings.progress(run).left or grading.missing(run, read_endings(run))
    ]
    if not pending:
        return
    listed = {run.path: run.spec() for run in pending if derived.continuation(run) is None}
    waited = _Round(console, listed, is_several=len(pending) > 1)
    for run, status in zip(pending, _statuses_at_the_end(pending, console), strict=True):
        if status.finished < status.planned:
            waited.failures.append(LaunchFailed(_unfinished(run, status)))
        else:
            waited.conclude(run)
    waited.raise_failures()


def until_ended(look: Callable[[], Look]) -> None:
    """Poll until the state is `ended`, or was `idle` several times in a row."""
    idle_looks = 0
    while (found := look()) != "ended":
        idle_looks = idle_looks + 1 if found == "idle" else 0
        if idle_looks >= _IDLE_LOOKS:
            return
        sleep(LOOK_SECONDS)


def _statuses_at_the_end(runs: Sequence[RunFolder], console: Console) -> list[RunStatus]:
    from jobs.watch.status import Watch  # not needed by local launches

    watch, shown = Watch(runs), ""
    statuses: list[RunStatus] = []

    def look() -> Look:
        nonlocal statuses, shown
        statuses = watch.read()
        is_idle = not any(status.may_progress or status.is_concluding for status in statuses)
        if is_idle and all(status.is_finished and not status.missing for status in statuses):
            return "ended"
        if (line := _line(statuses)) != shown:
            console.print(line, markup=False, soft_wrap=True)
            shown = line
        return "idle" if is_idle else "at work"

    until_ended(look)
    return statuses


def _line(statuses: Sequence[RunStatus]) -> str:
    """Return a progress line without values that change at every poll."""
    finished, planned = sum(s.finished for s in statuses), sum(s.planned for s in statuses)
    states = sum((s.states for s in statuses[1:]), statuses[0].states)
    parts = [f"waiting: {finished} of {counted(planned, 'sample')} finished"]
    parts += [f"{counted(count, 'shard')} {state}" for state, count in sorted(states.items())]
    parts += sorted({s.next_step for s in statuses if s.is_concluding and s.next_step})
    parts += sorted({f"Slurm does not respond: {s.slurm_error}" for s in statuses if s.slurm_error})
    return " · ".join(parts)


def _unfinished(run: RunFolder, status: RunStatus) -> str:
    number = counted(status.planned - status.finished, "sample is", "samples are")
    errors = sorted({shard.last_error for shard in status.shards if shard.last_error})
    why = f" ({'; '.join(errors)})" if errors else ""
    return (
        f"{run.path.name}: {number} not finished, and no job is working on the run{why}. To resume:  "
        f"{typed('jobs resume')} {quote(str(run.path))}"
    )
