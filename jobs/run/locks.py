"""Locks on files between processes and nodes. Where a filesystem has none, that is an error instead of a weaker lock.

The kernel, or the server of a shared filesystem, releases a lock when its holder dies. Some filesystems refuse `flock`
(Lustre mounted without `flock`). A file whose existence is the lock would do there until a worker is killed: nobody
could tell then whether its node is still at work, and the shard would stay locked for good.
"""

from __future__ import annotations

import contextlib
import errno
import warnings
from collections.abc import Iterable
from pathlib import Path

from filelock import FileLock, SoftFileLock

_REFUSALS = {errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP}
_HELD, _FIELDS = Path("/proc/locks"), 8
REMEDY = "mount it with locks (Lustre: -o flock; NFS: without nolock), or choose another folder"


class LocksRefused(ValueError):
    """The filesystem has no locks; the message is one line."""


class Lock(FileLock):
    """A lock on a file. Acquiring it raises LocksRefused where the filesystem has no locks, and filelock.Timeout."""

    def _acquire(self) -> None:
        reason = "function not implemented"
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                super()._acquire()
        except NotImplementedError as error:  # filelock before 3.25
            raise _refused(self.lock_file, reason) from error
        except OSError as error:
            if error.errno in _REFUSALS:
                raise _refused(self.lock_file, (error.strerror or "").lower()) from error
            raise
        if isinstance(self, SoftFileLock):  # an older filelock has taken the existence of the file for the lock
            if self.is_locked:
                self._release()
            raise _refused(self.lock_file, reason)

    def _fallback_to_soft_lock(self) -> None:
        """Refuse what filelock would do here: an existing file would be somebody's lock, however old it is."""
        raise NotImplementedError


def held_here(locks: Iterable[Path]) -> set[Path]:
    """Return which of these lock files a process on this machine holds, without taking any of them.

    None are returned where the system does not say (`/proc/locks`).
    """
    try:
        lines = _HELD.read_text().splitlines()
    except OSError:
        return set()
    inodes = {fields[-3].rpartition(":")[2] for line in lines if len(fields := line.split()) >= _FIELDS}
    held = set()
    for lock in locks:
        with contextlib.suppress(OSError):
            if str(lock.stat().st_ino) in inodes:
                held.add(lock)
    return held


def _refused(lock: str, reason: str) -> LocksRefused:
    folder = Path(lock).parent
    return LocksRefused(f"{folder}: the filesystem refuses file locks ({reason}), so {REMEDY}")


def check(folder: Path) -> None:
    """Raise LocksRefused where a folder's filesystem has no locks, and OSError where nothing can be written there."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix=".lock-", dir=folder) as trial, Lock(Path(trial) / "lock"):
        pass
