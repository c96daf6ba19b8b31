"""Locks on files between processes and nodes. Where a filesystem has none, that is an error instead of a weaker lock.

The kernel, or the server of a shared filesystem, releases a lock when its holder dies. Some filesystems refuse `flock`
(Lustre mounted without `flock`). A file whose existence is the lock would do there until a worker is killed: nobody
could tell then whether its node is still at work, and the shard would stay locked for good.
"""

from __future__ import annotations

import errno
import fcntl
from pathlib import Path

from filelock import FileLock

_REFUSALS = {errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP}
REMEDY = "mount it with locks (Lustre: -o flock; NFS: without nolock), or choose another folder"


class LocksRefused(ValueError):
    """The filesystem has no locks; the message is one line."""


class Lock(FileLock):
    """A lock on a file. Acquiring it raises LocksRefused where the filesystem has no locks, and filelock.Timeout."""

    def _acquire(self) -> None:
        try:
            super()._acquire()
        except NotImplementedError as error:
            raise _refused(self.lock_file, "function not implemented") from error
        except OSError as error:
            if error.errno in _REFUSALS:
                raise _refused(self.lock_file, (error.strerror or "").lower()) from error
            raise

    def _fallback_to_soft_lock(self) -> None:
        """Refuse what filelock would do here: an existing file would be somebody's lock, however old it is."""
        raise NotImplementedError


def is_held(lock: Path) -> bool:
    """Return whether a process holds a lock, by trying it for a moment; this needs no right to write.

    The server of a shared filesystem answers for all machines.
    """
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # nobody has locked it yet, or there are no locks here
        return False
    return False


def _refused(lock: str, reason: str) -> LocksRefused:
    folder = Path(lock).parent
    return LocksRefused(f"{folder}: the filesystem refuses file locks ({reason}), so {REMEDY}")


def check(folder: Path) -> None:
    """Raise LocksRefused where a folder's filesystem has no locks, and OSError where nothing can be written there."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix=".lock-", dir=folder) as trial, Lock(Path(trial) / "lock"):
        pass
