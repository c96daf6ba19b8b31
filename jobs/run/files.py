"""Files of a run folder: whole files that replace the old ones at once, records appended line by line, and digests.

A kill cannot tear them. People who share a folder use each other's files, so every new file is created as `open` does:
the umask, the folder's setgid bit and its default ACL decide who may read and write it, nothing here does.

Digests show damage: one in every Parquet file, a checksum in every line of JSON. A Parquet file is read from its end:
the last bytes say where its footer begins, and the footer where each column is. What lies between the columns and the
footer is never looked at, so the digests stand there, in the file that they are of: no second file.

    PAR1 | columns | magic number, SHA-256 of the footer, SHA-256 of what comes before | footer | its length | PAR1

The footer's digest alone is checked in little time; together with the checksums that Parquet has of every page it
covers what a reader of two columns reads. The other one needs the whole file.

A line of a journal has its checksum (CRC-32) as the last field of its object, a record the line before it. A single
flipped bit always changes it. The checksum begins with what the line belongs to, its attempt or run, so that a line of
another file is recognized too.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import logging
import os
import re
import secrets
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import orjson
from pydantic import TypeAdapter, ValidationError

_T = TypeVar("_T")
FULL = (errno.ENOSPC, errno.EDQUOT)
"""Numbers of the errors of a full disk, and of a quota that is used up."""
_BEFORE_RECORD = re.compile(rb"#format (\d+) crc32 ([0-9a-f]{8})")
"""The line before a record: the format of its file, and its checksum."""


def opened(path: Path, flags: int) -> int:
    """Open a file for writing, which is created where it is missing; returns its descriptor. Raises OSError."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | flags, 0o666)  # less the umask


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


def append_record(path: Path, record: Mapping[str, Any], run_id: str = "") -> None:
    """Append a record as a line of JSON, durable when this returns; a torn line before it stays a line of its own.

    A line before it has the format, and its checksum, which depends on the run that the record is of.
    """
    line = orjson.dumps(record)
    content = b"\n#format %d crc32 %b\n%b\n" % (FORMAT, checksum(line, run_id), line)
    handle = opened(path, os.O_APPEND)
    try:
        with _naming(path):
            if os.write(handle, content) != len(content):
                raise OSError(errno.ENOSPC, "the record was not written whole", str(path))
            os.fsync(handle)
    finally:
        os.close(handle)


def read_records(path: Path, run_id: str | None = "") -> Iterator[dict[str, Any]]:
    """Yield the records of a file in order; a torn line, which nobody acted upon, is skipped, a damaged one named.

    A record that stands in the file twice, word for word, is one record: times in it tell two apart.
    `run_id` is that of the run whose records they should be; None: it is not known, and nothing is compared. Raises
    WrongFormat.
    """
    if not path.exists():
        return
    before: re.Match[bytes] | None = None
    seen: set[bytes] = set()
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, 1):
        if found := _BEFORE_RECORD.fullmatch(line):
            check_format(path, int(found[1]))
        elif before and (run_id is None or before[2] == checksum(line, run_id)):
            if line not in seen:
                yield orjson.loads(line)
            seen.add(line)
        elif line and number < len(lines):
            say_once(
                f"{path} is damaged: line {number} is torn, does not match its checksum, or is of another run; left out"
            )
        before = found


def records_of(path: Path, kind: TypeAdapter[_T], records: Iterable[Any]) -> Iterator[_T]:
    """Yield records of a file as objects; one that lacks something is named and left out."""
    for record in records:
        try:
            yield kind.validate_python(record)
        except ValidationError as error:
            place = ".".join(map(str, error.errors()[0]["loc"]))
            say_once(f"{path} is damaged: a record is left out ({place}: {error.errors()[0]['msg']})")


FORMAT = 1
"""Version of the format of run folders: of specifications, plans, trace files, grades, timings and journals, each of
which names it. No other one is read."""
FORMAT_KEY = "format"
CHECKSUM_KEY = b"crc32"
"""Name of a line's checksum."""
_MAGIC = b"\x89digest\n"
_HASH_BYTES = 32
_BLOCK_BYTES = len(_MAGIC) + 2 * _HASH_BYTES
_PARQUET = b"PAR1"
_TAIL_BYTES = 8
"""The footer's length in four bytes, and PAR1."""
_BYTES_AT_ONCE = 1 << 20
_CHECKSUM_START = b',"' + CHECKSUM_KEY + b'":"'
_CHECKSUM_BYTES = len(_CHECKSUM_START) + 8 + len(b'"}')
_logger = logging.getLogger(__name__)


class FileDamaged(ValueError):
    """A file of a run folder cannot be used; the message is one line that names the file and says why."""


class WrongFormat(FileDamaged):
    """A file was written in another format than this version's."""


@functools.cache
def say_once(message: str) -> None:
    """Log a warning that the process has not logged before: the same file may be read many times."""
    _logger.warning("%s", message)


def with_digests(parquet: memoryview) -> bytes:
    """Return the content of a Parquet file with its digests."""
    start = len(parquet) - _TAIL_BYTES - _footer_bytes(bytes(parquet[-_TAIL_BYTES:]))
    columns, footer = parquet[:start], parquet[start:]
    block = _MAGIC + hashlib.sha256(footer).digest() + hashlib.sha256(columns).digest()
    return b"".join((columns, block, footer))


def check_digests(path: Path, *, whole: bool) -> None:
    """Compare a Parquet file with its digests.

    `whole`: the columns too, otherwise the footer alone. Raises FileDamaged, and OSError where the file cannot be read.
    """
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL_BYTES))
        tail = file.read(_TAIL_BYTES)
        if size < len(_PARQUET) + _TAIL_BYTES or not tail.endswith(_PARQUET):
            raise FileDamaged(f"{path} is damaged: it does not end like a Parquet file (Parquet magic bytes)")
        start = size - _TAIL_BYTES - _footer_bytes(tail) - _BLOCK_BYTES
        file.seek(max(0, start))
        block = file.read(_BLOCK_BYTES)
        if start < len(_PARQUET) or not block.startswith(_MAGIC):
            raise FileDamaged(f"{path} is damaged: it has lost its digest, or was changed by another program")
        footer_digest, columns_digest = block[len(_MAGIC) : -_HASH_BYTES], block[-_HASH_BYTES:]
        if hashlib.sha256(file.read()).digest() != footer_digest:
            raise FileDamaged(f"{path} is damaged: its footer does not match its digest")
        if whole:
            file.seek(0)
            found = hashlib.sha256()
            while start > 0 and (piece := file.read(min(start, _BYTES_AT_ONCE))):
                found.update(piece)
                start -= len(piece)
            if found.digest() != columns_digest:
                raise FileDamaged(f"{path} is damaged: its content does not match its digest")


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


def is_longer_than_its_checksum(line: bytes) -> bool:
    """True where something follows the place of a line's checksum, which is not how a torn line ends."""
    _, start, end = line.rpartition(_CHECKSUM_START)
    return bool(start) and len(end) > _CHECKSUM_BYTES - len(_CHECKSUM_START)


def _footer_bytes(tail: bytes) -> int:
    return int.from_bytes(tail[:4], "little")
