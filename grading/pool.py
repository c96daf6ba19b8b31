"""Grading of many answers in processes that can be killed: no answer can delay, crash or change another's grade.

The limit counts processor seconds of the answer's own process, so a verdict does not depend on how busy the machine is.
`grader_timeout` is the verdict on an answer that exceeded a limit or ended its process twice, alone in a fresh process
each time, while a control answer that was graded in between and after it in the same way survived. Where the machine
failed (a process killed from outside, no memory to start one, no processor time), there is no verdict but `Ungraded`.
"""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing import connection

from grading.grade import Gold, Grade, Submission, grade
from grading.processes import Ended, GradeOne, GraderProcess, Item, Limits

ITEMS_PER_PROCESS = 1_600
"""Items after which a process is replaced, because the caches of the symbolic libraries grow."""
WINDOW_PER_WORKER = 64
"""Submissions in progress per worker; the window keeps memory from growing with the number of items."""
ITEMS_PER_BATCH = 16
BATCH_ITEM_SECONDS = 2.0
"""Processor seconds that an item may take in a batch; slower items are graded by themselves."""
REMEMBERED_GRADES = 4_096
ATTEMPTS = 2
"""Attempts alone, in a fresh process each, before an item has a verdict or is left ungraded."""
MOST_FAILURES = 3
"""Failures of the machine in a row, without a single grade in between, after which nothing more is tried."""
CONTROL: Item = (Submission(r"\boxed{1}", "answered", thinks=False), Gold("1"))
"""An answer that every grader process survives unless the machine or the grader is at fault."""

Key = tuple[bytes, str | None, bool, Gold]
"""Identity of an item, with a digest in place of its text, so that remembering an item costs little memory."""


@dataclass(frozen=True, slots=True)
class Ungraded:
    """No verdict, because the machine failed and not the answer; it can be graded later."""

    reason: str
    """One line."""


class GraderFailed(RuntimeError):
    """The machine could not grade answers, which have no verdict for that; the message is one line."""


def graded(grades: Iterable[Grade | Ungraded]) -> list[Grade]:
    """Return the grades. Raises GraderFailed where one is missing."""
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
    grade_one: GradeOne = grade,
) -> Iterator[Grade | Ungraded]:
    """Grade the items and yield their grades in the same order; `Ungraded` where the machine failed.

    `workers` is the number of processes (default: one per processor, at most 16). The limits hold for each item: its
    processor time from the moment its work starts, and its process's address space. Equal items are graded once. Items
    are sent in batches; an item that takes longer than ordinary answers, or whose process ends, is graded again by
    itself. Processes run `grade_one`, a function that can be imported by name.
    """
    workers = workers or min(len(os.sched_getaffinity(0)), 16)
    grader = _Grader(workers, Limits(time_limit_seconds, memory_limit_bytes), grade_one)
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
    """An item that is graded by itself."""

    pending: _Pending
    attempts: Generator[Item, Grade | Ended, Grade | Ungraded]
    next_item: Item
    """The item itself, or the control."""


def _alone(item: Item) -> Generator[Item, Grade | Ended, Grade | Ungraded]:
    """Decide on an item: yields what a fresh process grades next, and is sent the outcome."""
    num_by_answer = num_by_machine = 0
    while True:
        outcome = yield item
        if isinstance(outcome, Grade):
            return outcome
        if not outcome.by_answer:
            num_by_machine += 1
            if num_by_machine == ATTEMPTS:
                yield CONTROL  # its grade shows that others can be graded, so that this one does not end the grading
                return Ungraded(outcome.reason)
            continue
        control = yield CONTROL
        if isinstance(control, Ended):
            return Ungraded(f"a control answer got no grade either: {control.reason}")
        num_by_answer += 1
        if num_by_answer == ATTEMPTS:
            detail = f"{outcome.reason}, {ATTEMPTS} times alone in a fresh process; a control answer survived"
            return Grade("grader_timeout", None, None, detail, outcome.seconds)


class _Grader:
    """Processes at work on batches and on single items, recent grades, and the items in progress."""

    def __init__(self, workers: int, limits: Limits, grade_one: GradeOne) -> None:
        self._workers, self._limits, self._grade_one = workers, limits, grade_one
        self._known: dict[Key, _Pending] = {}
        self._remembered: OrderedDict[Key, Grade] = OrderedDict()
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
                self._remembered.popitem(last=False)
        return pending.outcome

    def close(self) -> None:
        for process in [*self._busy, *self._idle]:
            process.kill()
        self._busy, self._idle = {}, []

    def _go_on(self, *, waits: bool) -> None:
        """Give work to free processes, and take in what the others have done; `waits`: until one has done something."""
        while self._given_up is None and len(self._busy) < self._workers and self._start(whole_batches=not waits):
            pass
        if self._given_up is not None:
            self._leave_ungraded(self._given_up)
            return
        next_look = min((process.looks_at for process in self._busy), default=0.0)
        seconds = max(0.0, next_look - time.monotonic()) if waits else 0.0
        ready = connection.wait([process.connection for process in self._busy], seconds)
        for process in list(self._busy):
            if process.connection in ready:
                self._take(process, process.receive())
            elif process.is_stalled():
                self._take(process, process.stalled)

    def _start(self, *, whole_batches: bool) -> bool:
        """Give the next work to a process; returns whether there was some, and a process for it."""
        if self._cases:
            return self._start_case(self._cases.popleft())
        free = self._workers - len(self._busy)
        size = min(ITEMS_PER_BATCH, math.ceil(len(self._queue) / free))
        if not size or (whole_batches and len(self._queue) < ITEMS_PER_BATCH):
            return False
        try:
            process = self._idle.pop() if self._idle else GraderProcess(self._grade_one, self._limits)
        except (OSError, EOFError) as error:
            if not self._busy:
                self._fail(_not_started(error).reason)
            return not self._busy  # those that run grade the rest
        batch = deque(self._queue.popleft() for _ in range(size))
        seconds = min(BATCH_ITEM_SECONDS, self._limits.processor_seconds)
        try:
            process.send([pending.item for pending in batch], seconds)
        except OSError:  # it was killed while it had no work, or is stopped
            process.kill()
            self._queue.extendleft(reversed(batch))
            self._fail("grader processes end before they get work")
        else:
            self._busy[process] = batch
        return True

    def _start_case(self, case: _Case) -> bool:
        try:
            process = GraderProcess(self._grade_one, self._limits)
            process.send([case.next_item], self._limits.processor_seconds)
        except (OSError, EOFError) as error:
            self._advance(case, _not_started(error))
        else:
            self._busy[process] = case
        return True

    def _take(self, process: GraderProcess, outcome: Grade | Ended) -> None:
        work = self._busy[process]
        if isinstance(outcome, Grade):
            self._num_failures = 0
        else:
            process.kill()
        if isinstance(work, _Case):
            process.close()
            del self._busy[process]
            self._advance(work, outcome)
            return
        first = work.popleft()
        if isinstance(outcome, Grade):
            first.outcome = outcome
        else:
            attempts = _alone(first.item)
            self._cases.append(_Case(first, attempts, next(attempts)))
            self._queue.extendleft(reversed(work))
            work.clear()
        if not work:
            del self._busy[process]
            if isinstance(outcome, Grade) and process.num_items < ITEMS_PER_PROCESS:
                self._idle.append(process)
            else:
                process.close()

    def _advance(self, case: _Case, outcome: Grade | Ended) -> None:
        try:
            case.next_item = case.attempts.send(outcome)
        except StopIteration as stop:
            case.pending.outcome = stop.value
            if isinstance(case.pending.outcome, Ungraded):
                self._fail(case.pending.outcome.reason)
        else:
            self._cases.appendleft(case)

    def _fail(self, reason: str) -> None:
        self._num_failures += 1
        if self._num_failures >= MOST_FAILURES:
            self._given_up = Ungraded(reason)

    def _leave_ungraded(self, outcome: Ungraded) -> None:
        self.close()
        self._queue.clear()
        self._cases.clear()
        for pending in self._known.values():
            pending.outcome = pending.outcome or outcome


def _not_started(error: OSError | EOFError) -> Ended:
    why = (error.strerror if isinstance(error, OSError) else None) or "the machine has no process or memory left"
    return Ended(f"no grader process can be started: {why}", by_answer=False)
