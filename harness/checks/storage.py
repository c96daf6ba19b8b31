"""Checks of the output folder: writing, fsync, locks between processes, free space, and visibility to the nodes."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from harness.checks.finding import Check, Question, failure, ok, probe, warning

_MIN_BYTES, _FEW_BYTES = 100 << 20, 5 << 30
_SLOW_SYNC_SECONDS = 0.5
"""Longest fsync without a warning: journals are synced once a second."""
_LOCK_SECONDS = 30.0
_MEMORY_FILESYSTEMS = {"tmpfs", "ramfs"}
_LOCAL_FILESYSTEMS = {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "overlay", *_MEMORY_FILESYSTEMS}
_LOCAL_LOCKS = {
    "nfs": ("nolock", "local_lock=all", "local_lock=flock"),
    "nfs4": ("local_lock=all", "local_lock=flock"),
    "lustre": ("localflock",),
}
"""Mount options with which a lock on one node does not keep out another one, by type of filesystem."""
ONE_NODE = (
    "file locks hold on one node only here (mount option {}): two nodes could run the same shard, which wastes work "
    "and counts nothing twice; mount it without that option, or give another --output"
)
_STATUS = Path("/proc/self/status")
_TRY_LOCK = """
import json, sys
from filelock import FileLock, Timeout
try:
    FileLock(sys.argv[1], timeout=0).acquire()
    print(json.dumps("taken"))
except Timeout:
    print(json.dumps("held"))
"""


def check_storage(question: Question) -> Iterator[Check]:
    """Check the output folder, with temporary files that are removed again."""
    output = question.launch.output
    folder = _nearest_existing(output)
    try:
        trial = Path(tempfile.mkdtemp(prefix=".doctor-", dir=folder))
    except OSError as problem:
        yield failure("output", f"{folder} cannot be written to ({problem.strerror}): give another --output")
        return
    try:
        kind, point, _ = filesystem(folder)
        yield ok("output", f"{output}{'' if folder == output else ', will be created'}, on {kind} at {point}")
        if kind in _MEMORY_FILESYSTEMS:
            yield warning("output filesystem", f"{kind} is lost when this machine restarts: give another --output")
        elif question.cluster == "slurm" and kind in _LOCAL_FILESYSTEMS and not question.on_node:
            yield warning("output filesystem", f"{kind} is usually local, and nodes must see it: check with --on-node")
        yield _durable(trial)
        yield _locks(trial)
        if text := keeps_group_out(output):
            yield warning("sharing", text)
        yield from _room(folder)
    finally:
        shutil.rmtree(trial, ignore_errors=True)


def filesystem(folder: Path) -> tuple[str, str, list[str]]:
    """Return type, mount point and options of the filesystem of a folder; the type may be `unknown`."""
    resolved = folder.resolve()
    mounts = [m for m in psutil.disk_partitions(all=True) if resolved.is_relative_to(m.mountpoint)]
    if not mounts:
        return "unknown", "/", []
    nearest = max(reversed(mounts), key=lambda mount: len(mount.mountpoint))  # the last one hides those below it
    return nearest.fstype, nearest.mountpoint, nearest.opts.split(",")


def is_shared(folder: Path) -> bool:
    """Return whether other machines may write to the filesystem of a folder."""
    return filesystem(folder)[0] not in {*_LOCAL_FILESYSTEMS, "unknown"}


def locks_of_one_node(folder: Path) -> str:
    """Return the mount option by which locks of a folder's filesystem hold on one node only; empty for none."""
    kind, _, given = filesystem(folder)
    return next((option for option in _LOCAL_LOCKS.get(kind, ()) if option in given), "")


def try_lock(path: Path, seconds: float = _LOCK_SECONDS) -> str:
    """Try a lock from another process: `held`, `taken`, or the reason why it cannot be tried."""
    result = probe(_TRY_LOCK, str(path), seconds=seconds)
    return str(result.answer) if result.problem is None else result.problem


def _nearest_existing(output: Path) -> Path:
    """Return the folder itself, or the nearest existing folder above it."""
    return next(folder for folder in (output, *output.parents) if folder.exists())


def _durable(trial: Path) -> Check:
    try:
        started = time.monotonic()
        with (trial / "part").open("xb") as file:
            file.write(bytes(1 << 16))
            file.flush()
            os.fsync(file.fileno())
        seconds = time.monotonic() - started
        (trial / "part").replace(trial / "whole")
    except OSError as problem:
        return failure("writing", f"write, fsync or rename fails ({problem.strerror}): give another --output")
    if seconds > _SLOW_SYNC_SECONDS:
        return warning("writing", f"fsync took {seconds:.1f} s, and journals need one a second: give a faster --output")
    return ok("writing", f"write, fsync and rename work, fsync in {seconds * 1000:.0f} ms")


def _locks(trial: Path) -> Check:
    remedy = "two workers could run the same shard: mount it with locks (NFS: without nolock; Lustre: flock)"
    try:
        # Without flock, filelock uses a file's existence as the lock, and a killed worker would leave it locked.
        with (trial / "flock").open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with FileLock(trial / "lock", timeout=5):
            outcome = try_lock(trial / "lock")
    except (OSError, NotImplementedError, Timeout) as problem:
        return failure("file locking", f"does not work ({problem}); {remedy}")
    if outcome == "held":
        if option := locks_of_one_node(trial):
            return warning("file locking", ONE_NODE.format(option))
        return ok("file locking", "locks exclude a second process")
    if outcome == "taken":
        return failure("file locking", f"a second process got a lock that the first one held; {remedy}")
    return failure("file locking", f"a second process cannot try a lock ({outcome}); {remedy}")


def keeps_group_out(output: Path) -> str:
    """Return one line where a launch would begin in a group's folder what its members could not resume, otherwise "".

    Nothing is written: the process's umask decides, unless the folder has a default ACL, which is not judged.
    """
    try:
        folder = _nearest_existing(output.absolute())
        status = _STATUS.read_text()
    except OSError:
        return ""
    umask = next((line.split()[1] for line in status.splitlines() if line.startswith("Umask:")), "0")
    shared = stat.S_ISGID | stat.S_IWGRP  # new files belong to the group, whose members may create some
    if folder.stat().st_mode & shared != shared or not int(umask, 8) & stat.S_IWGRP or _has_default_acl(folder):
        return ""
    return f"{folder} is a group's, whose members could not resume what you launch: set umask 002"


def _has_default_acl(folder: Path) -> bool:
    try:
        return "system.posix_acl_default" in os.listxattr(folder)
    except OSError:
        return False


def _room(folder: Path) -> Iterator[Check]:
    free = shutil.disk_usage(folder).free
    text = f"{free / 2**30:.1f} GiB free"
    if free < _MIN_BYTES:
        yield failure("room", f"{text}: free some space or give another --output")
    elif free < _FEW_BYTES:
        yield warning("room", f"{text}: enough for a small run only")
    else:
        yield ok("room", text)
