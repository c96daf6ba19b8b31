"""Grading of many answers in processes that can be killed: no answer can delay, crash or change another's grade.

A task's limit counts processor seconds of its own process, so a verdict does not depend on how busy the machine is; a
wall-clock limit backs it up. The kernel enforces the limits on time and memory, because the symbolic libraries swallow
exceptions and block in C code. An answer that exceeds a limit is graded `grader_timeout`.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import resource
import signal
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from grading.grade import Gold, Grade, Submission, grade
from grading.kept_locks import KeptLocks

TASKS_PER_WORKER = 100
"""Batches after which a worker is replaced, because the caches of the symbolic libraries grow."""
WINDOW_PER_WORKER = 64
"""Submissions in progress per worker; the window keeps memory from growing with the number of items."""
ITEMS_PER_BATCH = 16
BATCH_ITEM_SECONDS = 1.0
"""Processor seconds that an item may take in a batch; slower items are graded by themselves."""
REMEMBERED_GRADES = 4_096
WALL_TIME_FACTOR = 4
"""The wall-clock limit as a multiple of the processor limit, for a task that waits instead of working."""
MEMORY_EXIT = 75
"""Exit status of a worker that reached a negative verdict after memory had run short."""
MAX_ATTEMPTS = 2
MAX_POOLS = 5
"""Pools that may break as a whole before an item is given up."""

Item = tuple[Submission, Gold]
GradeOne = Callable[[Submission, Gold], Grade]
Key = tuple[bytes, str | None, bool, Gold]
"""Identity of an item, with a digest in place of its text, so that remembering an item costs little memory."""


@dataclass(slots=True)
class _Batch:
    """Items sent together, because sending one costs as much as grading an ordinary answer."""

    pendings: list[_Pending] = field(default_factory=list)
    future: Future[list[Grade]] | None = None
    """None until it is sent."""


@dataclass(slots=True)
class _Pending:
    item: Item
    key: Key
    batch: _Batch | None
    """None once the item is graded by itself."""
    future: Future[Grade] | None = None
    generation: int = 0
    attempts: int = 1
    pools: int = 1
    grade: Grade | None = None
    """Available once the result of this item, or of another one in its batch, was requested."""


def grade_many(
    items: Iterable[Item],
    workers: int | None = None,
    time_limit_seconds: float = 10,
    memory_limit_bytes: int = 2 * 1024**3,
    grade_one: GradeOne = grade,
) -> Iterator[Grade]:
    """Grade the items and yield their grades in the same order.

    `workers` is the number of processes (default: one per processor, at most 16). The limits hold for each item: its
    processor time from the moment its work starts, and its worker's address space. Equal items are graded once. Items
    are sent in batches; an item that takes longer than ordinary answers, or crashes a worker, is graded again by
    itself. Workers run `grade_one`, a function that can be imported by name.
    """
    workers = workers or min(os.cpu_count() or 1, 16)
    grader = _Grader(workers, time_limit_seconds, memory_limit_bytes, grade_one)
    window: deque[_Pending | Grade] = deque()
    try:
        for item in items:
            window.append(grader.submit(item))
            if len(window) >= workers * WINDOW_PER_WORKER:
                yield grader.result(window.popleft())
        while window:
            yield grader.result(window.popleft())
    finally:
        grader.close()


class _Grader:
    """A pool of workers, replaced when it breaks, with recent grades and the submissions in progress."""

    def __init__(self, workers: int, time_limit_seconds: float, memory_limit_bytes: int, grade_one: GradeOne) -> None:
        self._grade_one = grade_one
        self._workers = workers
        self._time_limit_seconds = time_limit_seconds
        self._memory_limit_bytes = memory_limit_bytes
        self._pending: dict[Key, _Pending] = {}
        self._grades: OrderedDict[Key, Grade] = OrderedDict()
        self._generation = 0
        self._pool: Any = None
        self._context: KeptLocks | None = None
        self._open = _Batch()

    def submit(self, item: Item) -> _Pending | Grade:
        submission, gold = item
        text = hashlib.blake2b(submission.text.encode("utf-8", "surrogatepass")).digest()
        key = (text, submission.stop_reason, submission.thinks, gold)
        earlier = self._grades.get(key) or self._pending.get(key)
        if earlier is not None:
            return earlier
        self._pending[key] = pending = _Pending(item, key, self._open)
        self._open.pendings.append(pending)
        if len(self._open.pendings) >= ITEMS_PER_BATCH:
            self._send(self._open)
        return pending

    def result(self, entry: _Pending | Grade) -> Grade:
        if isinstance(entry, Grade):
            return entry
        if entry.grade is None and entry.batch is not None:
            self._wait_for_batch(entry.batch)
        if entry.grade is None:
            entry.grade = self._wait(entry)
        if self._pending.pop(entry.key, None) is not None:
            self._grades[entry.key] = entry.grade
            if len(self._grades) > REMEMBERED_GRADES:
                self._grades.popitem(last=False)
        return entry.grade

    def close(self) -> None:
        if self._pool is not None:
            self._pool.stop()
            self._pool.join()
            self._pool = self._context = None

    def _send(self, batch: _Batch) -> None:
        items = [pending.item for pending in batch.pendings]
        seconds = min(BATCH_ITEM_SECONDS, self._time_limit_seconds)
        arguments = (self._grade_one, items, seconds, self._memory_limit_bytes)
        batch.future = self._run(_grade_batch, arguments, seconds * WALL_TIME_FACTOR)
        if batch is self._open:
            self._open = _Batch()

    def _wait_for_batch(self, batch: _Batch) -> None:
        """Wait for the grades of a batch; where one of its items broke it, schedule each of them by itself."""
        if batch.future is None:
            self._send(batch)
        assert batch.future is not None
        grades: list[Grade] | None = None
        with contextlib.suppress(Exception):  # the item that broke it shows when each is graded alone
            grades = batch.future.result()
        for index, pending in enumerate(batch.pendings):
            pending.batch = None
            if grades is not None:
                pending.grade = grades[index]
            else:
                self._schedule(pending)

    def _schedule(self, pending: _Pending) -> None:
        """Schedule an item by itself, under the full limits."""
        arguments = (self._grade_one, *pending.item, self._time_limit_seconds, self._memory_limit_bytes)
        pending.future = self._run(_grade_limited, arguments, self._time_limit_seconds * WALL_TIME_FACTOR)
        pending.generation = self._generation

    def _run(self, function: Callable[..., Any], arguments: tuple[Any, ...], wall_seconds: float) -> Future[Any]:
        if self._pool is None:
            self._context = KeptLocks()
            self._pool = _start_pool(self._context, self._workers, self._memory_limit_bytes)
            self._generation += 1
        try:
            future: Future[Any] = self._pool.schedule(function, args=arguments, timeout=wall_seconds)
        except RuntimeError as error:  # the pool broke since the last call
            future = Future()
            future.set_exception(BrokenProcessPool(str(error)))
        return future

    def _wait(self, pending: _Pending) -> Grade:
        from pebble import ProcessExpired

        while True:
            assert pending.future is not None
            try:
                return pending.future.result()
            except FutureTimeoutError:
                seconds = self._time_limit_seconds * WALL_TIME_FACTOR
                return _failed_grade(f"still running after {seconds:g} s", seconds)
            except BrokenProcessPool as error:
                if pending.pools >= MAX_POOLS:
                    return _failed_grade(f"the pool broke {MAX_POOLS} times: {error}")
                self._replace_pool(pending)
            except ProcessExpired as error:
                code = error.exitcode
                if code == -signal.SIGXCPU:
                    seconds = self._time_limit_seconds
                    return _failed_grade(f"more than {seconds:g} s of processor time", seconds)
                if code == MEMORY_EXIT:
                    return _failed_grade(f"memory limit of {self._memory_limit_bytes} bytes")
                if pending.attempts >= MAX_ATTEMPTS:
                    return _failed_grade(f"the grader crashed {MAX_ATTEMPTS} times, exit status {code}")
                pending.attempts += 1
                self._schedule(pending)

    def _replace_pool(self, pending: _Pending) -> None:
        """Start a new pool unless another item already did, and submit this item to it."""
        if pending.generation == self._generation:
            self.close()
        pending.pools += 1
        self._schedule(pending)


def _failed_grade(detail: str, seconds: float = 0.0) -> Grade:
    return Grade("grader_timeout", None, None, detail, seconds)


def _start_pool(context: KeptLocks, workers: int, memory_limit_bytes: int) -> Any:
    from pebble import ProcessPool

    # Workers are forked in milliseconds from a clean parent process that has the libraries loaded. This process, which
    # may have threads or a GPU, is never forked.
    context.set_forkserver_preload(["grading.warm"])
    return ProcessPool(
        max_workers=workers,
        max_tasks=TASKS_PER_WORKER,
        initializer=_start_worker,
        initargs=(memory_limit_bytes,),
        context=context,
    )


def _start_worker(memory_limit_bytes: int) -> None:
    from grading.reading import symbolic

    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # ends the worker at once, even inside C code
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    symbolic.load()  # before any task's clock starts
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = memory_limit_bytes if hard == resource.RLIM_INFINITY else min(memory_limit_bytes, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _grade_batch(
    grade_one: GradeOne, items: list[Item], time_limit_seconds: float, memory_limit_bytes: int
) -> list[Grade]:
    """Grade several items in a worker, each under the limits; exceeding one ends the worker and so the batch."""
    return [_grade_limited(grade_one, *item, time_limit_seconds, memory_limit_bytes) for item in items]


def _grade_limited(
    grade_one: GradeOne, submission: Submission, gold: Gold, time_limit_seconds: float, memory_limit_bytes: int
) -> Grade:
    """Grade one item in a worker. The kernel ends the worker with SIGXCPU when its processor time is used up."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    limit = math.ceil(used.ru_utime + used.ru_stime + time_limit_seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, hard))
    try:
        result = grade_one(submission, gold)
    except MemoryError:
        os._exit(MEMORY_EXIT)
    except Exception as error:  # noqa: BLE001  the worker's boundary: one answer must never end a run over many
        result = _failed_grade(f"the grader failed: {type(error).__name__}: {str(error)[:200]}")
    finally:
        resource.setrlimit(resource.RLIMIT_CPU, (hard, hard))
    if result.verdict != "correct" and _peak_address_space() > memory_limit_bytes // 2:
        # The libraries swallow MemoryError and call the answer wrong, so neither verdict nor worker can be trusted.
        os._exit(MEMORY_EXIT)
    return replace(result, detail=result.detail.encode("utf-8", "replace").decode())


def _peak_address_space() -> int:
    """Return the largest address space of this process so far, in bytes, or 0 where the kernel does not report it."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmPeak:")), 0)
