"""Why a shard's last task ended early: the exception that its worker raised, or else how Slurm saw its end."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from pathlib import Path

from harness.cli import permissions
from jobs.run import submissions
from jobs.run.folder import RunFolder
from jobs.slurm.client import Task
from jobs.submission.in_process import LOG_NAME as IN_PROCESS_LOG

_LOG_TAIL_BYTES = 256 << 10
_LOG_ENDINGS = {".log", ".out", ".err"}
_MAX_CHARACTERS = 300
_SHOWN_LINES = 2
_BEGIN = "Starting with JobEnvironment"
"""In the first line of every start of a worker: a task that is requeued appends to its log."""
_EXCEPTION = re.compile(
    r"^[\s|+-]*(?P<name>(?:[a-z_]\w*\.)+[A-Z]\w+|[A-Z]\w*(?:Error|Exception|Interrupt|Exit))(?:: (?P<message>.*))?$"
)
_ERROR = re.compile(
    r"^(?:\w+\.)*\w*(?:Error|Exception|Died|Silent|Unavailable|Failed)\b.*|.*\berror: .*", re.IGNORECASE
)
_FRAME = re.compile(r'^[\s|+-]*File "(?P<file>[^"]+)", line (?P<line>\d+)')
_AROUND = {"ExceptionGroup", "BaseExceptionGroup", "WorkersFailed", "RunsFailed", "CancelledError"}
"""Exceptions that only say that there was another one."""
_NO_REASON = re.compile(
    r"submitit (?:INFO|WARNING) |"
    r"srun: (?:error: .*: (?:Exited with exit code \d+|Killed|Terminated)$|.*Terminat(?:ed|ing) StepId)"
)
"""Lines that say no more than that the worker began or has ended."""
_KILLED = re.compile(r"srun: error: .*: task.*: (?P<how>Killed|Terminated|Segmentation fault|Aborted|Bus error)\b")
_ENDS_MESSAGE = re.compile(r"^[\s|+-]*(?:Traceback |\+?-{4,}|During handling|The above exception|srun: |submitit )")


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
    return _logs(run, task) / f"{task.job_id}_0_log.out"


def reason(run: RunFolder, task: Task) -> str:
    """Return in one line why a task that is no longer active has left samples unfinished."""
    if task.is_held:
        return f"Slurm: {task.reason}"
    state = f"Slurm: {task.state}{_exit_of(task)}"
    if task.state not in {"FAILED", "COMPLETED"}:
        return state
    if not log_path(run, task).exists():
        return f"{state}, without a log: the node may not have started it (slurmd's log on {task.node} says why)"
    return last_error(run, task) or state


def local_logs(run: RunFolder) -> list[Path]:
    """Return the logs of what went wrong in workers on this machine when they last started, the newest last."""
    folder = run.logs_dir / "jobs"
    found = {path: path.stat() for path in (*folder.glob("*_0_log.err"), *folder.glob(IN_PROCESS_LOG))}
    return sorted((path for path, stat in found.items() if stat.st_size), key=lambda path: found[path].st_mtime)


def log_files(run: RunFolder, shard: int | None = None) -> list[Path]:
    """Return all logs that say something: of workers, of Slurm and of engines; of a shard, those of its engines alone.

    The newest last.
    """
    folder = run.logs_dir if shard is None else run.logs_dir / f"shard-{shard}"
    found = {path: path.stat() for path in folder.rglob("*") if path.is_file() and path.suffix in _LOG_ENDINGS}
    return sorted((path for path, stat in found.items() if stat.st_size), key=lambda path: (found[path].st_mtime, path))


def local_error(run: RunFolder) -> tuple[str, Path | None]:
    """Return the exception that ended a worker on this machine, in one line, and the log that names it.

    The line is empty where no log names one, and the log None where none can be read.
    """
    try:
        found = [(last_exception(_tail(path)), path) for path in local_logs(run)]
    except PermissionError as error:
        return permissions.explained(error)[:_MAX_CHARACTERS], None
    named = [(str(exception), path) for exception, path in found if exception is not None]
    return (named[-1][0][:_MAX_CHARACTERS], named[-1][1]) if named else ("", None)


def error_in(text: str) -> str:
    """Return the exception that the text of a log ends with, in one line; empty where there is none."""
    exception = last_exception(text.splitlines())
    return "" if exception is None else str(exception)[:_MAX_CHARACTERS]


def last_error(run: RunFolder, task: Task) -> str:
    """Return what a task's logs say of its end, in one line; empty where they say nothing.

    That is the exception of the last start. Where there is none, it is the exit code with the end of the log.
    """
    logs = sorted(path for path in _logs(run, task).glob(f"{task.job_id}_*_log.out") if _is_log_of(task, path))
    try:
        starts = [_last_start(_tail(path)) for path in logs]
    except PermissionError as error:
        return permissions.explained(error)[:_MAX_CHARACTERS]
    shared = submissions.read_shared(run).get(task.name)
    for lines in starts if shared else []:
        if named := _named(run, lines, shared.runs if shared else []):
            return named[:_MAX_CHARACTERS]
    found = [exception for lines in starts if (exception := last_exception(lines)) is not None]
    if found:
        return str(found[-1])[:_MAX_CHARACTERS]
    return _end_of(task, starts[0])[:_MAX_CHARACTERS] if starts else ""


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


def _named(run: RunFolder, lines: list[str], runs: list[str]) -> str:
    """Return what the last error of a job that several runs share says of this run."""
    own = [line for line in lines if run.path.name in line and (_ERROR.match(line.strip()) or _EXCEPTION.match(line))]
    if not own:
        return ""
    said = own[-1][own[-1].find(run.path.name) :]
    ends = [place for name in runs if name != run.path.name and (place := said.find(f"; {name}: ")) >= 0]
    return said[: min(ends)] if ends else said


def _end_of(task: Task, lines: list[str]) -> str:
    """Return how a task without an exception ended, with the end of its log; empty where it ended well."""
    said = [line.strip() for line in lines if line.strip() and not _NO_REASON.match(line.strip())]
    has_begun = any(_BEGIN in line for line in lines)
    if task.state == "COMPLETED" and not any(_ERROR.match(line) for line in said):
        return ""
    where = "" if has_begun else ", before the worker started"
    killed = [match["how"] for line in lines if (match := _KILLED.match(line))]
    how = f", the worker was ended by a signal: {killed[-1]}" if killed else f"{_exit_of(task)}{where}"
    ending = said[-_SHOWN_LINES:]
    return f"Slurm: {task.state}{how}" + (f"; its log ends: {' / '.join(ending)}" if ending else "")


def _exit_of(task: Task) -> str:
    """Return how the batch script ended, as far as accounting knows and it is not what the state says."""
    if task.state != "FAILED" or not (task.exit_code or task.exit_signal):
        return ""
    number = task.exit_signal or (task.exit_code - 128 if 128 < task.exit_code < 128 + signal.NSIG else 0)
    if not number:
        return f", exit code {task.exit_code}"
    try:
        return f", killed by {signal.Signals(number).name}"
    except ValueError:
        return f", killed by signal {number}"


def _logs(run: RunFolder, task: Task) -> Path:
    return submissions.logs_dir(run, task.name) / "jobs"


def _is_log_of(task: Task, path: Path) -> bool:
    """True if a file is the log of one of the processes that Slurm started for this task."""
    return path.name.removeprefix(f"{task.job_id}_").removesuffix("_log.out").isdigit()


def _tail(path: Path) -> list[str]:
    with path.open("rb") as log:
        log.seek(max(0, path.stat().st_size - _LOG_TAIL_BYTES))
        return log.read().decode("utf-8", "replace").splitlines()


def _last_start(lines: list[str]) -> list[str]:
    """Return the lines from the last start of the worker on, or all where it never started."""
    begins = [number for number, line in enumerate(lines) if _BEGIN in line]
    return lines[begins[-1] :] if begins else lines
