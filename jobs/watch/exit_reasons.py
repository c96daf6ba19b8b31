"""Why a worker exited: the reason in its log or, without one, the state known to Slurm or the launcher."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

from harness.methods.plugins import described
from jobs.run import submissions
from jobs.run.files import opened
from jobs.run.folder import RunFolder
from jobs.slurm.client import Task

BEGINS = "== the task begins"
"""Prefix of the first line that a task logs at each start; requeued tasks append to their log."""
FAILED = "== failed: "
"""Prefix of the last line logged by a process that failed with an exception; the exit reason follows it."""
IN_PROCESS_LOG = "in-process.log"
"""Name of the log of an in-process worker."""
_KILLED = "exited without an error message (killed, canceled or out of memory)"
_TRACEBACK = "Traceback (most recent call last):"
_LOG_TAIL_BYTES = 256 << 10
_MIN_FREE_BYTES = 4 << 20
_MAX_CHARACTERS = 300
_SHOWN_LINES = 2


@contextlib.contextmanager
def logged() -> Iterator[None]:
    """On an exception, print `report` to standard error and exit this process with code 1."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 any exception is the exit reason
        print(report(error), file=sys.stderr, flush=True)
        sys.exit(1)


def report(error: BaseException) -> str:
    """Return an exception's traceback followed by the line that other tools read: `== failed: ` and the reason.

    For an exception group from concurrent samples, report its most informative exception.
    """
    cause = _cause(error)
    return f"{''.join(traceback.format_exception(cause))}{FAILED}{reason_of(cause)}"


def reason_of(error: BaseException) -> str:
    """Return an exception in one line: the message for this project's errors, otherwise class, message and location."""
    error = _cause(error)
    if not _is_ours(error):
        return described(error)[:_MAX_CHARACTERS]
    first, *output = str(error).splitlines() or [type(error).__name__]
    if first.endswith(":"):  # engine output: use its exception line
        output = [line for line in output if "Error: " in line or "Exception: " in line] or output
        first = f"{first} {output[-1] if output else '(none)'}"
    return first[:_MAX_CHARACTERS]


def _cause(error: BaseException) -> BaseException:
    """Return the most informative exception of a group: the first one defined by this project, else the first."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    found = [_cause(inner) for inner in error.exceptions]
    return next(filter(_is_ours, found), found[0])


def _is_ours(error: BaseException) -> bool:
    return type(error).__module__.startswith(("harness.", "jobs."))


def reason_in(log: str) -> str:
    """Return the first exit reason in a log after the task's last start; empty if there is none.

    A later reason is that of the task, which exits after its workers.
    """
    lines = log.rpartition(BEGINS)[2].splitlines()
    return next((line.removeprefix(FAILED) for line in lines if line.startswith(FAILED)), "")


def traceback_in(log: str) -> str:
    """Return the traceback before the reason in a log; empty if there is none."""
    _, begins, text = log.partition(FAILED)[0].partition(_TRACEBACK)
    return f"{begins}{text}".strip()


def log_path(run: RunFolder, task: Task) -> Path:
    """Return the log of a task."""
    return submissions.logs_dir(run, task.name) / "jobs" / f"{task.job_id}_0_log.out"


def task_reason(run: RunFolder, task: Task) -> str:
    """Return in one line why an inactive task left samples unfinished."""
    if task.is_held:
        return f"Slurm: {task.reason}"
    exit_code = f", exit code {task.exit_code}" if task.exit_code else ""
    state = f"Slurm: {task.state}{f', signal {task.exit_signal}' if task.exit_signal else exit_code}"
    if task.state not in {"FAILED", "COMPLETED"}:
        return state
    # One log per process that Slurm started for this task.
    logs = [_tail(path) for path in sorted(log_path(run, task).parent.glob(f"{task.job_id}_*_log.out"))]
    if not logs:
        return f"{state}, no log: the node may have failed to start the task (see slurmd's log on {task.node})"
    if reason := next(filter(None, map(reason_in, logs)), ""):
        return reason
    if task.state == "COMPLETED":
        return state
    lines = [line.strip() for line in logs[0].rpartition(BEGINS)[2].splitlines()[BEGINS in logs[0] :]]
    lines = [line for line in lines if line and not line.startswith("srun: ")]  # srun only reports the end of a task
    ending = f"its log ends: {' / '.join(lines[-_SHOWN_LINES:])}" if lines else _KILLED
    return f"{state}; {ending}"[:_MAX_CHARACTERS]


def local_logs(run: RunFolder) -> list[Path]:
    """Return the non-empty error logs of workers on this machine, newest last."""
    folder = run.logs_dir / "jobs"
    found = {path: path.stat() for path in (*folder.glob("*_0_log.err"), *folder.glob(IN_PROCESS_LOG))}
    return sorted((path for path, stat in found.items() if stat.st_size), key=lambda path: found[path].st_mtime)


def local_reason(run: RunFolder) -> tuple[str, str]:
    """Return the latest exit reason of a worker on this machine, in one line, and its log; both empty if unknown."""
    found = [(reason, str(path)) for path in local_logs(run) if (reason := reason_in(_tail(path)))]
    return found[-1] if found else ("", "")


def explained(run: RunFolder, error: BaseException, log: Path) -> str:
    """Return why a worker on this machine failed, with the path of its log. `error`: contains the worker's output.

    A killed worker writes no reason, so this function appends one to the log, for `jobs status`.
    """
    if reason := reason_in(str(error)):
        return f"{reason}. Log: {log}"
    if (free := shutil.disk_usage(run.path).free) < _MIN_FREE_BYTES:
        full = f"{free >> 10} KiB free, too little for journals and results"
        return f"the disk is full: {full}. Run folder: {run.path}"
    with contextlib.suppress(OSError), os.fdopen(opened(log, os.O_APPEND), "a", encoding="utf-8") as file:
        file.write(f"{FAILED}{_KILLED}\n")
    return f"{_KILLED}; see dmesg. Log: {log}"


def _tail(path: Path) -> str:
    with path.open("rb") as log:
        log.seek(max(0, path.stat().st_size - _LOG_TAIL_BYTES))
        return log.read().decode("utf-8", "replace")
