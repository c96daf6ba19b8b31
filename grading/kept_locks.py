"""How grader processes are started: from a clean parent process, with locks that outlive them."""

from __future__ import annotations

from multiprocessing.context import ForkServerContext
from multiprocessing.synchronize import RLock


class KeptLocks(ForkServerContext):
    """Starts workers, and keeps the locks that they share until it is itself given up.

    A pool that stops gives up its locks, which removes their names, before it ends its workers. One that is still
    starting on a busy machine would look for the names and print a traceback.
    """

    def __init__(self) -> None:
        super().__init__()
        self._locks: list[RLock] = []

    def RLock(self) -> RLock:  # noqa: N802  the name of the method that it replaces
        """Return a lock that is kept."""
        self._locks.append(lock := super().RLock())
        return lock
