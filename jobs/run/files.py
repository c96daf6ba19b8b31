"""Files of a run folder: whole files that replace the old ones at once, records appended line by line, and locks.

A kill cannot tear them. People who share a folder use each other's files, so every new file is created as `open` does:
the umask, the folder's setgid bit and its default ACL decide who may read and write it, nothing here does.

Every line of JSON has its checksum (CRC-32) as the last field of its object. A single flipped bit always changes it.
The checksum begins with what the line belongs to, its attempt or run, so that a line of another file is recognized too.

The kernel, or the server of a shared filesystem, releases a lock when its holder dies. Where a filesystem refuses
`flock` (Lustre mounted without `flock`), that is an error. A file whose existence is the lock would do there until a
worker is killed: nobody could tell then whether its node is still at work, and the shard would stay locked for good.
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
"""Numbers of the errors of a full disk, and of a quota that is used up."""


def opened(path: Path, flags: int) -> int:
    """Open a file for writing, which is created where it is missing; returns its descriptor. Raises OSError."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | flags, 0o666)  # less the umask


def reading(path: Path) -> io.BufferedReader:
    """Open a file for reading, which is no link to elsewhere and no pipe to wait for. Raises OSError."""
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Let errors name the file, which those of a write that finds no room do not."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that every reader sees either the old content or the new, even if this process is killed."""
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
    """Return whether a file exists on the server of a shared filesystem, whatever this machine remembers of it.

    It is linked and the link removed again: a server carries out both, while a look may be answered from a cache.
    """
    link = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        os.link(path, link)
    except OSError as error:  # a filesystem without links, or a colleague's file
        return error.errno not in (errno.ENOENT, errno.ESTALE) and path.exists()
    link.unlink(missing_ok=True)
    return True


def files_in(folder: Path, ending: str) -> list[Path]:
    """Return the files of a folder whose names end so, sorted, without hidden ones; none where there is no folder.

    Raises PermissionError where the folder may not be read, for which `Path.glob` returns nothing: a colleague's
    finished samples would count as missing.
    """
    try:
        paths = sorted(folder.iterdir())
    except FileNotFoundError:
        return []
    return [path for path in paths if path.name.endswith(ending) and not path.name.startswith(".")]


def append_record(path: Path, record: Mapping[str, Any], owner: str = "") -> None:
    """Append a record as a line of JSON with its checksum, durable when this returns; `owner` is what it belongs to.

    A torn line before it stays a line of its own.
    """
    line = with_checksum(orjson.dumps({FORMAT_KEY: FORMAT, **record}), owner)
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        with _naming(path):
            fcntl.flock(handle, fcntl.LOCK_EX)
            end = os.lseek(handle, 0, os.SEEK_END)  # NFS has no appending: each machine writes where it saw the end
            if end and os.pread(handle, 1, end - 1) != b"\n":
                line = b"\n" + line
            if os.write(handle, line) != len(line):
                raise OSError(errno.ENOSPC, "the record was not written whole", str(path))
            os.fsync(handle)
    finally:
        os.close(handle)


def read_records(path: Path, owner: str = "") -> list[dict[str, Any]]:
    """Return the records of a file in order.

    A torn last line, which nobody acted upon, is skipped, and a damaged one is named. A record that stands in the file
    twice, word for word, is one record: times in it tell two apart. Raises WrongFormat, and OSError where the file
    cannot be read; there are none where there is no file.
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
        first = f"line {bad[0]} is torn, does not match its checksum, or is of another run"
        say_once(f"{path} is damaged: {len(bad)} of its {len(lines)} lines cannot be used ({first})")
    return list(records.values())


def _record(line: bytes, owner: str) -> dict[str, Any] | None:
    """Return the record in a line without its checksum; None where it cannot be used."""
    if not has_right_checksum(line, owner):
        return None
    try:
        record = orjson.loads(line)
    except ValueError:  # somebody computed a checksum
        return None
    del record[CHECKSUM_KEY.decode()]
    return dict(record)


def records_of(path: Path, kind: type[_T], records: Iterable[Any]) -> Iterator[_T]:
    """Yield records of a file as objects; one that lacks something is named and left out."""
    adapter = TypeAdapter(kind)
    for record in records:
        try:
            yield adapter.validate_python(record)
        except ValidationError as error:
            say_once(f"{path} is damaged: a record is left out ({place_and_problem(error.errors()[0])})")


FORMAT = 3
"""Version of the format of run folders: of specifications, plans, trace files, grades, timings and journals, each of
which names it. No other one is read."""
FORMAT_KEY = "format"
CHECKSUM_KEY = b"crc32"
"""Name of a line's checksum."""
_CHECKSUM_START = b',"' + CHECKSUM_KEY + b'":"'
_CHECKSUM_BYTES = len(_CHECKSUM_START) + 8 + len(b'"}')
_logger = logging.getLogger(__name__)


class FileDamaged(ValueError):
    """A file of a run folder cannot be used; the message is one line that names the file and says why."""


class RunDamaged(FileDamaged):
    """A file of a run's plan cannot be read; the message is one line that names the file."""


class WrongFormat(FileDamaged):
    """A file was written in another format than this version's."""


@functools.cache
def say_once(message: str) -> None:
    """Log a warning that the process has not logged before: the same file may be read many times."""
    _logger.warning("%s", message)


def check_format(file: str | Path, written: int | str | None) -> None:
    """Raise WrongFormat where a file names another format than `FORMAT`, or none."""
    if written != FORMAT:
        named = "no format" if written is None else f"format {str(written)[:20]}"
        raise WrongFormat(
            f"{file} has {named}, and this version of the harness reads format {FORMAT} alone: "
            "use the version that wrote it, or launch a new run"
        )


def checksum(content: bytes, owner: str) -> bytes:
    """Return the checksum of a text that belongs to an attempt or a run, as 8 hexadecimal digits."""
    return b"%08x" % zlib.crc32(content, zlib.crc32(owner.encode()))


def with_checksum(record: bytes, owner: str) -> bytes:
    """Return a JSON object as a line that ends with its checksum as the last field."""
    body = record[:-1]
    return b'%b%b%b"}\n' % (body, _CHECKSUM_START, checksum(body, owner))


def has_right_checksum(line: bytes, owner: str) -> bool:
    """Return whether a line of JSON, with or without its newline, ends with its checksum."""
    line = line.removesuffix(b"\n")
    body, end = line[:-_CHECKSUM_BYTES], line[-_CHECKSUM_BYTES:]
    return end == b'%b%b"}' % (_CHECKSUM_START, checksum(body, owner))


def is_torn(line: bytes) -> bool:
    """True for a line that its writer was writing when it ended: one that can still become a whole line."""
    _, start, end = line.rpartition(_CHECKSUM_START)
    return not line.endswith(b"\n") and not (start and len(end) > _CHECKSUM_BYTES - len(_CHECKSUM_START))


_REFUSALS = {errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP}
REMEDY = "mount it with locks (Lustre: -o flock; NFS: without nolock), or choose another folder"


class LocksRefused(ValueError):
    """The filesystem has no locks; the message is one line."""


class Lock(FileLock):
    """A lock on a file. Acquiring it raises LocksRefused where the filesystem has no locks, and filelock.Timeout."""

    def _acquire(self) -> None:
        try:
            super()._acquire()
        except (NotImplementedError, OSError) as error:
            number = getattr(error, "errno", errno.ENOSYS)
            if number not in _REFUSALS:
                raise
            folder, reason = Path(self.lock_file).parent, os.strerror(number).lower()
            raise LocksRefused(f"{folder}: the filesystem refuses file locks ({reason}), so {REMEDY}") from error

    def _fallback_to_soft_lock(self) -> None:
        """Refuse what filelock would do here: an existing file would be somebody's lock, however old it is."""
        raise NotImplementedError


def is_held(lock: Path) -> bool:
    """Return whether a process holds a lock, by trying it for a moment; this needs no right to write.

    The server of a shared filesystem answers for all machines.
    """
    try:
        with reading(lock) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # nobody has locked it yet, or there are no locks here
        return False
    return False


def check_locks(folder: Path) -> None:
    """Raise LocksRefused where a folder's filesystem has no locks, and OSError where nothing can be written there."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix=".lock-", dir=folder) as trial, Lock(Path(trial) / "lock"):
        pass
