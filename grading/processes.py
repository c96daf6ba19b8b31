"""A grader process: its limits, which the kernel enforces, and how it ended.

The symbolic libraries swallow exceptions and block in C code, so that only the end of the process stops them.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import resource
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Literal

from grading.grade import FAILED, Gold, Grade, Submission

WALL_TIME_FACTOR = 4
"""A process is stalled if it gets next to no processor time for this multiple of the limit on processor time."""
_LEAST_PROGRESS = 0.05
"""Processor time, as a share of the limit, that a process which is not stalled gets in that time."""
_MEMORY_EXIT = 75
"""Exit status of a process that reached a negative verdict after memory had run short."""
_LITTLE_MEMORY_EXIT = 76
"""The same, where the shell allows less memory than the grader."""
_LOST_EXIT = 255
"""Exit code that multiprocessing gives to a process whose end it did not see, because its own helper was killed."""
_FAULTS = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL, signal.SIGSYS})
"""Signals that code raises by what it does; all others are sent by somebody, such as the kernel out of memory."""
_EXIT_SECONDS = 5.0

Item = tuple[Submission, Gold]
GradeOne = Callable[[Submission, Gold], Grade]


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one answer."""

    processor_seconds: float
    memory_bytes: int
    """Address space, on top of what the process has when it starts: it imports what the program's main module does."""


@dataclass(frozen=True, slots=True)
class Ended:
    """Why a process gave no grade."""

    reason: str
    by_answer: bool
    """Whether the answer itself can be the cause; False where somebody else or the machine ended the process."""
    seconds: float = 0.0


class GraderProcess:
    """A process that grades one item after the other. It is forked from a clean parent that has the libraries loaded.

    This process, which may have threads or a GPU, is never forked.
    """

    def __init__(self, grade_one: GradeOne, limits: Limits) -> None:
        """Start it. Raises OSError and EOFError where the machine has no process or memory for it."""
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["grading.warm"])
        self._limits, self._patience = limits, limits.processor_seconds * WALL_TIME_FACTOR
        self.connection, other_end = context.Pipe()
        try:
            _limit_waiting(self.connection, self._patience)  # for a process that is stopped
            self._process = context.Process(target=_work, args=(other_end, grade_one, limits.memory_bytes), daemon=True)
            self._process.start()
        except BaseException:
            self.connection.close()
            raise
        finally:
            other_end.close()
        self.num_items = 0
        self._seconds = 0.0
        self._used = 0.0
        self.looks_at = 0.0
        """When `is_stalled` has something to say, on the monotonic clock."""

    def send(self, items: Sequence[Item], processor_seconds: float) -> None:
        """Have it grade items, each within this processor time. Raises OSError where the process has ended."""
        self.num_items += len(items)
        self._seconds = processor_seconds
        self.looks_at = time.monotonic() + self._patience
        self.connection.send((items, processor_seconds))

    def receive(self) -> Grade | Ended:
        """Return the next grade, or why there is none; after an `Ended` the process is of no use."""
        try:
            outcome: Grade | Ended = self.connection.recv()
        except (EOFError, OSError):
            return self._ended()
        self.looks_at = time.monotonic() + self._patience
        return outcome

    def is_stalled(self) -> bool:
        """Return whether the process got no processor time since the last look; the time it needs is not limited."""
        if time.monotonic() < self.looks_at:
            return False
        used = self._processor_seconds()
        has_worked = used - self._used >= _LEAST_PROGRESS * self._limits.processor_seconds
        self._used, self.looks_at = used, time.monotonic() + self._patience
        return not has_worked

    @property
    def stalled(self) -> Ended:
        """The end of a process that `is_stalled`."""
        return Ended(f"a grader process got no processor time for {self._patience:g} s", by_answer=False)

    def close(self) -> None:
        """Let it end by itself once it has graded what it was sent."""
        self.connection.close()

    def kill(self) -> None:
        """End it at once."""
        self.connection.close()
        self._process.kill()

    def _ended(self) -> Ended:
        self._process.join(_EXIT_SECONDS)
        code = self._process.exitcode
        if code in (-signal.SIGXCPU, -signal.SIGKILL) and (hard := _hard_limit("CPU")) < self._seconds:
            return Ended(f"processes here may use {hard:g} s of processor time (ulimit -t)", by_answer=False)
        if code == _LITTLE_MEMORY_EXIT:
            return Ended("processes here may use less memory than a grade needs (ulimit -v)", by_answer=False)
        if code == -signal.SIGXCPU:
            return Ended(f"more than {self._seconds:g} s of processor time", by_answer=True, seconds=self._seconds)
        if code == _MEMORY_EXIT:
            return Ended(f"more memory than {self._limits.memory_bytes} bytes", by_answer=True)
        if code is None or code == _LOST_EXIT:
            return Ended("a grader process was lost", by_answer=False)
        if code >= 0:
            return Ended(f"its process ended with exit status {code}", by_answer=True)
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        if -code in _FAULTS:
            return Ended(f"its process ended with {name}", by_answer=True)
        cause = ", probably for lack of memory" if -code == signal.SIGKILL else ""
        return Ended(f"a grader process was killed by {name}{cause}", by_answer=False)

    def _processor_seconds(self) -> float:
        import psutil

        try:
            times = psutil.Process(self._process.pid).cpu_times()
        except psutil.Error:
            return self._used
        return float(times.user + times.system)


def _hard_limit(name: str) -> float:
    hard = resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[1]
    return math.inf if hard == resource.RLIM_INFINITY else hard


def _limit_waiting(connection: Connection, seconds: float) -> None:
    """Let what is sent and received raise OSError where the other end does not go on with it."""
    limit = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))
    with socket.socket(fileno=os.dup(connection.fileno())) as end:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)


def without_traceback_of_forks() -> None:
    """Let the parent of the grader processes end silently where it cannot fork; who asked for the process reports it.

    It is called in that parent.
    """
    parent, usual = os.getpid(), sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: object) -> None:
        if os.getpid() != parent or not issubclass(kind, OSError):
            usual(kind, error, error.__traceback__)

    sys.excepthook = hook


def _work(connection: Connection, grade_one: GradeOne, memory_limit_bytes: int) -> None:
    """Grade what comes through the connection until it is closed."""
    from grading.reading import symbolic

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    symbolic.load()  # before any item's clock starts
    at_start = _address_space("VmSize")
    memory = _Memory(
        limit=int(min(at_start + memory_limit_bytes, _hard_limit("AS"))),
        suspicious=max(at_start + memory_limit_bytes // 2, _address_space("VmPeak")),
        exit_status=_MEMORY_EXIT if at_start + memory_limit_bytes <= _hard_limit("AS") else _LITTLE_MEMORY_EXIT,
    )
    resource.setrlimit(resource.RLIMIT_AS, (memory.limit, memory.limit))
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            items, seconds = connection.recv()
            for submission, gold in items:
                connection.send(_grade_limited(grade_one, submission, gold, seconds, memory))


@dataclass(frozen=True, slots=True)
class _Memory:
    """Limits on the address space of this process, in bytes."""

    limit: int
    suspicious: int
    """A peak above it is taken for a lack of memory, unless the answer is right."""
    exit_status: int
    """What a lack of memory ends the process with."""


def _grade_limited(
    grade_one: GradeOne, submission: Submission, gold: Gold, processor_seconds: float, memory: _Memory
) -> Grade | Ended:
    """Grade one item. The kernel ends the process with SIGXCPU when its processor time is used up."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    limit = int(min(math.ceil(used.ru_utime + used.ru_stime + processor_seconds), _hard_limit("CPU")))
    resource.setrlimit(resource.RLIMIT_CPU, (limit, hard))
    try:
        result = grade_one(submission, gold)
    except MemoryError:
        os._exit(memory.exit_status)
    except (OSError, ImportError) as error:  # of the machine: a file that is away, no memory for a library
        return Ended(f"a grader process failed: {type(error).__name__}: {str(error)[:200]}", by_answer=False)
    except Exception as error:  # noqa: BLE001  the process's boundary: one answer must never end a run over many
        result = Grade("unparsable", None, None, f"{FAILED} {type(error).__name__}: {str(error)[:200]}", 0.0)
    finally:
        resource.setrlimit(resource.RLIMIT_CPU, (hard, hard))
    if result.verdict != "correct" and _address_space("VmPeak") > memory.suspicious:
        # The libraries swallow MemoryError and call the answer wrong, so neither verdict nor process can be trusted.
        os._exit(memory.exit_status)
    return replace(result, detail=result.detail.encode("utf-8", "replace").decode())


def _address_space(which: Literal["VmSize", "VmPeak"]) -> int:
    """Return the address space of this process, now or at most so far, in bytes; 0 where the kernel does not say."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{which}:")), 0)
