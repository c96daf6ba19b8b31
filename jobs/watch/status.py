"""How a run stands: from its files, and one look each at Slurm's queue and accounting."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from jobs.run import submissions
from jobs.run.endings import Endings, by_shard, count_endings, endings_in_journal
from jobs.run.folder import RunFolder
from jobs.slurm import client
from jobs.slurm.client import Task
from jobs.watch.recent import Recent

_LOG_TAIL_BYTES = 64 << 10
_ERROR = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception|Died|Silent|Unavailable)\b.*|.*\berror: .*", re.IGNORECASE)


@dataclass
class ShardStatus:
    """One shard."""

    shard: int
    planned: int
    finished: int = 0
    failed: int = 0
    """Finished with stop reason `error`."""
    where: str = "not submitted"
    """finished, running, waiting, stopped or not submitted."""
    task: Task | None = None
    """Its latest task in Slurm."""
    last_error: str = ""

    @property
    def num_unfinished(self) -> int:
        """Number of samples that are not finished."""
        return self.planned - self.finished


@dataclass
class RunStatus:
    """A whole run."""

    run_id: str
    shards: list[ShardStatus]
    in_flight: int = 0
    """Samples that began and have not ended in journals that are being written."""
    tokens_per_second: dict[str, float] = field(default_factory=dict)
    """By model, over the last five minutes."""
    samples_per_second: float = 0.0
    gpu_hours: float | None = None
    """Of all starts of all tasks; None where accounting does not answer."""
    free_bytes: int = 0
    """Room left on the disk of the run folder."""
    slurm_error: str = ""
    """Why Slurm's part is missing."""

    @property
    def planned(self) -> int:
        """All samples."""
        return sum(shard.planned for shard in self.shards)

    @property
    def finished(self) -> int:
        """Samples that ended."""
        return sum(shard.finished for shard in self.shards)

    @property
    def failed(self) -> int:
        """Of these, with an error."""
        return sum(shard.failed for shard in self.shards)

    @property
    def eta_seconds(self) -> float | None:
        """At the pace of the last five minutes."""
        left = self.planned - self.finished
        return left / self.samples_per_second if self.samples_per_second and left else None

    @property
    def states(self) -> Counter[str]:
        """How many shards are where."""
        return Counter(shard.where for shard in self.shards)


def status(run: RunFolder) -> RunStatus:
    """Read the run folder, and Slurm where the run was submitted to it."""
    recent = Recent()
    ended = by_shard(run, _read(run, recent))
    counted = zip(ended.planned, ended.finished, ended.failed, strict=True)
    shards = [ShardStatus(number, *counts) for number, counts in enumerate(counted)]
    found = RunStatus(run.path.name, shards, recent.in_flight, recent.tokens_per_second(), recent.samples_per_second())
    found.free_bytes = shutil.disk_usage(run.path).free
    _ask_slurm(run, found)
    return found


def _read(run: RunFolder, recent: Recent) -> Endings:
    journals: dict[str, dict[str, bool]] = {}
    for path in run.journals():
        try:
            content = path.read_bytes()
            live = path.stat().st_mtime >= recent.since
        except FileNotFoundError:
            continue  # compacted since the listing
        journals[path.stem] = endings_in_journal(content)
        if live:
            recent.add_journal(content, len(journals[path.stem]))
    trace_files = run.trace_files()
    for path in trace_files:
        if path.stem not in journals and path.stat().st_mtime >= recent.since:
            recent.add_trace_file(path)
    return count_endings(run, journals, trace_files)


def _ask_slurm(run: RunFolder, found: RunStatus) -> None:
    before = submissions.read(run)
    if not before:
        for shard in found.shards:
            shard.where = "stopped" if shard.num_unfinished else "finished"
        return
    names = [submission.name for submission in before]
    try:
        at_work = client.queue(names)
    except client.SlurmError as silent:
        at_work, found.slurm_error = [], str(silent)
    try:
        history = client.accounts([*names, submissions.finalizer_name(names[-1])])
        found.gpu_hours = sum(task.gpu_hours for task in history)
    except client.SlurmError as silent:
        history, found.slurm_error = [], str(silent)
    tasks = client.latest([*history, *at_work])
    for submission in before:
        for index, numbers in enumerate(submission.tasks):
            for number in numbers:
                if number < len(found.shards):
                    _place(
                        run, found.shards[number], tasks.get((submission.name, index)), unknown=bool(found.slurm_error)
                    )


def _place(run: RunFolder, shard: ShardStatus, task: Task | None, *, unknown: bool) -> None:
    shard.task = task
    if not shard.num_unfinished:
        shard.where = "finished"
    elif task is None:
        shard.where = "unknown" if unknown else "stopped"
    elif task.is_active:
        shard.where = "running" if task.state in {"RUNNING", "COMPLETING"} else "waiting"
    else:
        shard.where = "stopped"
        own = last_error(run, task) if task.state in {"FAILED", "COMPLETED"} else ""
        shard.last_error = own or f"Slurm: {task.reason if task.is_held else task.state}"


def log_path(run: RunFolder, job_id: str) -> Path:
    """What the task of a job printed."""
    return run.logs_dir / "jobs" / f"{job_id}_0_log.out"


def last_error(run: RunFolder, task: Task) -> str:
    """The last line of a task's log that names an error."""
    path = log_path(run, task.job_id)
    if not path.exists():
        return ""
    with path.open("rb") as log:
        log.seek(max(0, path.stat().st_size - _LOG_TAIL_BYTES))
        lines = log.read().decode("utf-8", "replace").splitlines()
    named = [line.strip() for line in lines if _ERROR.match(line.strip())]
    return named[-1][:300] if named else ""
