"""Locks on files between processes and nodes. Where a filesystem has none, that is an error instead of a weaker lock.

The kernel, or the server of a shared filesystem, releases a lock when its holder dies. Some filesystems refuse `flock`
(Lustre mounted without `flock`). A file whose existence is the lock would do there until a worker is killed: nobody
could tell then whether its node is still at work, and the shard would stay locked for good.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import re
import warnings
from collections.abc import Mapping
from pathlib import Path

from filelock import FileLock, SoftFileLock

_REFUSALS = {errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP}
_HELD, _FIELDS = Path("/proc/locks"), 8
_MOUNTS = Path("/proc/self/mountinfo")
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


def is_held(lock: Path) -> bool:
    """Return whether a process holds a lock, by trying it for a moment; this needs no right to write."""
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # nobody has locked it yet, or there are no locks here
        return False
    return False


def holder_here(lock: Path) -> int | None:
    """Return the process on this machine that holds a lock; None where there is none, or the system does not say."""
    holders = _holders()
    with contextlib.suppress(OSError):
        return holders.get((_device(lock, _devices()), str(lock.stat().st_ino)))
    return None


def _holders() -> Mapping[tuple[str | None, str], int]:
    """Return the processes that hold locks, by device and inode of the file; empty where the system does not say."""
    try:
        lines = [line.split() for line in _HELD.read_text().splitlines()]
        _devices()
    except OSError:
        return {}
    held = [fields for fields in lines if len(fields) >= _FIELDS and fields[1] != "->"]
    found: dict[tuple[str | None, str], int] = {}
    for fields in held:
        device, _, inode = fields[-3].rpartition(":")
        found[device, inode] = int(fields[-4])
    return found


def _devices() -> dict[str, str]:
    """Return the devices of filesystems by where they are mounted, as `/proc/locks` writes them: `fd:01`.

    `stat` has another device than the kernel's list of locks on filesystems with several volumes (Btrfs, overlays).
    """
    devices = {}
    for line in _MOUNTS.read_text().splitlines():
        _, _, device, _, place, *_ = line.split()
        major, minor = map(int, device.split(":"))
        devices[re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), place)] = f"{major:02x}:{minor:02x}"
    return devices


def _device(file: Path, devices: Mapping[str, str]) -> str | None:
    """Return the device of the filesystem that a file is on; None where it is not known."""
    return next((found for place in file.resolve().parents if (found := devices.get(str(place)))), None)


def _refused(lock: str, reason: str) -> LocksRefused:
    folder = Path(lock).parent
    return LocksRefused(f"{folder}: the filesystem refuses file locks ({reason}), so {REMEDY}")


def check(folder: Path) -> None:
    """Raise LocksRefused where a folder's filesystem has no locks, and OSError where nothing can be written there."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix=".lock-", dir=folder) as trial, Lock(Path(trial) / "lock"):
        pass
