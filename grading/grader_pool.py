"""Grade many answers in killable processes: no answer can delay, prevent or change the grade of another answer.

The time limit counts processor seconds of the answer's process, so verdicts do not depend on the machine's load.
An answer gets the verdict `grader_timeout` after failing twice (a limit exceeded or the process terminated), each time
alone in a fresh process that had just graded a control answer. If the machine fails (a process killed from outside, no
memory to start one, no processor time), the result is `Ungraded` instead of a verdict.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import multiprocessing
import os
import resource
import signal
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing import connection
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Literal, cast

from grading.own_grader import OwnGrader, OwnGraderFailed
from grading.records import FAILED, Gold, Grade, Submission

WALL_TIME_FACTOR = 4
"""A process is stalled if it gets almost no processor time for this many times the processor-time limit."""
_LEAST_PROGRESS = 0.05
"""Minimum processor time of a process that is not stalled, as a share of the processor-time limit."""
_MEMORY_EXIT = 75
"""Exit status of a process that ran out of memory."""
_LITTLE_MEMORY_EXIT = 76
"""Exit status of a process that ran out of memory because `ulimit -v` allows less than the grader's limit."""
_LOST_EXIT = 255
"""Exit code that multiprocessing reports if it missed a process's exit because the fork server was killed."""
_FAULTS = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL, signal.SIGSYS})
"""Signals caused by a process's own code; others come from outside, for example from the out-of-memory killer."""
_EXIT_SECONDS = 5.0

Item = tuple[Submission, Gold]
GradeOne = Callable[[Submission, Gold], Grade]
"""A function that grades one item; it must be importable by name."""


@dataclass(frozen=True, slots=True)
class Limits:
    processor_seconds: float
    memory_bytes: int
    """Address space beyond that of the started process, which already includes the imports of the main module."""


@dataclass(frozen=True, slots=True)
class Ended:
    """Why a process returned no grade."""

    reason: str
    by_answer: bool
    """Whether the answer may be the cause. False: the machine or something else ended the process."""
    seconds: float = 0.0


class GraderProcess:
    """A process that grades items in sequence, forked from a clean parent with the libraries loaded.

    The current process, which may have threads or a GPU, is never forked.
    """

    def __init__(self, grade_one: GradeOne | OwnGrader | None, limits: Limits, folder: str) -> None:
        """Start the process. Raises OSError or EOFError if the machine is out of processes or memory.

        `folder`: where the temporary files of a custom grader go.
        """
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["grading.warm"])
        self._limits, self._patience = limits, limits.processor_seconds * WALL_TIME_FACTOR
        self._is_own = isinstance(grade_one, OwnGrader)
        self.connection, other_end = context.Pipe()
        with other_end:
            arguments = (other_end, grade_one, limits.memory_bytes, folder)
            self._process = context.Process(target=_work, args=arguments, daemon=True)
            self._process.start()
        self.num_items = 0
        self._seconds = 0.0
        self._used = 0.0
        self.looks_at = 0.0
        """Time of the next check for a stall, on the monotonic clock."""

    def send(self, items: Sequence[Item], processor_seconds: float) -> None:
        """Send items to grade, each with this limit on processor time. Raises OSError if the process has ended."""
        self.num_items += len(items)
        self._seconds = processor_seconds
        self.looks_at = time.monotonic() + self._patience
        self.connection.send((items, processor_seconds))

    def receive(self) -> Grade | Ungraded | Ended:
        """Return the next grade, or why there is none. After `Ended`, the process must not be used."""
        self.looks_at = time.monotonic() + self._patience
        try:
            return cast(Grade | Ungraded | Ended, self.connection.recv())
        except (EOFError, OSError):
            return self._ended()

    def stalled(self) -> Ended | None:
        """Return a failure if the process got almost no processor time since the last check.

        There is no other limit on wall-clock time. The stall is blamed on the answer (`by_answer`) only if the process
        runs a custom grader and is sleeping; otherwise, the machine did not give it processor time.
        """
        import psutil

        if time.monotonic() < self.looks_at:
            return None
        used, waits = self._used, False
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(self._process.pid)
            used = sum(process.cpu_times()[:2])  # user and system
            waits = self._is_own and process.status() == psutil.STATUS_SLEEPING
        has_worked = used - self._used >= _LEAST_PROGRESS * self._limits.processor_seconds
        self._used, self.looks_at = used, time.monotonic() + self._patience
        reason = f"a grader process got no processor time for {self._patience:g} s"
        return None if has_worked else Ended(reason, by_answer=waits)

    def kill(self) -> None:
        """Kill the process, and all processes started by a custom grader."""
        self.connection.close()
        self._process.kill()
        if self._is_own and self._process.pid:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _ended(self) -> Ended:
        self._process.join(_EXIT_SECONDS)
        code = self._process.exitcode
        if code == _LITTLE_MEMORY_EXIT:
            return Ended("the memory limit of processes (ulimit -v) is too low for grading", by_answer=False)
        if code == -signal.SIGXCPU:
            return Ended(f"more than {self._seconds:g} s of processor time", by_answer=True, seconds=self._seconds)
        if code == _MEMORY_EXIT:
            return Ended(f"more memory than {self._limits.memory_bytes} bytes", by_answer=True)
        if code is None or code == _LOST_EXIT:
            return Ended("a grader process was lost", by_answer=False)
        if code >= 0:
            return Ended(f"the grader process exited with status {code}", by_answer=True)
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        if -code in _FAULTS:
            return Ended(f"the grader process was terminated by {name}", by_answer=True)
        cause = ", probably out of memory" if -code == signal.SIGKILL else ""
        return Ended(f"a grader process was killed by {name}{cause}", by_answer=False)


def _hard_limit(name: str) -> float:
    hard = resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[1]
    return math.inf if hard == resource.RLIM_INFINITY else hard


def _work(connection: Connection, grade_one: GradeOne | OwnGrader | None, memory_limit_bytes: int, folder: str) -> None:
    from grading.grade import grade
    from grading.reading import symbolic

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    is_own = isinstance(grade_one, OwnGrader)
    if isinstance(grade_one, OwnGrader):  # before any item's clock starts
        grade_one = grade_one.loaded(folder)
    else:
        symbolic.load()
    at_start = _address_space("VmSize")
    memory = _Memory(
        limit=int(min(at_start + memory_limit_bytes, _hard_limit("AS"))),
        suspicious=math.inf if is_own else max(at_start + memory_limit_bytes // 2, _address_space("VmPeak")),
        exit_status=_MEMORY_EXIT if at_start + memory_limit_bytes <= _hard_limit("AS") else _LITTLE_MEMORY_EXIT,
    )
    resource.setrlimit(resource.RLIMIT_AS, (memory.limit, memory.limit))
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            items, seconds = connection.recv()
            for submission, gold in items:
                connection.send(_grade_limited(grade_one or grade, submission, gold, seconds, memory))


@dataclass(frozen=True, slots=True)
class _Memory:
    """Limits on the address space of this process, in bytes."""

    limit: int
    suspicious: float
    """A higher peak counts as out of memory, unless the answer is correct or a custom grader is used."""
    exit_status: int
    """Exit status when out of memory."""


def _grade_limited(
    grade_one: GradeOne, submission: Submission, gold: Gold, processor_seconds: float, memory: _Memory
) -> Grade | Ungraded | Ended:
    """Grade one item. The kernel ends the process with SIGXCPU when its processor time is used up."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    limit = int(min(math.ceil(used.ru_utime + used.ru_stime + processor_seconds), _hard_limit("CPU")))
    resource.setrlimit(resource.RLIMIT_CPU, (limit, hard))
    try:
        result = grade_one(submission, gold)
    except MemoryError:
        os._exit(memory.exit_status)
    except OwnGraderFailed as error:
        return Ungraded(str(error))
    except (OSError, ImportError) as error:  # machine failures: a missing file, no memory for a library
        return Ended(f"a grader process failed: {type(error).__name__}: {str(error)[:200]}", by_answer=False)
    except Exception as error:  # noqa: BLE001  process boundary: one answer must never end a run over many
        result = Grade("unparsable", None, None, f"{FAILED} {type(error).__name__}: {str(error)[:200]}", 0.0)
    finally:
        resource.setrlimit(resource.RLIMIT_CPU, (hard, hard))
    if result.verdict != "correct" and _address_space("VmPeak") > memory.suspicious:
        # The libraries swallow MemoryError and return a negative verdict, so neither verdict nor process can be
        # trusted.
        os._exit(memory.exit_status)
    return replace(result, detail=result.detail.encode("utf-8", "replace").decode())


def _address_space(which: Literal["VmSize", "VmPeak"]) -> int:
    """Return the current or peak address space of this process in bytes; 0 if unavailable."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{which}:")), 0)


ITEMS_PER_PROCESS = 1_600
"""A process is replaced after this many items, because the caches of the symbolic libraries grow."""
WINDOW_PER_WORKER = 64
"""Submissions in progress per worker; bounds the memory for any number of items."""
ITEMS_PER_BATCH = 16
BATCH_ITEM_SECONDS = 2.0
"""Maximum processor seconds per item in a batch; slower items are graded alone."""
REMEMBERED_GRADES = 4_096
ATTEMPTS = 2
"""Failures per item, each time alone in a fresh process, until it gets `grader_timeout` or stays ungraded."""
MOST_FAILURES = 3
"""Grading stops after this many consecutive machine failures."""
CONTROL: Item = (Submission(r"\boxed{1}", "answered", thinks=False), Gold("1"))
"""An answer that every grader process survives unless the machine or the grader is at fault."""

Key = tuple[bytes, str | None, bool, Gold]
"""Identity of an item, with a digest instead of the text to save memory."""


@dataclass(frozen=True, slots=True)
class Ungraded:
    """No verdict, because the machine or a custom grader failed; the item can be graded later."""

    reason: str
    """One line."""


class GraderFailed(RuntimeError):
    """The machine or a custom grader failed, and answers stay ungraded. The message is one line."""


def graded(grades: Iterable[Grade | Ungraded]) -> list[Grade]:
    """Return the grades. Raises GraderFailed if one is missing."""
    everything = list(grades)
    reasons = Counter(one.reason for one in everything if isinstance(one, Ungraded))
    if reasons:
        number = reasons.total()
        answers = f"{number} answer{'s were' if number != 1 else ' was'} not graded"
        raise GraderFailed(f"{answers}: {reasons.most_common(1)[0][0]}")
    return [one for one in everything if isinstance(one, Grade)]


def grade_many(
    items: Iterable[Item],
    workers: int | None = None,
    time_limit_seconds: float = 10,
    memory_limit_bytes: int = 2 * 1024**3,
    grade_one: GradeOne | OwnGrader | None = None,
) -> Iterator[Grade | Ungraded]:
    """Grade the items and yield their grades in the same order; `Ungraded` after a machine failure.

    `workers`: number of processes (default: one per processor, at most 16). `grade_one`: function that the processes
    run (default: `grading.grade.grade`, which this process does not need to import). The limits apply per item:
    processor time from the start of its grading, and address space of its process. Equal items are graded once. Items
    are sent in batches; an item that takes much longer than usual, or whose process ends, is graded again alone. A
    custom grader sets its own limits and requires golds of type `OwnGold`; items on which it fails are also `Ungraded`.
    """
    workers = workers or min(len(os.sched_getaffinity(0)), 16)
    limits = Limits(time_limit_seconds, memory_limit_bytes)
    place: contextlib.AbstractContextManager[str] = contextlib.nullcontext("")
    if isinstance(grade_one, OwnGrader):
        limits = Limits(grade_one.seconds, grade_one.memory_bytes)
        place = tempfile.TemporaryDirectory(prefix="grading-", ignore_cleanup_errors=True)
    with place as folder:
        grader = _Grader(workers, lambda: GraderProcess(grade_one, limits, folder), limits)
        yield from _graded_by(grader, workers, items)


def _graded_by(grader: _Grader, workers: int, items: Iterable[Item]) -> Iterator[Grade | Ungraded]:
    window: deque[_Pending] = deque()
    try:
        for item in items:
            window.append(grader.submit(item))
            if len(window) >= workers * WINDOW_PER_WORKER:
                yield grader.result(window.popleft())
        while window:
            yield grader.result(window.popleft())
    finally:
        grader.close()


@dataclass(slots=True, eq=False)
class _Pending:
    item: Item
    key: Key
    outcome: Grade | Ungraded | None = None


@dataclass(slots=True)
class _Case:
    """An item graded alone, in a process that first grades the control answer."""

    pending: _Pending
    is_control_graded: bool = False
    endings: Counter[bool] = field(default_factory=Counter)
    """How often the process ended because of the item (True) or for other reasons (False)."""


class _Grader:
    """Processes working on batches and single items, recent grades, and the items in progress."""

    def __init__(self, workers: int, started: Callable[[], GraderProcess], limits: Limits) -> None:
        self._workers, self._started, self._limits = workers, started, limits
        self._known: dict[Key, _Pending] = {}
        self._remembered: dict[Key, Grade] = {}
        self._queue: deque[_Pending] = deque()
        self._cases: deque[_Case] = deque()
        self._busy: dict[GraderProcess, deque[_Pending] | _Case] = {}
        self._idle: list[GraderProcess] = []
        self._num_failures = 0
        self._given_up: Ungraded | None = None

    def submit(self, item: Item) -> _Pending:
        submission, gold = item
        text = hashlib.blake2b(submission.text.encode("utf-8", "surrogatepass")).digest()
        key = (text, submission.stop_reason, submission.thinks, gold)
        if (earlier := self._known.get(key)) is not None:
            return earlier
        pending = _Pending(item, key, self._remembered.get(key) or self._given_up)
        if pending.outcome is None:
            self._known[key] = pending
            self._queue.append(pending)
            if len(self._queue) % ITEMS_PER_BATCH == 0:
                self._go_on(waits=False)
        return pending

    def result(self, pending: _Pending) -> Grade | Ungraded:
        while pending.outcome is None:
            self._go_on(waits=True)
        if self._known.pop(pending.key, None) is not None and isinstance(pending.outcome, Grade):
            self._remembered[pending.key] = pending.outcome
            if len(self._remembered) > REMEMBERED_GRADES:
                del self._remembered[next(iter(self._remembered))]
        return pending.outcome

    def close(self) -> None:
        for process in [*self._busy, *self._idle]:
            process.kill()
        self._busy, self._idle = {}, []

    def _go_on(self, *, waits: bool) -> None:
        """Assign work to free processes and collect results. If `waits`, block until there is a result."""
        while self._given_up is None and len(self._busy) < self._workers and self._start(whole_batches=not waits):
            pass
        if self._given_up is not None:
            self.close()
            for pending in self._known.values():
                pending.outcome = pending.outcome or self._given_up
            return
        next_look = min((process.looks_at for process in self._busy), default=0.0)
        seconds = max(0.0, next_look - time.monotonic()) if waits else 0.0
        ready = connection.wait([process.connection for process in self._busy], seconds)
        for process in list(self._busy):
            if process.connection in ready:
                self._take(process, process.receive())
            elif (end := process.stalled()) is not None:
                self._take(process, end)

    def _start(self, *, whole_batches: bool) -> bool:
        """Assign the next case or batch to a process; return False if there is no work or no process for it."""
        if self._cases:
            return self._start_case(self._cases.popleft())
        free = self._workers - len(self._busy)
        size = min(ITEMS_PER_BATCH, math.ceil(len(self._queue) / free))
        if not size or (whole_batches and len(self._queue) < ITEMS_PER_BATCH):
            return False
        try:
            process = self._idle.pop() if self._idle else self._started()
        except (OSError, EOFError) as error:
            if not self._busy:
                self._fail(_not_started(error).reason)
            return not self._busy  # the running processes grade the rest
        batch = deque(self._queue.popleft() for _ in range(size))
        seconds = min(BATCH_ITEM_SECONDS, self._limits.processor_seconds)
        try:
            process.send([pending.item for pending in batch], seconds)
        except OSError:  # the process was killed while idle, or is stopped
            process.kill()
            self._queue.extendleft(reversed(batch))
            self._fail("grader processes exit before receiving any work")
        else:
            self._busy[process] = batch
        return True

    def _start_case(self, case: _Case) -> bool:
        try:
            process = self._started()
            process.send([CONTROL, case.pending.item], self._limits.processor_seconds)
        except (OSError, EOFError) as error:
            self._decide(case, _not_started(error))
        else:
            self._busy[process] = case
        return True

    def _take(self, process: GraderProcess, outcome: Grade | Ungraded | Ended) -> None:
        work = self._busy[process]
        if isinstance(outcome, Ended):
            process.kill()
        else:
            self._num_failures = 0
        if isinstance(work, _Case):
            if isinstance(outcome, Grade) and not work.is_control_graded:
                work.is_control_graded = True
                return
            process.connection.close()
            del self._busy[process]
            self._decide(work, outcome)
            return
        first = work.popleft()
        if not isinstance(outcome, Ended):
            first.outcome = outcome
        else:
            self._cases.append(_Case(first))
            self._queue.extendleft(reversed(work))
            work.clear()
        if not work:
            del self._busy[process]
            if not isinstance(outcome, Ended) and process.num_items < ITEMS_PER_PROCESS:
                self._idle.append(process)
            else:
                process.connection.close()  # the process then exits by itself

    def _decide(self, case: _Case, outcome: Grade | Ungraded | Ended) -> None:
        """Record how an item's process ended, and retry the item unless it has had enough attempts."""
        if not isinstance(outcome, Ended):
            case.pending.outcome = outcome
            return
        case.endings[outcome.by_answer] += 1
        if outcome.by_answer and not case.is_control_graded:
            case.pending.outcome = Ungraded(f"the control answer could not be graded either: {outcome.reason}")
        elif case.endings[outcome.by_answer] < ATTEMPTS:
            case.is_control_graded = False
            self._cases.appendleft(case)
            return
        elif outcome.by_answer:
            detail = (
                f"{outcome.reason}, {ATTEMPTS} times, each time alone in a fresh process that had graded the control "
                "answer"
            )
            case.pending.outcome = Grade("grader_timeout", None, None, detail, outcome.seconds)
        else:
            case.pending.outcome = Ungraded(outcome.reason)
        if isinstance(case.pending.outcome, Ungraded):
            self._fail(case.pending.outcome.reason)

    def _fail(self, reason: str) -> None:
        self._num_failures += 1
        if self._num_failures >= MOST_FAILURES:
            self._given_up = Ungraded(reason)


def _not_started(error: OSError | EOFError) -> Ended:
    why = (error.strerror if isinstance(error, OSError) else None) or "the machine is out of processes or memory"
    return Ended(f"cannot start a grader process: {why}", by_answer=False)
