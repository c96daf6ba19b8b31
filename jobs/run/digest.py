"""Digests that show damage: one in every Parquet file of a run folder, a checksum in every line of JSON.

A Parquet file is read from its end: the last bytes say where its footer begins, and the footer where each column is.
What lies between the columns and the footer is never looked at, so the digests stand there, in the file that they are
of: no second file.

    PAR1 | columns | magic number, SHA-256 of the footer, SHA-256 of what comes before | footer | its length | PAR1

The footer's digest alone is checked in little time; together with the checksums that Parquet has of every page it
covers what a reader of two columns reads. The other one needs the whole file.

A line of JSON has its checksum (CRC-32) as the last field of its object. A single flipped bit always changes it. The
checksum begins with what the line belongs to, its attempt or run, so that a line of another file is recognized too.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import zlib
from pathlib import Path

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


def check(path: Path, *, whole: bool) -> None:
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
