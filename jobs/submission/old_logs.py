"""Few files in `logs/jobs`, however often a run was resumed: logs of past jobs become the sections of one file.

Every task leaves a log and two pickles of submitit, every job a batch script. Pickles go as soon as Slurm no longer
has the job. Of each unfinished shard the logs of its two latest jobs stay, since `status` and `logs` show why it
stopped. The ends of all other logs are appended to `earlier.log`, of which the newest megabytes are kept.

A file is touched only if it is this user's, and if Slurm's queue, which was asked for the job by its name, does not
have that job: a colleague's job may be hidden, and another job's pickles are read when it is requeued.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jobs.run import endings, submissions
from jobs.run.files import opened, write_atomically
from jobs.run.folder import RunFolder
from jobs.slurm.client import Task

MERGED = "earlier.log"
_KEPT_STARTS = 2
"""Number of the latest jobs of an unfinished shard whose logs stay as they are."""
_TAIL_BYTES = 16 << 10
"""How much of the end of a log is kept; the exception that ended a worker is there."""
_MOST_BYTES = 8 << 20
"""Size at which the merged file loses its older half."""
_ABANDONED_SECONDS = 24 * 3600.0
"""Age after which what a killed process left half-done is removed."""
_FILE = re.compile(r"(?P<job>\d+)(?P<rest>_.*(?:\.out|\.err|\.pkl|\.sh))")
_LOG = re.compile(r"_(?:(?P<index>\d+)_)?\d+_log\.(?:out|err)")
_JOB_NAME = re.compile(r"^#SBATCH --job-name=(.+)$", re.MULTILINE)
_SECTION = b"\n== log "
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{8}")
"""Name of a file that is being written (jobs.run.files.write_atomically)."""


@dataclass
class _JobFiles:
    """The files of one job."""

    number: int
    logs: dict[Path, int] = field(default_factory=dict)
    """Logs, each with the index of its task in the array, or -1 where the job is no array."""
    pickles: list[Path] = field(default_factory=list)
    scripts: list[Path] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The job's name in Slurm; empty for a process of this machine."""
        with contextlib.suppress(OSError):
            for script in self.scripts:
                if found := _JOB_NAME.search(script.read_text(errors="replace")):
                    return found[1].strip().strip("'\"")
        return ""


def merge(run: RunFolder, queried: Sequence[str], queued: Sequence[Task], unfinished: Sequence[int]) -> None:
    """Put the files of past jobs together. The run's submission lock is held.

    `queried`: the names of jobs that Slurm's queue was asked for, and `queued` its answer; `unfinished`: shards.
    A file that cannot be read or removed stays: this never stops a launch.
    """
    with contextlib.suppress(OSError):
        active = {task.job_id.partition("_")[0] for task in queued}
        jobs = {
            name: job
            for job in _jobs(run.logs_dir / "jobs")
            if str(job.number) not in active and (name := job.name) in set(queried)
        }
        for job in jobs.values():
            _remove(job.pickles)
        needed = _needed(run, jobs, set(unfinished))
        for name, job in sorted(jobs.items(), key=lambda item: item[1].number):
            kept = needed.get(name, set())
            logs = [log for log, index in job.logs.items() if kept is not None and max(index, 0) not in kept]
            _append(run, sorted(logs))
            _remove([*logs, *(job.scripts if len(logs) == len(job.logs) else ())])
        _remove_abandoned(run)


def _needed(run: RunFolder, jobs: dict[str, _JobFiles], unfinished: set[int]) -> dict[str, set[int] | None]:
    """Return the tasks whose logs must stay, by name of the job; None where all of a job's must."""
    needed: dict[str, set[int] | None] = {}
    starts: dict[int, int] = defaultdict(int)
    shared = submissions.read_shared(run)
    for submission in reversed(submissions.read(run)):
        if submission.name not in jobs:
            continue
        kept = set()
        for index, of_task in enumerate(submission.tasks):
            if waiting := [shard for shard in of_task if shard in unfinished and starts[shard] < _KEPT_STARTS]:
                kept.add(index)
                for shard in waiting:
                    starts[shard] += 1
        is_others = submission.name in shared and any(
            other.exists() and endings.num_unfinished(other, whole=False)
            for other in submissions.others(run, shared[submission.name])
        )
        needed[submission.name] = None if is_others else kept
        if kept:
            needed[submissions.finalizer_of(run, submission)] = None
    return needed


def begin_local(run: RunFolder) -> None:
    """Put the logs of past workers on this machine together, before others start.

    Those that their launcher saw end have no pickles left; what a killed launcher left goes after a day.
    """
    with contextlib.suppress(OSError):
        for job in _jobs(run.logs_dir / "jobs"):
            is_of_slurm = bool(job.name) or any(index >= 0 for index in job.logs.values())
            has_ended = not job.scripts and not any("_submitted" in path.name for path in job.pickles)
            if not is_of_slurm and (has_ended or _is_abandoned(job)):
                _append(run, sorted(job.logs))
                _remove([*job.logs, *job.pickles, *job.scripts])
        _remove_abandoned(run)


def end_local(run: RunFolder, job_ids: Sequence[str]) -> None:
    """Remove the pickles of workers on this machine whose results have been read; their logs stay until the next."""
    with contextlib.suppress(OSError):
        for job in _jobs(run.logs_dir / "jobs"):
            if str(job.number) in set(job_ids) and not job.name:
                _remove([*job.pickles, *job.scripts])


def merged_log(log: Path) -> str:
    """Return the end of a log that was put into the merged file; empty where there is none."""
    with contextlib.suppress(OSError):
        sections = (log.parent / MERGED).read_bytes().split(_SECTION)
        for section in reversed(sections):
            title, _, content = section.partition(b"\n")
            if title.startswith(f"{log.name} ".encode()):
                return content.decode("utf-8", "replace")
    return ""


def _jobs(folder: Path) -> Iterator[_JobFiles]:
    """Yield the jobs that have files here, as far as they are this user's."""
    found: dict[int, _JobFiles] = {}
    with os.scandir(folder) as entries:
        files = [
            (match, Path(entry.path))
            for entry in entries
            if (match := _FILE.fullmatch(entry.name))
            and entry.is_file(follow_symlinks=False)
            and entry.stat(follow_symlinks=False).st_uid == os.geteuid()
        ]
    for match, path in files:
        job = found.setdefault(int(match["job"]), _JobFiles(int(match["job"])))
        if log := _LOG.fullmatch(match["rest"]):
            job.logs[path] = int(log["index"] or -1)
        elif path.suffix == ".pkl":
            job.pickles.append(path)
        elif path.suffix == ".sh":
            job.scripts.append(path)
    yield from found.values()


def _append(run: RunFolder, logs: Sequence[Path]) -> None:
    """Append the ends of logs to the merged file, durable when this returns."""
    sections = []
    for log in logs:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            content = file.read()
        if content:
            ended = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(log.stat().st_mtime))
            sections.append(b"%b%b %b, %d bytes\n%b" % (_SECTION, log.name.encode(), ended.encode(), size, content))
    if not sections:
        return
    merged = run.logs_dir / "jobs" / MERGED
    handle = opened(merged, os.O_APPEND)
    try:
        content = b"".join(sections)
        if os.write(handle, content) != len(content):
            raise OSError(f"{merged}: not written whole")
        os.fsync(handle)
    finally:
        os.close(handle)
    if merged.stat().st_size > _MOST_BYTES:
        kept = merged.read_bytes()[-_MOST_BYTES // 2 :]
        write_atomically(merged, kept[max(0, kept.find(_SECTION)) :])


def _remove(paths: Sequence[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def _is_abandoned(job: _JobFiles) -> bool:
    paths = [*job.logs, *job.pickles, *job.scripts]
    return not Path(f"/proc/{job.number}").exists() and all(_is_old(path) for path in paths)


def _is_old(path: Path) -> bool:
    return path.lstat().st_mtime < time.time() - _ABANDONED_SECONDS


def _remove_abandoned(run: RunFolder) -> None:
    """Remove what killed processes left half-written, and submitit's links to batch scripts that are gone."""
    folders = (run.path, run.journal_dir, run.trace_files_dir, run.grades_dir, run.logs_dir / "jobs")
    for folder in folders:
        with contextlib.suppress(OSError):
            for path in folder.iterdir():
                is_dangling = path.name.startswith(".submission_file_") and path.is_symlink() and not path.exists()
                is_left = _TEMPORARY.fullmatch(path.name) and path.is_file() and _is_old(path)
                if path.lstat().st_uid == os.geteuid() and (is_dangling or is_left):
                    path.unlink(missing_ok=True)
