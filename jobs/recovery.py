"""What a night lacks, and how it gets it: shards whose workers died are submitted again, a bounded number of times.

Nothing polls. The job that gives the verdict starts after all other jobs of the night have ended; what it then finds
unfinished it submits again, with itself behind it. A run is given up after `recoveries` such rounds, or after two in a
row in which it neither finished a sample nor accepted a step. Runs whose own jobs died before they were graded are
graded and loaded by the verdict job, at most twice each: what dies over one run must not take the verdict of the others
with it.

A verdict job may die anywhere; the next one reads in the night's record what was done.
"""

from __future__ import annotations

import contextlib
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.cli.messages import counted
from harness.cli.screen import terminal
from jobs import after
from jobs.run import submissions
from jobs.run import timing as timings
from jobs.run.endings import by_shard, read_endings, read_state
from jobs.run.files import RunDamaged, append_record, read_records
from jobs.run.folder import RunFolder, is_name
from jobs.slurm import client
from jobs.submission.dispatch import Request, dispatch_together
from jobs.watch.status import status

_ROUNDS_WITHOUT_PROGRESS = 2
_SHOWN_SHARDS = 12
_MOST_GRADINGS = 2
_WAIT_SECONDS = 600.0


@dataclass(frozen=True)
class NightRecord:
    """What happened in a night, as lines of JSON that are appended to `nights/<date>.jsonl`.

    Only what follows the last launch counts: someone who launches a night again asks for it anew.
    """

    path: Path

    def append(self, what: str, **values: Any) -> None:
        """Append what happened, durable when this returns."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        append_record(self.path, {"event": what, "at": time.time(), **values})

    def events(self, what: str | None = None) -> list[dict[str, Any]]:
        """Return what happened since the last launch, that launch included; all of it, or one kind."""
        latest: list[dict[str, Any]] = []
        for record in self._every():
            if record["event"] == "launched":
                latest = []
            latest.append(record)
        return [record for record in latest if what in (None, record["event"])]

    def last(self, what: str) -> dict[str, Any] | None:
        """Return the last event of a kind since the last launch."""
        return next(iter(reversed(self.events(what))), None)

    def names(self, what: str) -> dict[int, str]:
        """Return the names of the run folders, by number of the launch in the suite.

        Those that were `launched`, or those that are `confirming` a suspicion. Raises RunDamaged where one is not the
        name of a folder beside the others.
        """
        event = self.last(what)
        names = {int(number): name for number, name in event["runs"].items()} if event else {}
        for name in names.values():
            if not is_name(name):
                raise RunDamaged(f"{self.path} is damaged: {name!r} is not the name of a run folder")
        return names

    @property
    def requests(self) -> dict[str, Mapping[str, Any]]:
        """How each run is submitted to Slurm, by name; runs on this machine have none."""
        found: dict[str, Mapping[str, Any]] = {}
        for event in (*self.events("launched"), *self.events("confirming")):
            found |= event["requests"]
        return found

    def verdict_job(self, jobs: Sequence[str]) -> dict[str, Any] | None:
        """Return what the last of these verdict jobs waits for, whichever launch of the night submitted it."""
        of_these = [r for r in self._every() if r["event"] == "verdict job" and r["job"] in jobs]
        return next(iter(reversed(of_these)), None)

    def _every(self) -> Iterator[dict[str, Any]]:
        return (record for record in read_records(self.path) if "event" in record)


@dataclass
class Gap:
    """What a run of a night lacks, and why."""

    run: str
    missing: int
    """Samples that are not finished or not graded, or not timed."""
    planned: int
    shards: Sequence[int] = ()
    """Unfinished shards."""
    why: str = ""
    is_timing: bool = False
    """Whether all samples are finished, and these were to run again, one at a time."""

    def __str__(self) -> str:
        shown = ", ".join(map(str, self.shards[:_SHOWN_SHARDS])) + (", …" if len(self.shards) > _SHOWN_SHARDS else "")
        where = f" (shard{'' if len(self.shards) == 1 else 's'} {shown})" if self.shards else ""
        kind = "timing sample" if self.is_timing else "sample"
        number = f"{self.missing} of {counted(self.planned, kind)}" if self.planned else "all samples"
        return f"{self.run}: {number} missing{where}: {self.why}"


@dataclass
class Found:
    """How a night stands when nothing of it is running."""

    waiting_for: list[str] = field(default_factory=list)
    """Ids of the jobs to wait for before a verdict."""
    resumed: dict[str, int] = field(default_factory=dict)
    """Number of tasks that were submitted again now, by run."""
    gaps: list[Gap] = field(default_factory=list)
    """What is given up."""


def recover(runs: Sequence[RunFolder], record: NightRecord, recoveries: int) -> Found:
    """Submit again what died, as far as the night's bound allows; returns what to wait for and what is given up.

    Raises SlurmError where Slurm does not answer.
    """
    found = Found()
    on_slurm = [run for run in runs if run.exists() and run.path.name in record.requests]
    active = active_jobs(on_slurm)
    requests: list[Request] = []
    for run in runs:
        gap = unfinished(run)
        if gap is None or _is_active(run, active):
            continue
        refusal = gap.why or _refusal(run, record, recoveries)
        if not refusal:
            requests.append(_request_of(run, record))
        else:
            gap.why = refusal if gap.why else refusal + last_error(run)
            found.gaps.append(gap)
    if requests:
        # Before anything is submitted: a job that dies over it has used up a round.
        record.append("recovered", work={request.run.path.name: work_of(request.run) for request in requests})
        _submit(requests, found)
        active = active_jobs(on_slurm)
    found.waiting_for = sorted({job for jobs in active.values() for job in jobs}, key=lambda job: (len(job), job))
    return found


def _submit(requests: Sequence[Request], found: Found) -> None:
    try:
        done = dispatch_together(requests)
    except (client.SlurmError, ValueError, OSError) as error:
        for request in requests:
            gap = unfinished(request.run)
            if gap is not None and not _is_active(request.run, active_jobs([request.run])):
                gap.why = f"it could not be submitted again: {_one_line(error)}"
                found.gaps.append(gap)
        return
    for request, dispatched in zip(requests, done, strict=True):
        found.resumed[request.run.path.name] = dispatched.tasks


def complete(runs: Sequence[RunFolder], database: Path, record: NightRecord) -> list[Gap]:
    """Grade and load every run whose finished samples the warehouse lacks; returns what could not be."""
    graded = after.num_graded(database, [run.path.name for run in runs])
    gaps = []
    for run in runs:
        try:
            ended = by_shard(run, read_endings(run)) if run.exists() else None
        except (RunDamaged, OSError):
            ended = None  # named among the gaps of recovery
        if ended is None or sum(ended.finished) <= graded.get(run.path.name, -1):
            continue
        tries = sum(event["run"] == run.path.name for event in record.events("grading"))
        if tries >= _MOST_GRADINGS:
            why = f"grading or loading it was begun {tries} times and never ended"
        else:
            record.append("grading", run=run.path.name)
            why = _grade(run, database)
        if why:
            now = after.num_graded(database, [run.path.name]).get(run.path.name, 0)
            missing = sum(ended.finished) - max(0, now)
            gaps.append(Gap(run.path.name, missing, sum(ended.planned), (), why))
    return gaps


def _grade(run: RunFolder, database: Path) -> str:
    """Grade and load a run; returns what went wrong, empty where nothing did."""
    try:
        after.report(run, terminal(), database, _WAIT_SECONDS)
    except Exception as error:  # noqa: BLE001 one damaged run must not keep the night from its verdict
        traceback.print_exc()
        return f"it could not be graded or loaded: {_one_line(error)}"
    return ""


def active_jobs(runs: Sequence[RunFolder]) -> dict[str, list[str]]:
    """Return the ids of the jobs of each run that are running or queued, arrays once, by the run's name.

    One query of Slurm for all runs. Raises SlurmError.
    """
    names: dict[str, list[str]] = {}
    for run in runs:
        for submission in submissions.current(run):
            for name in (submission.name, submissions.finalizer_of(run, submission)):
                names.setdefault(name, []).append(run.path.name)
    active: dict[str, dict[str, None]] = {}
    for task in client.queue(list(names)):
        if task.is_active:
            for run_name in names[task.name]:
                active.setdefault(run_name, {})[task.job_id.partition("_")[0]] = None
    return {name: list(jobs) for name, jobs in active.items()}


def _is_active(run: RunFolder, active: Mapping[str, Sequence[str]]) -> bool:
    return bool(active.get(run.path.name))


def unfinished(run: RunFolder) -> Gap | None:
    """Return what a run lacks; None where every sample is finished, and timed where it is to be."""
    if not run.exists():
        return Gap(run.path.name, 0, 0, (), "")
    try:
        ended = by_shard(run, read_endings(run))
    except (RunDamaged, OSError) as error:
        return Gap(run.path.name, 0, 0, (), _one_line(error))
    if not ended.num_left:
        return None
    if not ended.num_unfinished:
        asked = timings.progress(run).asked
        return Gap(run.path.name, ended.timing.left, asked, ended.unfinished_shards, is_timing=True)
    return Gap(run.path.name, ended.num_unfinished, sum(ended.planned), ended.unfinished_shards)


def work_of(run: RunFolder) -> list[int]:
    """Return how far a run is: samples that ended or were timed, and accepted steps of the others; more is later."""
    if not run.exists():
        return [0, 0]
    state = read_state(run)
    num_ended = len(state.finished) + timings.progress(run).done
    return [num_ended, sum(len(trace.steps) for trace in state.unfinished.values())]


def _refusal(run: RunFolder, record: NightRecord, recoveries: int) -> str | None:
    """Return why a run is not submitted again; None where it is."""
    if not run.exists():
        return "it was never launched"
    if submissions.is_canceled(run):
        return "it was canceled"
    refusal = out_of_rounds(record, [run], recoveries)
    return refusal if refusal or run.path.name in record.requests else "it ran on this machine, where it ended early"


def out_of_rounds(record: NightRecord, runs: Sequence[RunFolder], recoveries: int) -> str | None:
    """Return why runs are not started again together, counted by the first of them; None where they may be."""
    try:
        now = [work_of(run) for run in runs]
    except (RunDamaged, OSError) as error:
        return _one_line(error)
    first = runs[0].path.name
    rounds = [event["work"] for event in record.events("recovered") if first in event["work"]]
    names = [run.path.name for run in runs]
    marks = [*([work.get(name, [0, 0]) for name in names] for work in rounds), now]
    times = f"resumed {counted(len(rounds), 'time')} by the night itself"
    if len(rounds) >= _ROUNDS_WITHOUT_PROGRESS and marks[-1] == marks[-1 - _ROUNDS_WITHOUT_PROGRESS]:
        return f"{times}, the last {_ROUNDS_WITHOUT_PROGRESS} without any progress"
    if len(rounds) >= recoveries:
        return f"{times}, which is its limit (recoveries = {recoveries})"
    return None


def _request_of(run: RunFolder, record: NightRecord) -> Request:
    """Return how a run is submitted: as it was last, or as the launch wanted it where that came to nothing."""
    submitted, asked = submissions.read(run), record.requests.get(run.path.name, {})
    if submitted:
        last = submitted[-1]
        return Request(run, last.options, last.shards_per_task, last.workers_per_task)
    return Request(run, asked["options"], asked["shards_per_task"], asked["workers_per_task"])


def last_error(run: RunFolder) -> str:
    """Return the most frequent last error of a run's workers, as the end of a sentence; empty where none is known."""
    errors: Counter[str] = Counter()
    with contextlib.suppress(OSError, ValueError):
        if run.exists() and submissions.read(run):
            errors.update(shard.last_error for shard in status(run).shards if shard.last_error)
    return f"; last error: {errors.most_common(1)[0][0]}" if errors else ""


def _one_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__
