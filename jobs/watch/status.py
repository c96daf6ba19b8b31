"""How a run stands: from its files, and one query each of Slurm's queue and accounting."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from typing import Literal

from jobs import after
from jobs.run import codes, derived, submissions
from jobs.run import timing as timings
from jobs.run.endings import Endings, by_shard, count_endings, endings_in_journal
from jobs.run.files import is_held
from jobs.run.folder import RunFolder
from jobs.run.submissions import Submission, files_of_shards, first_shard
from jobs.slurm import client
from jobs.slurm.client import Task
from jobs.watch import failures
from jobs.watch.answers import Answers, SlurmWatch, after_job, at_work, how_to_conclude
from jobs.watch.progress import logs_of, phase_of
from jobs.watch.recent import Recent

ShardState = Literal["finished", "running", "queued", "stopped", "not submitted", "unknown"]
"""`stopped`: unfinished, and no worker is coming; `unknown`: unfinished, and Slurm's queue did not answer."""

SILENT_SECONDS = 600.0
"""Time without an accepted step after which the status of a worker says so."""
_CLOCK_SECONDS = 2.0
"""Slurm counts a task's time in whole seconds."""
_MAY_PROGRESS: frozenset[ShardState] = frozenset({"running", "queued", "unknown"})


@dataclass
class ShardStatus:
    """How one shard stands."""

    shard: int
    planned: int
    """Number of its samples."""
    finished: int = 0
    failed: int = 0
    """Number of finished samples with stop reason `error`."""
    state: ShardState = "not submitted"
    task: Task | None = None
    """The shard's latest task in Slurm."""
    last_error: str = ""
    log: str = ""
    """Path of the log that says why it stopped; empty if it has not, or if there is none."""
    silent_seconds: float | None = None
    """How long its worker has accepted no step, where that is long; since its start where it has accepted none."""
    starting: str = ""
    """What its worker is at while engines start, such as `target: loading weights (50 %)`."""
    num_begun: int = 0
    """Number of samples that began and have not ended in the latest journal of the worker whose first shard it is."""
    has_worker: bool = True
    """False where no process holds the shard of a run that was not submitted to Slurm."""

    @property
    def num_unfinished(self) -> int:
        """Number of samples that are not finished."""
        return self.planned - self.finished


@dataclass
class RunStatus:
    """How a whole run stands."""

    run_id: str
    shards: list[ShardStatus]
    tokens_per_second: dict[str, float] = field(default_factory=dict)
    """Output tokens of each model, over the last five minutes."""
    samples_per_second: float = 0.0
    is_on_slurm: bool = False
    """True if the run was submitted to Slurm."""
    gpu_hours: float | None = None
    """GPU-hours of all starts of all tasks; None where accounting does not answer."""
    shared_with: list[str] = field(default_factory=list)
    """Other runs that some of these tasks worked on as well, whose GPU-hours are among them."""
    codes: list[str] = field(default_factory=list)
    """The codes that work on the run, in words, where they are more than one."""
    free_bytes: int = 0
    """Free space on the disk of the run folder."""
    to_time: int = 0
    """Samples that run again, one at a time, once all have ended."""
    timed: int = 0
    """Number of these that have ended."""
    is_timing: bool = False
    """True if a worker times samples now."""
    missing: str = ""
    """What the finished run lacks of grades and results, in words; empty where nothing."""
    how_to_conclude: str = ""
    """One line for the user: what is missing, why if that is known, and what happens next or which command to run.

    Empty where nothing is missing, and where Slurm's queue did not answer."""
    is_concluding: bool = False
    """True if a job that grades and loads the finished run is running or queued, or may be because Slurm's queue did
    not answer."""
    how_to_resume: str = ""
    """One line for the user where nothing on this machine works on a run that was begun here and is not finished."""
    slurm_error: str = ""
    """Why Slurm's queue or accounting is missing, in one line; empty where both answered."""

    @property
    def planned(self) -> int:
        """Number of all samples."""
        return sum(shard.planned for shard in self.shards)

    @property
    def finished(self) -> int:
        """Number of samples that ended."""
        return sum(shard.finished for shard in self.shards)

    @property
    def is_finished(self) -> bool:
        """True if all samples have ended, and those that were to be timed are."""
        return self.finished == self.planned and self.timed == self.to_time

    @property
    def failed(self) -> int:
        """Number of samples that ended in an error."""
        return sum(shard.failed for shard in self.shards)

    @property
    def in_flight(self) -> int:
        """Number of samples that workers are at work on, as far as Slurm or their locks tell which are alive."""
        return sum(
            shard.num_begun
            for shard in self.shards
            if (shard.has_worker if shard.task is None else shard.task.state == "RUNNING")
        )

    @property
    def eta_seconds(self) -> float | None:
        """Seconds until the run ends at the pace of the last five minutes; None without a pace.

        None also where no worker is at work: all have ended, or wait in Slurm's queue.
        """
        unfinished = self.planned - self.finished
        if self.is_on_slurm:
            is_at_work = bool(self.states.keys() & {"running", "unknown"})
        else:
            is_at_work = any(shard.has_worker for shard in self.shards)
        if not is_at_work:
            return None
        return unfinished / self.samples_per_second if self.samples_per_second and unfinished else None

    @property
    def states(self) -> Counter[ShardState]:
        """Number of shards in each state."""
        return Counter(shard.state for shard in self.shards)

    @property
    def may_progress(self) -> bool:
        """True if a shard is running or queued, or may be because Slurm did not answer."""
        return self.is_timing or any(shard.state in _MAY_PROGRESS for shard in self.shards)


class Watch:
    """The status of runs, read again and again: Slurm is asked once for all of them."""

    def __init__(self, runs: Sequence[RunFolder]) -> None:
        self._runs = list(runs)
        self._slurm = SlurmWatch()

    def read(self) -> list[RunStatus]:
        """Read the run folders, and ask Slurm where runs were submitted to it."""
        numbers = range(len(self._runs))
        statuses = {number: _of_files(self._runs[number]) for number in numbers}
        submitted = {number: found for number in numbers if (found := submissions.read(self._runs[number]))}
        names = [name for number, earlier in submitted.items() for name in _names(self._runs[number], earlier)]
        times = [submission.submitted_at for earlier in submitted.values() for submission in earlier]
        answers = self._slurm.ask(list(dict.fromkeys(names)), min(times, default=0.0))
        for number in numbers:
            if earlier := submitted.get(number):
                _add_slurm(self._runs[number], earlier, answers, statuses[number])
            else:
                _add_workers_here(self._runs[number], statuses[number])
        return list(statuses.values())


def status(run: RunFolder) -> RunStatus:
    """Read the run folder, and ask Slurm where the run was submitted to it."""
    return Watch([run]).read()[0]


def _of_files(run: RunFolder) -> RunStatus:
    """Return how a run stands by its files, as if there were no Slurm."""
    run.check()
    derived.name_damaged(run)
    recent = Recent()
    begun: dict[int, int] = {}
    endings = _read_endings(run, recent, begun)
    ended = by_shard(run, endings)
    counts = zip(ended.planned, ended.finished, ended.failed, strict=True)
    shards = [ShardStatus(number, *of_shard) for number, of_shard in enumerate(counts)]
    result = RunStatus(run.path.name, shards, recent.tokens_per_second(), recent.samples_per_second())
    timing = timings.progress(run)
    result.to_time, result.timed = timing.asked, timing.done
    result.is_timing = bool(timing.left and not ended.num_unfinished and timings.is_at_work(run))
    if missing := after.missing(run, endings):
        result.missing, result.how_to_conclude = missing, how_to_conclude(run, missing)
    result.free_bytes = shutil.disk_usage(run.path).free
    recorded = codes.read(run)
    result.codes = [str(code) for code in recorded] if len(recorded) > 1 else []
    for shard in shards:
        shard.num_begun = begun.get(shard.shard, 0)
        shard.state = "stopped" if shard.num_unfinished else "finished"
    return result


def _read_endings(run: RunFolder, recent: Recent, begun: dict[int, int]) -> Endings:
    """Read how samples ended, and from the same files add what was done in the last minutes to `recent`.

    `begun` is given the number of samples that began and have not ended in the latest journal of each first shard.
    """
    journals: dict[str, dict[str, bool]] = {}
    ids = run.ids()
    assignment = run.assignment()
    for path in run.journals():  # the latest last
        try:
            content = path.read_bytes()
            is_being_written = path.stat().st_mtime >= recent.since
        except FileNotFoundError:
            continue  # compacted since the listing
        journals[path.stem] = endings_in_journal(path, content, ids, whole=False)
        if is_being_written:
            recent.add_journal(content)
            if (first := first_shard(path, assignment)) is not None:
                begun[first] = content.count(b'{"event":"start"') - len(journals[path.stem])
    trace_files = run.trace_files()
    for path in trace_files:
        if path.stem not in journals and path.stat().st_mtime >= recent.since:
            recent.add_trace_file(path)
    return count_endings(run, journals, trace_files)


def _add_slurm(run: RunFolder, earlier: Sequence[Submission], answers: Answers, result: RunStatus) -> None:
    """Add the state, the task and the last error of every shard, and the GPU-hours of the run."""
    result.is_on_slurm = True
    names = {*_names(run, earlier)}
    history = [task for task in answers.history if task.name in names]
    if answers.has_history:
        result.gpu_hours = sum(task.gpu_hours for task in history)
    result.slurm_error = "; ".join(answers.errors)
    tasks = client.latest([*history, *(task for task in answers.queued if task.name in names)])
    if result.missing:
        result.how_to_conclude = after_job(run, result.missing, earlier, answers)
        result.is_concluding = not answers.has_queue or bool(at_work(run, earlier, answers))
    left_jobs = submissions.left(run)
    result.shared_with = sorted(
        {name for job in submissions.read_shared(run).values() for name in job.runs} - {run.path.name}
    )
    for submission in earlier:
        for index, numbers in enumerate(submission.tasks):
            for number in numbers:
                if number < len(result.shards):
                    task = None if submission.name in left_jobs else tasks.get((submission.name, index))
                    before = result.shards[number].task
                    if before is None or not before.is_active or (task is not None and task.is_active):
                        _set_state(run, result.shards[number], task, has_queue=answers.has_queue)
    # A task that is shared with other runs may be at work on those.
    shared = submissions.read_shared(run)
    of_run = [shard for shard in result.shards if shard.task and shard.task.name not in shared]
    several = {submission.name for submission in earlier if submission.has_several_workers}
    _note_silence_and_starts(run, of_run, several)


def _note_silence_and_starts(run: RunFolder, shards: Sequence[ShardStatus], several: Container[str]) -> None:
    """Note which running shards have accepted no step for long, and what workers are at while their engines start.

    By the times of the journals: logs of engines are read only of workers without one. `several`: names of jobs whose
    tasks have several workers, of whose shards some wait.
    """
    running = [shard for shard in shards if shard.state == "running"]
    journals, now = run.journals() if running else [], time.time()
    for shard in running:
        elapsed, name = (shard.task.elapsed_seconds, shard.task.name) if shard.task else (0.0, "")
        written_at = 0.0
        for path in files_of_shards(run, [shard.shard], journals):
            with contextlib.suppress(FileNotFoundError):  # compacted since the listing
                written_at = max(written_at, path.stat().st_mtime)
        silent = min(elapsed, now - written_at)
        shard.silent_seconds = silent if silent >= SILENT_SECONDS and name not in several else None
        if written_at < (since := now - elapsed - _CLOCK_SECONDS):
            shard.starting = phase_of(logs_of(run, shard.shard), since)


def _add_workers_here(run: RunFolder, result: RunStatus) -> None:
    """Add which shards workers hold by their locks, and what ended others; which of them had which shard is lost."""
    for shard in result.shards:
        shard.has_worker = is_held(run.shard_lock_path(shard.shard))
        if shard.has_worker and shard.num_unfinished:
            shard.state, shard.starting = "running", phase_of(logs_of(run, shard.shard), 0.0)
    is_begun = bool(result.finished or run.journals())
    is_idle = not (result.is_finished or result.is_timing or any(shard.has_worker for shard in result.shards))
    if is_begun and is_idle:
        result.how_to_resume = (
            "no worker is at work on it; unless a launch or suite with it is still running, to resume it, run its "
            "launch command again"
        )
    stopped = [shard for shard in result.shards if shard.state == "stopped"]
    error, log = failures.local_error(run) if stopped else ("", None)
    for shard in stopped:
        shard.last_error, shard.log = error, str(log or "")


def _names(run: RunFolder, earlier: Sequence[Submission]) -> list[str]:
    """Return the names of a run's jobs, of which the last one grades and loads."""
    return [*(submission.name for submission in earlier), submissions.finalizer_of(run, earlier[-1])]


def _set_state(run: RunFolder, shard: ShardStatus, task: Task | None, *, has_queue: bool) -> None:
    shard.task = task
    shard.last_error = shard.log = ""
    if not shard.num_unfinished:
        shard.state = "finished"
    elif task is None:
        shard.state = "stopped" if has_queue else "unknown"
    elif task.is_active:
        shard.state = "running" if task.state in {"RUNNING", "COMPLETING"} else "queued"
    else:
        shard.state = "stopped"
        shard.last_error = failures.reason(run, task)
        shard.log = str(log) if (log := failures.log_path(run, task)).exists() else ""
