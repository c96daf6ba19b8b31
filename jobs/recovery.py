"""Recover the missing parts of a night: resubmit shards of dead workers a limited number of times.

Nothing polls. The verdict job starts after all other jobs of the night have ended. It resubmits unfinished shards and
then submits another verdict job. A run is no longer resubmitted after `recoveries` rounds, or after two consecutive
rounds without a finished sample or accepted step. If the job that grades and loads a run died, the verdict job grades
and loads it instead, in at most two attempts.

A verdict job may die at any time; the next one continues from the night's record.
"""

from __future__ import annotations

import contextlib
import time
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.cli.messages import counted
from harness.cli.screen import terminal
from jobs import after
from jobs.finished import grading
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
"""Maximum attempts to grade and load a run; running out of memory there would kill the verdict job for all runs."""
_WAIT_SECONDS = 600.0


@dataclass(frozen=True)
class NightRecord:
    """The events of a night: JSON lines appended to `nights/<date>.jsonl`.

    Only events since the last launch count: launching a night again starts over.
    """

    path: Path

    def append(self, what: str, **values: Any) -> None:
        """Durably append an event."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        append_record(self.path, {"event": what, "at": time.time(), **values})

    def events(self, what: str | None = None) -> list[dict[str, Any]]:
        """Return the events since the last launch (included), all or of one kind."""
        latest: list[dict[str, Any]] = []
        for record in (record for record in read_records(self.path) if "event" in record):
            if record["event"] == "launched":
                latest = []
            latest.append(record)
        return [record for record in latest if what in (None, record["event"])]

    def last(self, what: str) -> dict[str, Any] | None:
        """Return the last event of a kind since the last launch."""
        return next(iter(reversed(self.events(what))), None)

    def names(self, what: str) -> dict[int, str]:
        """Return run folder names by launch number in the suite, from the `launched` or `confirming` event.

        Raises RunDamaged if one is not a plain folder name.
        """
        event = self.last(what)
        names = {int(number): name for number, name in event["runs"].items()} if event else {}
        for name in names.values():
            if not is_name(name):
                raise RunDamaged(f"{self.path} is damaged: {name!r} is not the name of a run folder")
        return names

    @property
    def requests(self) -> dict[str, Mapping[str, Any]]:
        """Slurm settings by run name; runs on this machine have no entry."""
        found: dict[str, Mapping[str, Any]] = {}
        for event in (*self.events("launched"), *self.events("confirming")):
            found |= event["requests"]
        return found


@dataclass
class Gap:
    """The missing part of a run, with the reason."""

    run: str
    what: str = ""
    """Description of the missing samples; empty if unknown."""
    why: str = ""
    num_missing: int = 0

    def __str__(self) -> str:
        return ": ".join(filter(None, (self.run, self.what, self.why)))


@dataclass
class Found:
    """Result of `recover`."""

    waiting_for: list[str] = field(default_factory=list)
    """Ids of the jobs to wait for before a verdict."""
    resumed: dict[str, int] = field(default_factory=dict)
    """Number of tasks resubmitted now, by run."""
    gaps: list[Gap] = field(default_factory=list)
    """Missing parts that are not waited for, one per run."""


def recover(runs: Sequence[RunFolder], record: NightRecord, recoveries: int) -> Found:
    """Resubmit unfinished work of dead jobs, within the night's limit; return the jobs to wait for and the gaps.

    Raises SlurmError if Slurm does not respond.
    """
    found = Found()
    on_slurm = [run for run in runs if run.exists() and run.path.name in record.requests]
    active = active_jobs(on_slurm)
    requests: list[Request] = []
    for run in runs:
        gap = unfinished(run)
        if gap is None or run.path.name in active:
            continue
        refusal = gap.why or _refusal(run, record, recoveries)
        if not refusal:
            requests.append(Request(run, **record.requests[run.path.name]))
        else:
            gap.why = refusal if gap.why else refusal + _last_error(run)
            found.gaps.append(gap)
    if requests:
        # Recorded before submission, so a job that dies meanwhile has used up a round.
        record.append("recovered", work={request.run.path.name: work_of(request.run) for request in requests})
        try:
            done = dispatch_together(requests)
            found.resumed = {one.run.path.name: did.tasks for one, did in zip(requests, done, strict=True)}
        except (client.SlurmError, ValueError, OSError) as error:
            why = f"resubmission failed: {_one_line(error)}"
            found.gaps += [replace(gap, why=why) for one in requests if (gap := unfinished(one.run))]
        active = active_jobs(on_slurm)
    found.waiting_for = sorted({job for jobs in active.values() for job in jobs}, key=lambda job: (len(job), job))
    return found


def complete(runs: Sequence[RunFolder], database: Path, record: NightRecord) -> list[Gap]:
    """Grade and load every run whose own job has not done so; return a gap for each run for which this failed."""
    gaps = []
    for run in [run for run in runs if not _is_concluded(run)]:  # list all before the first one recreates the database
        name = run.path.name
        begun, done = (sum(event["run"] == name for event in record.events(what)) for what in ("grading", "graded"))
        try:
            if begun - done >= _MOST_GRADINGS:
                gaps.append(Gap(name, why=f"grading or loading failed {begun - done} times"))
                continue
            record.append("grading", run=name)
            after.report(run, terminal(), database, _WAIT_SECONDS)
            record.append("graded", run=name)
        except Exception as error:  # noqa: BLE001 one damaged run must not prevent the verdict
            traceback.print_exc()
            gaps.append(Gap(name, why=f"could not be graded or loaded: {_one_line(error)}"))
    return gaps


def _is_concluded(run: RunFolder) -> bool:
    try:
        return grading.is_concluded(run)
    except OSError:
        return False


def active_jobs(runs: Sequence[RunFolder]) -> dict[str, set[str]]:
    """Return the ids of each run's running or queued jobs, by run name; an array has one id.

    Queries Slurm once. Raises SlurmError.
    """
    names: dict[str, list[str]] = {}
    for run in runs:
        for submission in submissions.current(run):
            for name in (submission.name, submissions.finalizer_of(run, submission)):
                names.setdefault(name, []).append(run.path.name)
    active: dict[str, set[str]] = {}
    for task in client.queue(list(names)):
        for run_name in names[task.name] if task.is_active else ():
            active.setdefault(run_name, set()).add(task.job_id.partition("_")[0])
    return active


def unfinished(run: RunFolder) -> Gap | None:
    """Return the missing part of a run; None if all samples are finished and requested timings done."""
    if not run.exists():
        return Gap(run.path.name, why="never launched")
    try:
        ended = by_shard(run, read_endings(run))
    except (RunDamaged, OSError) as error:
        return Gap(run.path.name, why=_one_line(error))
    if not ended.num_left:
        return None
    is_timing = not ended.num_unfinished
    planned, kind = (timings.progress(run).asked, "timing sample") if is_timing else (sum(ended.planned), "sample")
    shards = ended.unfinished_shards
    shown = ", ".join(map(str, shards[:_SHOWN_SHARDS])) + ", …" * (len(shards) > _SHOWN_SHARDS)
    missing = f"{ended.num_left} of {counted(planned, kind)} missing (shard{'s' * (len(shards) > 1)} {shown})"
    return Gap(run.path.name, missing, num_missing=ended.num_left)


def work_of(run: RunFolder) -> list[int]:
    """Return a run's progress: how many samples ended or were timed, and how many steps unfinished samples have."""
    if not run.exists():
        return [0, 0]
    state = read_state(run)
    num_ended = len(state.finished) + timings.progress(run).done
    return [num_ended, sum(len(trace.steps) for trace in state.unfinished.values())]


def _refusal(run: RunFolder, record: NightRecord, recoveries: int) -> str | None:
    """Return why a run must not be resubmitted; None if it may be."""
    if submissions.is_canceled(run):
        return "canceled"
    refusal = out_of_rounds(record, [run], recoveries)
    return refusal if refusal or run.path.name in record.requests else "the workers on this machine exited early"


def out_of_rounds(record: NightRecord, runs: Sequence[RunFolder], recoveries: int) -> str | None:
    """Return why a group of runs must not be restarted; None if it may be. The first run's rounds are counted."""
    try:
        now = [work_of(run) for run in runs]
    except (RunDamaged, OSError) as error:
        return _one_line(error)
    first = runs[0].path.name
    rounds = [event["work"] for event in record.events("recovered") if first in event["work"]]
    names = [run.path.name for run in runs]
    marks = [*([work.get(name, [0, 0]) for name in names] for work in rounds), now]
    times = f"resumed {counted(len(rounds), 'time')} automatically"
    if len(rounds) >= _ROUNDS_WITHOUT_PROGRESS and marks[-1] == marks[-1 - _ROUNDS_WITHOUT_PROGRESS]:
        return f"{times}, the last {_ROUNDS_WITHOUT_PROGRESS} without progress"
    if len(rounds) >= recoveries:
        return f"{times}, the limit (recoveries = {recoveries})"
    return None


def _last_error(run: RunFolder) -> str:
    """Return the most frequent last error of a run's workers, as the end of a sentence; empty if unknown."""
    with contextlib.suppress(OSError, ValueError):
        errors = Counter(shard.last_error for shard in status(run).shards if shard.last_error)
        return f"; last error: {errors.most_common(1)[0][0]}" if errors else ""
    return ""


def _one_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__
