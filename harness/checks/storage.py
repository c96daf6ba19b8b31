"""The output folder: writable, durable, with locks between processes, with room, and where the nodes can see it."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from harness.checks.check import Check, Question, failure, ok, warning
from harness.checks.probe import probe

_LEAST_BYTES, _FEW_BYTES = 100 << 20, 5 << 30
_FEW_FILES = 1000
_SLOW_SYNC_SECONDS = 0.5
"""Journals are synced once a second."""
_LOCK_SECONDS = 30.0
_OF_ONE_MACHINE = {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "overlay", "tmpfs", "ramfs"}
_OF_MEMORY = {"tmpfs", "ramfs"}
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
    """Everything about the output folder; what is written for it is removed again."""
    output = Path(question.output)
    folder = _nearest(output)
    try:
        trial = Path(tempfile.mkdtemp(prefix=".doctor-", dir=folder))
    except OSError as problem:
        yield failure("output", f"{folder} cannot be written to ({problem.strerror}): give another --output")
        return
    try:
        yield ok("output", f"{output}" + ("" if folder == output else ", will be made") + f", on {_shown(folder)}")
        yield from _visibility(folder, question)
        yield _durable(trial)
        yield _locks(trial)
        yield from _room(folder)
    finally:
        shutil.rmtree(trial, ignore_errors=True)


def filesystem(folder: Path) -> tuple[str, str]:
    """Type and mount point of the filesystem that a folder is on, `unknown` where the system does not say."""
    table = Path("/proc/self/mountinfo")
    best, kind = Path("/"), "unknown"
    if table.is_file():
        for line in table.read_text().splitlines():
            before, _, after = line.partition(" - ")
            point = Path(before.split()[4].encode().decode("unicode_escape"))
            if folder.resolve().is_relative_to(point) and len(point.parts) >= len(best.parts):
                best, kind = point, after.split()[0]
    return kind, str(best)


def try_lock(path: Path, seconds: float = _LOCK_SECONDS) -> str:
    """What another process makes of a lock: `held`, `taken`, or why it cannot be tried."""
    found = probe(_TRY_LOCK, str(path), seconds=seconds)
    return str(found.answer) if found.problem is None else found.problem


def _nearest(output: Path) -> Path:
    """The folder itself, or the nearest one above it that exists."""
    return next(folder for folder in (output, *output.parents) if folder.exists())


def _shown(folder: Path) -> str:
    kind, point = filesystem(folder)
    return f"{kind} at {point}"


def _visibility(folder: Path, question: Question) -> Iterator[Check]:
    kind, _ = filesystem(folder)
    if kind in _OF_MEMORY:
        yield warning("output filesystem", f"{kind} is gone when this machine restarts: give another --output")
    elif question.cluster == "slurm" and kind in _OF_ONE_MACHINE and not question.on_node:
        yield warning("output filesystem", f"{kind} is mostly one machine's own; nodes must see it: --on-node tries")


def _durable(trial: Path) -> Check:
    content = os.urandom(1 << 16)
    try:
        started = time.monotonic()
        with (trial / "part").open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        seconds = time.monotonic() - started
        (trial / "part").replace(trial / "whole")
        whole = (trial / "whole").read_bytes() == content
    except OSError as problem:
        return failure("writing", f"write, fsync and rename fail there ({problem.strerror}): give another --output")
    if not whole:
        return failure("writing", "what is read is not what was written: give another --output")
    if seconds > _SLOW_SYNC_SECONDS:
        return warning(
            "writing", f"fsync took {seconds:.1f} s, and journals are synced once a second: a faster --output"
        )
    return ok("writing", f"write, fsync and rename work, fsync in {seconds * 1000:.0f} ms")


def _locks(trial: Path) -> Check:
    remedy = "two workers could run one shard: mount it with locks (NFS: no nolock; Lustre: flock) or another --output"
    try:
        # filelock takes a file's mere existence for a lock where there is no flock; a killed worker's would stay
        with (trial / "flock").open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with FileLock(trial / "lock", timeout=5):
            seen = try_lock(trial / "lock")
    except (OSError, NotImplementedError, Timeout) as problem:
        return failure("file locking", f"does not work there ({problem}); {remedy}")
    if seen == "held":
        return ok("file locking", "a second process is kept out")
    if seen == "taken":
        return failure("file locking", f"a second process got a lock that the first one held; {remedy}")
    return failure("file locking", f"a second process cannot try ({seen}); {remedy}")


def _room(folder: Path) -> Iterator[Check]:
    free = shutil.disk_usage(folder).free
    text = f"{free / 2**30:.1f} GiB free"
    about = os.statvfs(folder)
    if free < _LEAST_BYTES:
        yield failure("room", f"{text}: make room or give another --output")
    elif free < _FEW_BYTES:
        yield warning("room", f"{text}: enough for a small run only")
    elif about.f_files and about.f_favail < _FEW_FILES:
        yield warning("room", f"{text}, but only {about.f_favail} more files may be made there")
    else:
        yield ok("room", text)
