"""The submitted code on a node's own disk: unpacked once for all jobs there that run it, removed after the last one.

A batch script runs this module from the archive itself (jobs.submission.snapshot writes the lines), so only the
standard library is imported. Each job holds a shared lock on the file `FOLDER.lock` through a descriptor that its shell
has opened; the kernel releases it however the shell ends. Whoever gets the lock alone may unpack or remove the folder.
The folder is renamed into place, so it is whole or absent. A job that begins also removes what killed jobs have left.

    take ARCHIVE SHA256 FOLDER [DESCRIPTOR]    prints the folder; exit code 75: open the lock again, it was removed
    leave FOLDER [DESCRIPTOR]                  removes the folder unless another job uses it
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import random
import shutil
import stat
import sys
import tempfile
import time
import zipfile
from pathlib import Path

REOPEN = 75
"""Exit code: another job has removed the lock that the descriptor is of."""
PREFIX = "harness-code-"
_WAIT_SECONDS, _POLL_SECONDS = 120.0, 0.05
"""How long to wait for a job that is unpacking the same code, and how often to look."""


class Damaged(ValueError):
    """The archive is not what was submitted."""


class Removed(Exception):
    """The lock's file was removed after it was opened."""


_held: list[int] = []
"""Descriptors by which this process holds folders."""


def take(archive: Path, sha256: str, shared: Path, lock: int | None) -> Path:
    """Return a folder with the unpacked archive: `shared`, with a shared lock on it held by the descriptor `lock`.

    Where that cannot be used safely, because there is no lock or another user has made it, it is a new one for this job
    alone. Raises Damaged, and OSError where nothing can be written.
    """
    content = archive.read_bytes()
    if hashlib.sha256(content).hexdigest() != sha256:
        raise Damaged(f"{archive} is damaged: it is not the archive that was submitted")
    if lock is None or not _is_own(os.fstat(lock)) or not _can_lock(lock) or not _use(archive, shared, lock):
        private = Path(tempfile.mkdtemp(prefix=PREFIX, dir=shared.parent))
        _extract(archive, private)
        return private
    for other in _folders_like(shared):
        if other != shared:
            with contextlib.suppress(OSError):
                remove_if_unused(other)
    return shared


def open_lock(shared: Path) -> int | None:
    """Open the lock of a folder for `take`; None where that is not allowed."""
    try:
        return os.open(_lock_of(shared), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError:
        return None


def leave(folder: Path, lock: int | None) -> None:
    """End a job's use of what `take` has returned; the folder is removed unless another job uses it."""
    while _held:
        os.close(_held.pop())
    if lock is None or not _is_current(lock, _lock_of(folder)):
        shutil.rmtree(folder, ignore_errors=True)
    else:
        _remove_if_alone(folder, lock)


def remove_if_unused(folder: Path) -> bool:
    """Remove a folder and its lock unless a job uses it; returns whether it did."""
    lock = os.open(_lock_of(folder), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        return _remove_if_alone(folder, lock)
    finally:
        os.close(lock)


def _remove_if_alone(folder: Path, lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not _is_current(lock, _lock_of(folder)):
            return False
        shutil.rmtree(_partial(folder), ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)
        _lock_of(folder).unlink()
    except OSError:  # in use, or no locks on this filesystem
        return False
    return True


def hold(folder: Path) -> None:
    """Keep a folder from being removed until this process ends; without effect where it is this job's alone."""
    with contextlib.suppress(OSError):
        lock = os.open(_lock_of(folder), os.O_RDONLY | os.O_NOFOLLOW)
        _held.append(lock)
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)


def _use(archive: Path, shared: Path, lock: int) -> bool:
    """Take the shared lock, and unpack where nobody has; returns False where that did not work for two minutes."""
    deadline = time.monotonic() + _WAIT_SECONDS
    while time.monotonic() < deadline:
        if _flock(lock, fcntl.LOCK_SH):
            if not _is_current(lock, _lock_of(shared)):
                raise Removed
            if shared.exists():
                return _is_own(shared.lstat())
            # Changing the kind of a lock releases it for a moment, so look again after it; and never wait for this one,
            # because whoever has unpacked meanwhile keeps the shared lock for as long as its job lasts.
            if _flock(lock, fcntl.LOCK_EX):
                if not _is_current(lock, _lock_of(shared)):
                    raise Removed
                if not shared.exists():
                    _unpack(archive, shared)
                continue
            fcntl.flock(lock, fcntl.LOCK_UN)
        time.sleep(_POLL_SECONDS * random.uniform(0.5, 1.5))
    return False


def _unpack(archive: Path, shared: Path) -> None:
    partial = _partial(shared)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(mode=0o700)
    try:
        _extract(archive, partial)
        partial.rename(shared)
    except OSError:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _can_lock(lock: int) -> bool:
    try:
        _flock(lock, fcntl.LOCK_SH)
    except OSError:  # no locks on this filesystem
        return False
    return True


def _flock(lock: int, kind: int) -> bool:
    """Take a lock; returns False where another process has one that excludes it."""
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _extract(archive: Path, folder: Path) -> None:
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(folder)


def _folders_like(shared: Path) -> set[Path]:
    """Return the folders of this user and node beside this one, also those of which only the lock is left."""
    common = shared.name.rpartition("-")[0]
    names = {path.name.removesuffix(".lock").removesuffix(".partial") for path in shared.parent.iterdir()}
    return {shared.parent / name for name in names if name.rpartition("-")[0] == common}


def _is_current(lock: int, path: Path) -> bool:
    """Return whether a descriptor is of the file that now has this path."""
    try:
        return os.path.samestat(os.fstat(lock), path.lstat())
    except FileNotFoundError:
        return False


def _is_own(status: os.stat_result) -> bool:
    """Return True if nobody else can have put it there or write to it: what is in it will be executed."""
    is_plain = stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode)
    return is_plain and status.st_uid == os.getuid() and not (stat.S_ISDIR(status.st_mode) and status.st_mode & 0o022)


def _lock_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")


def _partial(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.partial")


def main(arguments: list[str]) -> int:
    """Run one command of a batch script; returns its exit code."""
    command, *rest = arguments
    number = {"take": 3, "leave": 1}[command]
    lock = int(rest[number]) if len(rest) > number else None
    if command == "leave":
        leave(Path(rest[0]), lock)
        return 0
    archive, sha256, shared = rest[:number]
    try:
        print(take(Path(archive), sha256, Path(shared), lock))
    except Removed:
        return REOPEN
    except (OSError, Damaged, zipfile.BadZipFile) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0
