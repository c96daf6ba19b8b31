"""Why a worker ended early: the exception that its log names, or else how Slurm saw its end."""

from __future__ import annotations

import contextlib
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from jobs.run import submissions
from jobs.run.folder import IN_PROCESS_LOG, RunFolder
from jobs.slurm.client import Task

BEGINS = "== the task begins"
"""In the first line of every start of a task, which appends to its log where it is requeued."""
_LOG_TAIL_BYTES = 256 << 10
_MIN_FREE_BYTES = 4 << 20
_MAX_CHARACTERS = 300
_SHOWN_LINES = 2
_EXCEPTION = re.compile(
    r"^[\s|+-]*(?P<name>(?:[a-z_]\w*\.)+[A-Z]\w+|[A-Z]\w*(?:Error|Exception|Interrupt|Exit))(?:: (?P<message>.*))?$"
)
_FRAME = re.compile(r'^[\s|+-]*File "(?P<file>[^"]+)", line (?P<line>\d+)')
_AROUND = {"ExceptionGroup", "BaseExceptionGroup", "WorkersFailed", "RunsFailed", "CancelledError"}
"""Exceptions that only say that there was another one."""
_ENDS_MESSAGE = re.compile(r"^[\s|+-]*(?:Traceback |\+?-{4,}|During handling|The above exception|srun: )")
_BORDER = re.compile(r"^[ |]*\+-+(?:\+-+)?(?: (?P<number>\d+|\.\.\.) -+)?$")
"""What stands above and below each exception of a group."""
_TRACEBACK = re.compile(r"^(?:  \+ Exception Group )?Traceback \(most recent call last\):$")


class WorkerKilled(RuntimeError):
    """A worker ended without a word; never raised, but written to its log by the process that saw it end."""


@dataclass(frozen=True)
class LoggedException:
    """The end of a traceback."""

    name: str
    """With its module, as Python prints it."""
    message: str
    """Its first line; where that announces output (`Its last output:`), with the line that names the cause."""
    place: str = ""
    """Where it was raised, as `work/worker.py:77`; empty where the traceback does not say."""

    @property
    def is_ours(self) -> bool:
        """True for an exception that this project defines."""
        return self.name.startswith(("harness.", "jobs."))

    def __str__(self) -> str:
        name = self.name.rpartition(".")[2]
        said = f"{name}: {self.message}" if self.message else name
        # The messages of this project's own exceptions say what is wrong, and where in a file of the user's.
        return said if self.is_ours or not self.place else f"{said} ({self.place})"


def log_path(run: RunFolder, task: Task) -> Path:
    """Return the log of a task."""
    return submissions.logs_dir(run, task.name) / "jobs" / f"{task.job_id}_0_log.out"


def reason(run: RunFolder, task: Task) -> str:
    """Return in one line why a task that is no longer active has left samples unfinished."""
    if task.is_held:
        return f"Slurm: {task.reason}"
    exit_code = f", exit code {task.exit_code}" if task.exit_code else ""
    state = f"Slurm: {task.state}{f', signal {task.exit_signal}' if task.exit_signal else exit_code}"
    if task.state not in {"FAILED", "COMPLETED"}:
        return state
    # One for each of the processes that Slurm started for this task.
    logs = sorted(log_path(run, task).parent.glob(f"{task.job_id}_*_log.out"))
    if not logs:
        return f"{state}, without a log: the node may not have started it (slurmd's log on {task.node} says why)"
    starts = [_last_start(_tail(path)) for path in logs]
    if found := [exception for lines in starts if (exception := last_exception(lines)) is not None]:
        return str(found[-1])[:_MAX_CHARACTERS]
    if task.state == "COMPLETED":
        return state
    ending = [line.strip() for line in starts[0] if line.strip() and BEGINS not in line][-_SHOWN_LINES:]
    return (f"{state}; its log ends: {' / '.join(ending)}" if ending else state)[:_MAX_CHARACTERS]


def local_logs(run: RunFolder) -> list[Path]:
    """Return the logs of what went wrong in workers on this machine when they last started, the newest last."""
    folder = run.logs_dir / "jobs"
    found = {path: path.stat() for path in (*folder.glob("*_0_log.err"), *folder.glob(IN_PROCESS_LOG))}
    return sorted((path for path, stat in found.items() if stat.st_size), key=lambda path: found[path].st_mtime)


def local_error(run: RunFolder) -> tuple[str, Path | None]:
    """Return the exception that ended a worker on this machine, in one line, and the log that names it.

    The line is empty and the log None where no log names one.
    """
    found = [(error, path) for path in local_logs(run) if (error := error_in("\n".join(_tail(path))))]
    return found[-1] if found else ("", None)


def error_in(text: str) -> str:
    """Return the exception that the text of a log ends with, in one line; empty where there is none."""
    exception = last_exception(text.splitlines())
    return "" if exception is None else str(exception)[:_MAX_CHARACTERS]


def reason_of(traceback: str) -> str:
    """Return the exception that a traceback names last, without the frames and groups around it; empty without one.

    Of an exception of this project that is the message, of others class, message and place.
    """
    exception = last_exception(traceback.splitlines())
    if exception is None:
        return ""
    return exception.message if exception.is_ours and exception.message else str(exception)


def explained(run: RunFolder, error: BaseException, log: Path) -> str:
    """Return why a worker failed, given what it wrote, and the path of its log.

    A worker that was killed has written nothing. What is known of its end is added to its log, for `jobs status`.
    """
    if reason := reason_of(str(error)):
        return f"{reason}. Log: {log}"
    if full := full_disk(shutil.disk_usage(run.path).free):
        return f"the disk is full: {full}. Run folder: {run.path}"
    reason = "ended without an error message: killed, canceled or out of memory"
    with contextlib.suppress(OSError), log.open("a", encoding="utf-8") as file:
        file.write(f"{WorkerKilled.__module__}.{WorkerKilled.__qualname__}: {reason}\n")
    return f"{reason} (dmesg may say more). Log: {log}"


def full_disk(free_bytes: int) -> str:
    """Return what a full disk is too small for; empty where it is not full."""
    return "" if free_bytes >= _MIN_FREE_BYTES else f"{free_bytes >> 10} KiB free, too little for journals and results"


def last_exception(lines: list[str]) -> LoggedException | None:
    """Return the exception that stopped a worker, of all that its output names; None where it names none.

    One of this project says most. The last one counts, because those that caused it stand before it.
    """
    found = [
        LoggedException(match["name"], _message(match["message"] or "", lines[number + 1 :]), _place(lines[:number]))
        for number, line in enumerate(lines)
        if (match := _EXCEPTION.match(line))
    ]
    inner = [exception for exception in found if exception.name.rpartition(".")[2] not in _AROUND] or found
    chosen = [exception for exception in inner if exception.is_ours] or inner
    return chosen[-1] if chosen else None


def _place(before: list[str]) -> str:
    """Return the innermost frame of the traceback that these lines end with."""
    for line in reversed(before):
        if match := _FRAME.match(line):
            return f"{'/'.join(Path(match['file']).parts[-2:])}:{match['line']}"
        if _ENDS_MESSAGE.match(line):
            break
    return ""


def _message(first: str, following: list[str]) -> str:
    """Return the first line of a message; where it announces the output of an engine, with the cause in that."""
    if not first.endswith(":"):
        return first
    output: list[str] = []
    for line in following:
        if _ENDS_MESSAGE.match(line):
            break
        output += [text] if (text := line.strip(" |")) else []
    errors = [text for text in output if _EXCEPTION.search(text) or re.search(r"\w(?:Error|Exception): ", text)]
    return f"{first} {(errors or output or ['(none)'])[-1]}"


def first_traceback(text: str) -> str:
    """Return the first traceback of a text: of a group of exceptions, which samples at a time raise, its first one.

    Empty where there is no traceback.
    """
    lines = text.splitlines()
    start = next((number for number, line in enumerate(lines) if _TRACEBACK.match(line)), len(lines))
    lines = lines[start:]
    borders = [(number, found["number"]) for number, line in enumerate(lines) if (found := _BORDER.match(line))]
    depth = next((depth for depth, (_, number) in enumerate(borders) if number != "1"), len(borders))
    if depth:  # groups within groups: the first exception of each, down to one that is none
        above = borders[depth - 1][0]
        below = borders[depth][0] if depth < len(borders) else len(lines)
        indent = lines[above].rindex("+") + len("+ ")
        lines = [line[indent:] for line in lines[above + 1 : below]]
    return "\n".join(lines).strip("\n")


def _tail(path: Path) -> list[str]:
    with path.open("rb") as log:
        log.seek(max(0, path.stat().st_size - _LOG_TAIL_BYTES))
        return log.read().decode("utf-8", "replace").splitlines()


def _last_start(lines: list[str]) -> list[str]:
    """Return the lines from the last start of the worker on, or all where it never started."""
    begins = [number for number, line in enumerate(lines) if BEGINS in line]
    return lines[begins[-1] :] if begins else lines
