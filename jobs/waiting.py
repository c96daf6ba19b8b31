"""Waiting for runs on Slurm until they have ended: what `--wait` does after a launch.

Slurm is asked as seldom as `jobs status --follow` does: its queue once per look for all runs, accounting when a task
has left the queue. The files of the runs are the truth.
"""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote
from time import sleep

from rich.console import Console

from harness.cli.program import typed
from harness.plural import counted
from jobs import launching
from jobs.after.missing import missing_after
from jobs.launching import LaunchFailed
from jobs.run.endings import num_unfinished, read_endings
from jobs.run.folder import RunFolder
from jobs.timing import folder as timings
from jobs.watch.status import RunStatus, Watch

LOOK_SECONDS = 30.0
"""Time between two looks."""
_LOOKS_WITHOUT_WORK = 3
"""Looks in a row without a job at work before an unfinished run has ended: NFS may show its last files late."""


def wait(runs: Sequence[RunFolder], console: Console) -> None:
    """Wait until no job works on runs, then print their results; those that have theirs already are left alone.

    What the last job of a finished run has not done, because it died, is done here. Raises LaunchFailed where samples
    are not finished, or a result could not be loaded. Interrupted, the jobs go on.
    """
    pending = [run for run in dict.fromkeys(runs) if _is_pending(run)]
    if not pending:
        return
    statuses = _until_ended(pending, console)
    failures, lines = [], launching.OneLineEach((run, run.spec()) for run in pending)
    for run, status in zip(pending, statuses, strict=True):
        if status.finished == status.planned:
            try:
                launching.conclude(run, console, among=lines.next(run))
            except LaunchFailed as failure:
                failures.append(str(failure))
        else:
            failures.append(_unfinished(run, status))
    if failures:
        raise LaunchFailed("; ".join(failures))


def _is_pending(run: RunFolder) -> bool:
    return bool(num_unfinished(run) or timings.progress(run).left or missing_after(run, read_endings(run)))


def _until_ended(runs: Sequence[RunFolder], console: Console) -> list[RunStatus]:
    watch, shown, idle_looks = Watch(runs), "", 0
    while True:
        statuses = watch.read()
        if not any(status.may_progress or status.is_concluding for status in statuses):
            idle_looks += 1
            if all(_is_concluded(status) for status in statuses) or idle_looks >= _LOOKS_WITHOUT_WORK:
                return statuses
        else:
            idle_looks = 0
        if (line := _line(statuses)) != shown:
            console.print(line, markup=False, soft_wrap=True)
            shown = line
        sleep(LOOK_SECONDS)


def _is_concluded(status: RunStatus) -> bool:
    return status.is_finished and not status.missing


def _line(statuses: Sequence[RunStatus]) -> str:
    """Return how far the runs are, without what changes at every look."""
    finished, planned = sum(s.finished for s in statuses), sum(s.planned for s in statuses)
    states = sum((s.states for s in statuses[1:]), statuses[0].states)
    parts = [f"waiting: {finished} of {counted(planned, 'sample')} finished"]
    parts += [f"{counted(count, 'shard')} {state}" for state, count in sorted(states.items())]
    parts += sorted({s.how_to_conclude for s in statuses if s.is_concluding and s.how_to_conclude})
    parts += sorted({f"Slurm does not answer: {s.slurm_error}" for s in statuses if s.slurm_error})
    return " · ".join(parts)


def _unfinished(run: RunFolder, status: RunStatus) -> str:
    number = counted(status.planned - status.finished, "sample is", "samples are")
    errors = sorted({shard.last_error for shard in status.shards if shard.last_error})
    why = f" ({'; '.join(errors)})" if errors else ""
    return (
        f"{run.path.name}: {number} not finished, and no job works on the run{why}. To resume:  "
        f"{typed('jobs resume')} {quote(str(run.path))}"
    )
