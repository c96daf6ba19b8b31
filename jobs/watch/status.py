"""Status of runs from their files, the locks of local workers, and one query each to Slurm's queue and accounting."""

from __future__ import annotations

import contextlib
import math
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from shlex import quote
from typing import Literal

from pydantic import JsonValue

from harness.cli.messages import counted
from harness.cli.number_format import duration
from harness.cli.program import typed
from harness.cli.screen import Column, Line, Page, Table, printable
from jobs.finished import grading
from jobs.run import codes, derived, submissions
from jobs.run import timing as timings
from jobs.run.endings import ShardEndings, by_shard, read_endings
from jobs.run.files import FileDamaged
from jobs.run.folder import RunFolder
from jobs.run.submissions import Submission, files_of_shards, first_shard
from jobs.slurm import client
from jobs.slurm.client import Task
from jobs.watch import exit_reasons
from jobs.watch.follow import PACE_SECONDS, Pace, phases, rates_in_words

State = Literal["finished", "under way", "not begun", "damaged"]
"""`under way`: started, whether or not a worker is active."""
ShardState = Literal["finished", "running", "queued", "stopped", "unknown"]
"""`stopped`: unfinished without a current or pending worker; `unknown`: unfinished, and Slurm did not respond."""

_HISTORY_SECONDS = 600.0
"""Interval of accounting queries if no task has left the queue."""
_SILENT_SECONDS = 600.0
"""Time without an accepted step after which a shard is reported as silent."""
_CLOCK_SECONDS = 2.0
"""Tolerance for times from Slurm, which are whole seconds."""
_MAX_ROWS = 32
"""Maximum number of listed shards; with more, only those that have stopped or make no progress are listed."""
_MAX_LOGS = 3
_NUMBERS = {"shard", "samples", "failed", "age"}
_COPIED = {"run", "tag", "age"}
"""Columns that are not wrapped: users copy their texts, or the texts are short."""


@dataclass
class ShardStatus:
    """Status of one shard; the fields are the keys of `--json`."""

    shard: int
    planned: int
    """Number of samples in the shard."""
    finished: int = 0
    failed: int = 0
    """Number of finished samples with stop reason `error`."""
    state: ShardState = "stopped"
    task: Task | None = None
    """The shard's latest task in Slurm."""
    last_error: str = ""
    """Why the worker exited, in one line; empty if it is running or the reason is unknown."""
    log: str = ""
    """Path of the worker's log with the reason; empty if there is none."""
    silent_seconds: float | None = None
    """Time since the last accepted step or the worker's start, whichever is later; None if short or unknown."""
    starting: str = ""
    """Startup phase of the worker's engines, such as `target: loading weights (50 %)`."""
    num_begun: int = 0
    """Number of samples in flight, from the latest journal of the worker that began with this shard."""
    has_worker: bool = False
    """Whether a worker holds the shard, according to the shard's lock on this machine or to Slurm."""

    @property
    def num_unfinished(self) -> int:
        """Number of unfinished samples."""
        return self.planned - self.finished


@dataclass
class RunStatus:
    """Status of a whole run."""

    run_id: str
    shards: list[ShardStatus]
    state: State = "not begun"
    tokens_per_second: dict[str, float] = field(default_factory=dict)
    """Output tokens per second of each model, over the last five minutes."""
    samples_per_second: float = 0.0
    gpu_hours: float | None = None
    """GPU-hours of all starts of all tasks; None for local runs, or if accounting never responded."""
    shared_with: list[str] = field(default_factory=list)
    """Names of other runs in the same tasks; `gpu_hours` includes their GPU-hours."""
    codes: list[str] = field(default_factory=list)
    """The code versions that may have worked on the run; empty if there is only one."""
    to_time: int = 0
    """Number of samples to rerun one at a time after all samples have ended."""
    timed: int = 0
    """Number of timing samples that have ended."""
    is_timing: bool = False
    """True if a worker is timing samples."""
    missing: str = ""
    """`not graded` or `not loaded` if the finished run has no grades or no result; otherwise empty."""
    next_step: str = ""
    """One line for a finished run without results, or an unfinished local run without workers: the reason if known,
    and what happens next or which command to run. Empty otherwise, or if Slurm's queue did not respond."""
    is_concluding: bool = False
    """True if a job that grades and loads the finished run is running or queued, or if this is unknown because Slurm's
    queue did not respond."""
    slurm_error: str = ""
    """Why Slurm's queue or accounting did not respond, in one line; empty if both did."""

    @property
    def planned(self) -> int:
        """Number of planned samples."""
        return sum(shard.planned for shard in self.shards)

    @property
    def finished(self) -> int:
        """Number of samples that ended."""
        return sum(shard.finished for shard in self.shards)

    @property
    def is_finished(self) -> bool:
        """True if all samples, including timing samples, have ended."""
        return self.state == "finished"

    @property
    def failed(self) -> int:
        """Number of samples that ended in an error."""
        return sum(shard.failed for shard in self.shards)

    @property
    def in_flight(self) -> int:
        """Number of samples that workers are running."""
        return sum(shard.num_begun for shard in self.shards if shard.has_worker)

    @property
    def eta_seconds(self) -> float | None:
        """Seconds until the run ends at the throughput of the last five minutes.

        None if all samples have ended, none has ended recently, or no worker is active.
        """
        unfinished = self.planned - self.finished
        is_at_work = self.states["unknown"] or any(shard.has_worker for shard in self.shards)
        return unfinished / self.samples_per_second if is_at_work and unfinished and self.samples_per_second else None

    @property
    def states(self) -> Counter[ShardState]:
        """Number of shards in each state."""
        return Counter(shard.state for shard in self.shards)

    def record(self, run: RunFolder) -> dict[str, JsonValue]:
        """Return the status with its shards for `--json`; keys in common with `jobs list --json` mean the same."""
        names = ("planned", "finished", "failed", "in_flight", "eta_seconds", "may_progress")
        shards = [{**asdict(shard), "num_unfinished": shard.num_unfinished} for shard in self.shards]
        own = {**asdict(self), **{name: getattr(self, name) for name in names}}
        return {"run": str(run.path), **own, "states": dict(self.states), "shards": shards}

    @property
    def may_progress(self) -> bool:
        """True if a shard is running, queued or (because Slurm did not respond) unknown, or samples are being timed."""
        return self.is_timing or bool(self.states.keys() & {"running", "queued", "unknown"})


class Watch:
    """Reads the status of runs repeatedly, with one query of Slurm's queue for all runs.

    Accounting is a database shared by all users of a site. It is queried at the first poll, whenever a task has left
    the queue, after a failed query, and otherwise every ten minutes.
    """

    def __init__(self, runs: Sequence[RunFolder]) -> None:
        self._runs = list(runs)
        self.queued: list[Task] = []
        self._answered: list[Task] = []
        """The tasks in the queue when it last responded."""
        self.queue_error = self.history_error = ""
        """Why the queue or accounting did not respond, in one line."""
        self.history: list[Task] | None = None
        """Tasks from accounting, possibly from an earlier poll; None if accounting never responded."""
        self._asked_at = -math.inf

    def read(self) -> list[RunStatus]:
        """Return the status of each run from its folder and, for runs submitted to Slurm, from Slurm."""
        statuses = [_of_files(run) for run in self._runs]
        submitted = [submissions.read(run) for run in self._runs]
        self._ask([one for one, earlier in zip(self._runs, submitted, strict=True) if earlier])
        for run, earlier, found in zip(self._runs, submitted, statuses, strict=True):
            if earlier:
                _add_slurm(run, earlier, self, found)
            else:
                _add_workers_here(run, found)
        return statuses

    def _ask(self, runs: Sequence[RunFolder]) -> None:
        if not runs:
            return
        before, self.queue_error = self._answered, ""
        try:
            names = dict.fromkeys(name for run in runs for name in _names(run))
            self.queued = self._answered = client.queue(list(names))
        except client.SlurmError as error:
            self.queued, self.queue_error = [], str(error)
        # Accounting may lag behind the queue by some seconds and still report finished tasks as active.
        active = [*before, *(task for task in client.latest(self.history or []).values() if task.is_active)]
        has_left = {task.job_id for task in active} - {task.job_id for task in self.queued}
        is_due = bool(has_left or self.history_error) and not self.queue_error
        if is_due or time.monotonic() - self._asked_at >= _HISTORY_SECONDS:
            self._asked_at = time.monotonic()
            try:
                self.history, self.history_error = _accounts(runs, self.queued), ""
            except client.SlurmError as error:
                self.history_error = str(error)


def _accounts(runs: Sequence[RunFolder], queued: Sequence[Task]) -> list[Task]:
    """Query accounting for the jobs of runs, by the ids that are recorded or in the queue. Raises SlurmError.

    The queue also contains jobs of launchers that died right after sbatch, before they recorded the job's id.
    """
    ids = [job_id for run in runs for job_id in submissions.job_ids(run)]
    ids += [task.job_id.partition("_")[0] for task in queued]
    since = min(submission.submitted_at for run in runs for submission in submissions.read(run))
    return client.accounts(list(dict.fromkeys(ids)), since)


def status(run: RunFolder) -> RunStatus:
    """Return the status of one run."""
    return Watch([run]).read()[0]


def _of_files(run: RunFolder) -> RunStatus:
    """Return a run's status from its files, without Slurm.

    The digests of trace files are verified only for finished runs, because this takes seconds for large runs; damage
    that would prevent loading is then detected.
    """
    pace, begun, since, assignment = Pace(), dict[int, int](), time.time() - PACE_SECONDS, run.assignment()

    def note(journal: Path, content: bytes, ended: Mapping[str, bool]) -> None:
        """Record recent work and each worker's number of samples in flight, under the worker's first shard."""
        if journal.stat().st_mtime >= since:
            pace.add_journal(content)
            if (first := first_shard(journal, assignment)) is not None:
                begun[first] = content.count(b'{"event":"start"') - len(ended)

    endings = read_endings(run, whole=False, note=note)
    ended = by_shard(run, endings)
    if not ended.num_left:
        derived.name_damaged(run)
        endings = read_endings(run)
        ended = by_shard(run, endings)
    counts = zip(ended.planned, ended.finished, ended.failed, strict=True)
    shards = [ShardStatus(number, *of_shard, num_begun=begun.get(number, 0)) for number, of_shard in enumerate(counts)]
    for shard in shards:
        shard.state = "stopped" if shard.num_unfinished else "finished"
    timing, missing, recorded = ended.timing, grading.missing(run, endings), codes.read(run)
    return RunStatus(
        run.path.name,
        shards,
        state_of(run, ended),
        *pace.rates(time.time()),
        codes=[str(code) for code in recorded] if len(recorded) > 1 else [],
        to_time=timing.asked,
        timed=timing.done,
        is_timing=bool(timing.left and not ended.num_unfinished and timings.is_at_work(run)),
        missing=missing,
        next_step=how_to_conclude(run, missing) if missing else "",
    )


def state_of(run: RunFolder, ended: ShardEndings) -> State:
    """Return a run's state from how its samples ended."""
    if not ended.num_left:
        return "finished"
    return "under way" if sum(ended.finished) or run.journals() or exit_reasons.local_logs(run) else "not begun"


def _add_workers_here(run: RunFolder, result: RunStatus) -> None:
    """Mark as running the shards that local workers have locked, and add the latest exit reason to stopped shards."""
    for shard in result.shards:
        shard.has_worker = run.are_held([shard.shard])
        if shard.has_worker and shard.num_unfinished:
            shard.state, shard.starting = "running", phases(run, 0.0, shard.shard)
    if result.state == "under way" and not (result.is_timing or any(shard.has_worker for shard in result.shards)):
        result.next_step = (
            "no worker is active; to resume, run the launch command again, unless a launch or suite that includes "
            "this run is still running"
        )
    stopped = [shard for shard in result.shards if shard.state == "stopped"]
    error, log = exit_reasons.local_reason(run) if stopped else ("", "")
    for shard in stopped:
        shard.last_error, shard.log = error, log


def _names(run: RunFolder) -> list[str]:
    """Return the names of a run's jobs; the last one grades and loads."""
    earlier = submissions.read(run)
    return [*(submission.name for submission in earlier), submissions.finalizer_of(run, earlier[-1])]


def _add_slurm(run: RunFolder, earlier: Sequence[Submission], slurm: Watch, result: RunStatus) -> None:
    """Add state, task and last error of every shard, and the GPU-hours of the run."""
    result.slurm_error = "; ".join(filter(None, (slurm.queue_error, slurm.history_error)))
    names = {*_names(run)}
    history = [task for task in slurm.history or () if task.name in names]
    tasks = client.latest([*history, *(task for task in slurm.queued if task.name in names)])
    if slurm.history is not None:
        result.gpu_hours = sum(task.gpu_hours for task in history)
    if result.missing:
        _add_conclusion(run, earlier, slurm, result)
    left_jobs = submissions.left(run)
    result.shared_with = sorted({name for submission in earlier for name in submission.runs} - {run.path.name})
    last: dict[int, Task | None] = {}
    for submission in earlier:
        for index, numbers in enumerate(submission.tasks):
            task = None if submission.name in left_jobs else tasks.get((submission.name, index))
            for number in numbers:
                if (before := last.get(number)) is None or not before.is_active or (task and task.is_active):
                    last[number] = task
    for shard in result.shards:
        if shard.shard in last:
            _set_state(run, shard, last[shard.shard], has_queue=not slurm.queue_error)
    # Workers of these tasks may be working on another shard or run.
    several = {submission.name for submission in earlier if submission.has_several_workers or submission.runs}
    _note_silence_and_starts(run, result.shards, several)


def _set_state(run: RunFolder, shard: ShardStatus, task: Task | None, *, has_queue: bool) -> None:
    shard.task, shard.has_worker = task, task is not None and task.state in {"RUNNING", "COMPLETING"}
    if not shard.num_unfinished:
        return
    if task is None:
        shard.state = "stopped" if has_queue else "unknown"
    elif task.is_active:
        shard.state = "running" if shard.has_worker else "queued"
    else:
        shard.last_error = exit_reasons.task_reason(run, task)
        shard.log = str(log) if (log := exit_reasons.log_path(run, task)).exists() else ""


def _note_silence_and_starts(run: RunFolder, shards: Sequence[ShardStatus], elsewhere: Collection[str]) -> None:
    """Add how long running shards have been silent, and the startup phase of their engines.

    Uses journal timestamps; engine logs are read only for workers that have not written a journal since they started.
    `elsewhere`: names of jobs whose workers may be working on another shard or run, so silence is not reported.
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
        shard.silent_seconds = silent if silent >= _SILENT_SECONDS and name not in elsewhere else None
        if written_at < (since := now - elapsed - _CLOCK_SECONDS):
            shard.starting = phases(run, since, shard.shard)


def _add_conclusion(run: RunFolder, earlier: Sequence[Submission], slurm: Watch, result: RunStatus) -> None:
    """Add which job grades and loads a finished run, or how the last such job ended."""
    names = [submissions.finalizer_of(run, submission) for submission in earlier]
    at_work = [task for task in slurm.queued if task.name in names and task.is_active]
    result.is_concluding = bool(slurm.queue_error or at_work)
    ended = [task for task in (*(slurm.history or ()), *slurm.queued) if task.name == names[-1] and not task.is_active]
    if slurm.queue_error:
        result.next_step = ""
    elif at_work:
        result.next_step = in_queue(result.missing, at_work[-1])
    elif ended:
        why = f"job {ended[-1].job_id}: {exit_reasons.task_reason(run, ended[-1])}"
        result.next_step = how_to_conclude(run, result.missing, why)


def how_to_conclude(run: RunFolder, missing: str, why: str = "") -> str:
    """Return one line: what is missing, the reason if known, and the command that completes the run."""
    reason = f" ({why})" if why else ""
    return f"{missing}{reason}:  {typed('jobs finalize')} {quote(str(run.path))}"


def in_queue(missing: str, task: Task) -> str:
    """Return the line for a finished run whose grading job, `task`, is running or queued."""
    reason = f", {task.reason}" if task.state == "PENDING" and task.reason else ""
    return f"{missing} yet: handled by job {task.job_id} ({task.state}{reason})"


def page(status: RunStatus) -> Page:
    """Return the printed status of a run: header lines, a table of shards, and the logs of stopped shards."""
    yield from map(Line, _header(status))
    is_short = len(status.shards) <= _MAX_ROWS
    listed = [s for s in status.shards if is_short or s.state == "stopped" or s.silent_seconds][:_MAX_ROWS]
    logs = dict.fromkeys(shard.log for shard in listed if shard.log)
    if listed:
        yield _table([_row(shard) for shard in listed], [f"log: {path}" for path in [*logs][:_MAX_LOGS]])


def _table(rows: Sequence[Mapping[str, str]], notes: Sequence[str] = ()) -> Table:
    """Return a table without empty columns. On narrow terminals, columns that users do not copy are wrapped."""
    names = [name for name in rows[0] if any(row[name] for row in rows)]
    columns = [Column(name, is_right=name in _NUMBERS, is_folded=name not in _COPIED) for name in names]
    return Table(columns, [[row[name] for name in names] for row in rows], notes)


def _header(status: RunStatus) -> list[str]:
    share = status.finished / status.planned if status.planned else 0.0
    samples = "sample" if status.planned == 1 else "samples"
    first = [f"{status.run_id}: {status.finished:,} of {status.planned:,} {samples} finished ({share:.0%})"]
    first += [f"{status.failed} failed"] if status.failed else []
    first += [f"{status.in_flight} in flight"] if status.in_flight else []
    shards = ", ".join(f"{count} {state}" for state, count in sorted(status.states.items()))
    rates = rates_in_words(status.tokens_per_second)
    third = [rates] if rates else []
    third += [f"ETA {duration(status.eta_seconds)}"] if status.eta_seconds is not None else []
    shared = f" (with {counted(len(status.shared_with), 'run')} in the same jobs)" if status.shared_with else ""
    third += [f"{status.gpu_hours:.2f} GPU-hours{shared}"] if status.gpu_hours else []
    timed = f"{status.timed:,} of {counted(status.to_time, 'sample')}"
    lines = [" · ".join(first), f"shards: {shards}"]
    lines += [f"timing, one at a time: {timed}{', after all others' * (share < 1)}"] if status.to_time else []
    lines += [" · ".join(third), status.next_step]
    lines += [f"code changed: {', then '.join(status.codes)}"] if status.codes else []
    lines += [f"Slurm does not respond: {status.slurm_error}"] if status.slurm_error else []
    return [line for line in lines if line]


def _row(shard: ShardStatus) -> dict[str, str]:
    task = shard.task
    silence = f"no step for {duration(shard.silent_seconds)}" if shard.silent_seconds else ""
    waits_for = task.reason if task and shard.state == "queued" else ""
    return {
        "shard": str(shard.shard),
        "samples": f"{shard.finished}/{shard.planned}",
        "failed": str(shard.failed or ""),
        "state": shard.state,
        "task": task.job_id if task else "",
        "node": task.node if task else "",
        "elapsed": duration(task.elapsed_seconds) if task and task.elapsed_seconds else "",
        "last error or reason": shard.last_error or "; ".join(filter(None, (silence, shard.starting, waits_for))),
    }


@dataclass(frozen=True)
class ListedRun:
    """A run in a list; the fields are the keys of `jobs list --json`."""

    run: str
    """Path of the run folder."""
    method: str = ""
    dataset: str = ""
    draft: str | None = None
    target: str | None = None
    tag: str | None = None
    state: State | Literal["stopped"] = "damaged"
    """`stopped`: under way on this machine without an active worker."""
    finished: int = 0
    planned: int = 0
    failed: int = 0
    age_seconds: float | None = None
    """Time since the run was planned."""
    error: str | None = None
    """Why a damaged run cannot be read, in one line."""
    run_id: str = ""
    """Name of the run folder, as in the database."""
    to_time: int = 0
    """Number of samples to rerun one at a time after all samples have ended; until then, the run is under way."""
    timed: int = 0
    """Number of timing samples that have ended."""


def listed(runs: Iterable[RunFolder]) -> list[ListedRun]:
    """Return runs with their states read from files only, newest first."""
    found = [_listed(run) for run in runs]
    return sorted(found, key=lambda run: (run.age_seconds is None, run.age_seconds or 0.0, run.run))


def _listed(run: RunFolder) -> ListedRun:
    try:
        run.exists()  # raises for an invalid name
        spec, ended = run.spec(), by_shard(run, read_endings(run, whole=False))
        age = max(0.0, time.time() - run.spec_path.stat().st_mtime)
        state = state_of(run, ended)
        is_local = state == "under way" and not (submissions.read(run) or timings.is_at_work(run))
        is_stopped = is_local and not run.are_held(range(run.num_shards()))
    except (FileDamaged, OSError) as error:
        return ListedRun(str(run.path), run_id=run.path.name, error=" ".join(str(error).split()))
    return ListedRun(
        run=str(run.path),
        run_id=run.path.name,
        method=spec.method,
        dataset=spec.dataset,
        draft=spec.draft.name if spec.draft else None,
        target=spec.target.name if spec.target else None,
        tag=spec.tag,
        state="stopped" if is_stopped else state,
        finished=sum(ended.finished),
        planned=sum(ended.planned),
        failed=sum(ended.failed),
        age_seconds=round(age, 1),
        to_time=ended.timing.asked,
        timed=ended.timing.done,
    )


def table_of(runs: Sequence[ListedRun]) -> Table:
    """Return a table with one row per run."""
    return _table([_listed_row(run) for run in runs])


def _listed_row(run: ListedRun) -> dict[str, str]:
    return {
        "run": printable(run.run),
        "models": " → ".join(name for name in (run.draft, run.target) if name),
        "tag": run.tag or "",
        "state": run.state,
        "samples": "" if run.state == "damaged" else f"{run.finished}/{run.planned}",
        "failed": str(run.failed or ""),
        "age": "" if run.age_seconds is None else duration(run.age_seconds),
    }
