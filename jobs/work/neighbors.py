"""Which of the workers that one task has started are at work: a worker that has nothing left waits for those."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Neighbors:
    """The workers of a task, as one of them sees the others.

    Each locks a byte of its own, in a file in memory that the task has created, while it is at work. The kernel
    releases the lock when the worker dies, however it dies.
    """

    descriptor: int
    """The file, which the workers inherit."""
    number: int
    """This worker's number within its task, from 0."""
    count: int
    """Number of workers of the task."""

    def begin(self) -> None:
        """Say that this worker is at work; it may have said so before."""
        fcntl.lockf(self.descriptor, fcntl.LOCK_EX, 1, self.number)

    def rest(self) -> None:
        """Say that this worker has nothing to do."""
        fcntl.lockf(self.descriptor, fcntl.LOCK_UN, 1, self.number)

    def are_at_work(self) -> bool:
        """Return True if another worker of the task is at work."""
        return any(self._is_locked(other) for other in range(self.count) if other != self.number)

    def _is_locked(self, number: int) -> bool:
        try:
            fcntl.lockf(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)
        except (BlockingIOError, PermissionError):
            return True
        fcntl.lockf(self.descriptor, fcntl.LOCK_UN, 1, number)
        return False


@contextlib.contextmanager
def file_in_memory() -> Iterator[int]:
    """Create the file for the workers of a task, and close it here when they have ended."""
    descriptor = os.memfd_create("harness-workers", os.MFD_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
