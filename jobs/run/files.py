"""Files of a run folder: atomically replaced files, append-only records, and locks.

A kill cannot leave partial files. Users who share a folder use each other's files, so new files are created as by
`open`: umask, setgid bit and default ACL determine their permissions.

Every JSON line ends with its CRC-32 checksum, which any single flipped bit changes. The checksum also covers the id of
the attempt or run, so lines copied from other files are detected too.

The kernel, or the server of a shared filesystem, releases a lock when its holder dies. A filesystem without `flock`
(Lustre mounted without `flock`) is an error. Lock files without `flock` would not work: if a worker is killed, nobody
can tell whether its node is still active, and the shard would stay locked forever.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import io
import logging
import os
import secrets
import stat
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import orjson
from filelock import FileLock
from pydantic import TypeAdapter, ValidationError

from harness.cli.messages import place_and_problem

_T = TypeVar("_T")
FULL = (errno.ENOSPC, errno.EDQUOT)
"""Error numbers of a full disk and an exhausted quota."""


def opened(path: Path, flags: int) -> int:
    """Open a file for writing, creating it if needed; return its descriptor. Raises OSError."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | flags, 0o666)  # minus the umask


def reading(path: Path) -> io.BufferedReader:
    """Open a regular file for reading without following links or waiting for pipes. Raises RunDamaged and OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise RunDamaged(f"{path} is damaged: not a regular file")
    return os.fdopen(handle, "rb")


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Add the file name to errors that lack it, e.g. those raised by a write to a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file atomically: readers see the old or the new content, even if this process is killed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with _naming(path), os.fdopen(opened(temporary, os.O_EXCL), "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def is_there(path: Path) -> bool:
    """Return whether a file exists on the server of a shared filesystem, regardless of this machine's cache.

    A link to the file is created and removed: the server performs both, while a lookup may be answered from a cache.
    """
    link = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        os.link(path, link)
    except OSError as error:  # a filesystem without hard links, or another user's file
        return error.errno not in (errno.ENOENT, errno.ESTALE) and path.exists()
    link.unlink(missing_ok=True)
    return True


def files_in(folder: Path, ending: str) -> list[Path]:
    """Return the files of a folder with this suffix, sorted, without hidden ones; empty if there is no folder.

    Raises PermissionError if the folder is not readable. `Path.glob` would return nothing, and another user's finished
    samples would count as missing.
    """
    try:
        paths = sorted(folder.iterdir())
    except FileNotFoundError:
        return []
    return [path for path in paths if path.name.endswith(ending) and not path.name.startswith(".")]


def append_record(path: Path, record: Mapping[str, Any], owner: str = "") -> None:
    """Append a record as a JSON line with its checksum, synced to disk; `owner`: id of the record's attempt or run.

    If the file ends with an incomplete line, the record starts on a new line.
    """
    line = with_checksum(orjson.dumps({FORMAT_KEY: FORMAT, **record}), owner)
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        with _naming(path):
            fcntl.flock(handle, fcntl.LOCK_EX)
            end = os.lseek(handle, 0, os.SEEK_END)  # NFS has no atomic append: each machine uses its own view
            if end and os.pread(handle, 1, end - 1) != b"\n":
                line = b"\n" + line
            if os.write(handle, line) != len(line):
                raise OSError(errno.ENOSPC, "the record was written only partially", str(path))
            os.fsync(handle)
    finally:
        os.close(handle)


def read_records(path: Path, owner: str = "") -> list[dict[str, Any]]:
    """Return the records of a file in order.

    An incomplete last line is skipped, because writing it never completed; damaged lines are reported. Identical lines
    count once. Empty if there is no file. Raises WrongFormat, and OSError if the file cannot be read.
    """
    try:
        with reading(path) as file:
            lines = list(file)
    except FileNotFoundError:
        return []
    bad: list[int] = []
    records: dict[bytes, dict[str, Any]] = {}
    for number, line in enumerate(lines, 1):
        if line in records or line.isspace():
            continue
        if (record := _record(line, owner)) is not None:
            check_format(path, record.pop(FORMAT_KEY, None))
            records[line] = record
        elif not is_torn(line):
            bad.append(number)
    if bad:
        first = f"line {bad[0]} is incomplete, has a wrong checksum, or belongs to another run"
        say_once(f"{path} is damaged: {len(bad)} of its {len(lines)} lines are unusable ({first})")
    return list(records.values())


def _record(line: bytes, owner: str) -> dict[str, Any] | None:
    """Return the record in a line without its checksum; None if it is unusable."""
    if not has_right_checksum(line, owner):
        return None
    try:
        record = orjson.loads(line)
    except ValueError:  # not JSON in spite of a valid checksum
        return None
    del record[CHECKSUM_KEY.decode()]
    return dict(record)


def records_of(path: Path, kind: type[_T], records: Iterable[Any]) -> Iterator[_T]:
    """Yield records of a file as objects; invalid ones are skipped with a warning."""
    adapter = TypeAdapter(kind)
    for record in records:
        try:
            yield adapter.validate_python(record)
        except ValidationError as error:
            say_once(f"{path} is damaged: skipping a record ({place_and_problem(error.errors()[0])})")


FORMAT = 3
"""Format version of run folders (specifications, plans, trace files, grades, timings and journals), recorded in each
file. Other versions cannot be read."""
FORMAT_KEY = "format"
CHECKSUM_KEY = b"crc32"
"""Key of a line's checksum."""
_CHECKSUM_START = b',"' + CHECKSUM_KEY + b'":"'
_CHECKSUM_BYTES = len(_CHECKSUM_START) + 8 + len(b'"}')
_logger = logging.getLogger(__name__)


class FileDamaged(ValueError):
    """A file of a run folder is unusable; the one-line message contains the file and the reason."""


class RunDamaged(FileDamaged):
    """A file without which a run cannot be used, e.g. its plan, is unusable; the one-line message contains the file."""


class WrongFormat(FileDamaged):
    """A file has another format version."""


@functools.cache
def say_once(message: str) -> None:
    """Log a warning once per process: the same file may be read many times."""
    _logger.warning("%s", message)


def check_format(file: str | Path, written: int | str | None) -> None:
    """Raise WrongFormat if a file's format is missing or differs from `FORMAT`."""
    if written != FORMAT:
        named = "no format" if written is None else f"format {str(written)[:20]}"
        raise WrongFormat(
            f"{file} has {named}, but this version of the harness only reads format {FORMAT}: "
            "use the version that wrote it, or launch a new run"
        )


def checksum(content: bytes, owner: str) -> bytes:
    """Return the checksum of content that belongs to an attempt or run, as 8 hexadecimal digits."""
    return b"%08x" % zlib.crc32(content, zlib.crc32(owner.encode()))


def with_checksum(record: bytes, owner: str) -> bytes:
    """Return a JSON object as a line with its checksum as the last field."""
    body = record[:-1]
    return b'%b%b%b"}\n' % (body, _CHECKSUM_START, checksum(body, owner))


def has_right_checksum(line: bytes, owner: str) -> bool:
    """Return whether a JSON line, with or without its newline, ends with its checksum."""
    line = line.removesuffix(b"\n")
    body, end = line[:-_CHECKSUM_BYTES], line[-_CHECKSUM_BYTES:]
    return end == b'%b%b"}' % (_CHECKSUM_START, checksum(body, owner))


def is_torn(line: bytes) -> bool:
    """Return True for an incomplete line that its writer could still complete."""
    _, start, end = line.rpartition(_CHECKSUM_START)
    return not line.endswith(b"\n") and not (start and len(end) > _CHECKSUM_BYTES - len(_CHECKSUM_START))


_REFUSALS = {errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP}
REMEDY = "mount it with locks (Lustre: -o flock; NFS: without nolock), or choose another folder"


class LocksRefused(ValueError):
    """The filesystem does not support locks; the message is one line."""


class Lock(FileLock):
    """A file lock. Acquiring raises filelock.Timeout, and LocksRefused if the filesystem does not support locks."""

    def _acquire(self) -> None:
        try:
            super()._acquire()
        except (NotImplementedError, OSError) as error:
            number = getattr(error, "errno", errno.ENOSYS)
            if number not in _REFUSALS:
                raise
            folder, reason = Path(self.lock_file).parent, os.strerror(number).lower()
            raise LocksRefused(f"{folder}: the filesystem has no file locks ({reason}): {REMEDY}") from error

    def _fallback_to_soft_lock(self) -> None:
        """Reject filelock's fallback, in which any existing file, however old, is a lock."""
        raise NotImplementedError


def is_held(lock: Path) -> bool:
    """Return whether a process holds a lock, by trying to lock it briefly; needs no write permission.

    On a shared filesystem, locks of all machines are seen.
    """
    try:
        with reading(lock) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (OSError, RunDamaged):  # never locked yet, or no lock support
        return False
    return False


def check_locks(folder: Path) -> None:
    """Raise LocksRefused if a folder's filesystem does not support locks, and OSError if it is not writable."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix=".lock-", dir=folder) as trial, Lock(Path(trial) / "lock"):
        pass
