"""Digests that show damage: one in every Parquet file of a run folder, a checksum in every line of JSON.

A Parquet file is read from its end: the last bytes say where its footer begins, and the footer where each column is.
What lies between the columns and the footer is never looked at, so the digests stand there, in the file that they are
of: no second file, and every reader that does not know them reads the file as before.

    PAR1 | columns | magic number, SHA-256 of the footer, SHA-256 of what comes before | footer | its length | PAR1

The footer's digest alone is checked in little time; together with the checksums that Parquet has of every page it
covers what a reader of two columns reads. The other one needs the whole file. The footer names the format (`format`),
so a file that should have digests and has none is damaged too.

A line of JSON has its checksum (CRC-32) as the last field of its object. A single flipped bit always changes it. The
checksum begins with what the line belongs to, its attempt or run, so that a line of another file is recognized too.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import zlib
from collections.abc import Mapping
from pathlib import Path

FORMAT = 2
"""Version of the format of trace files, plans, grades and journals that this code writes. Files without one have
version 1: no digests, and otherwise the same."""
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


class FileTooNew(FileDamaged):
    """A file was written in a newer version of the format."""


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


def check(path: Path, *, whole: bool) -> bool:
    """Compare a Parquet file with its digests; returns whether it has any.

    `whole`: the columns too, otherwise the footer alone. Raises FileDamaged, and OSError where the file cannot be read.
    """
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL_BYTES))
        tail = file.read(_TAIL_BYTES)
        if size < len(_PARQUET) + _TAIL_BYTES or not tail.endswith(_PARQUET):
            raise FileDamaged(f"{path} is damaged: it does not end like a Parquet file (Parquet magic bytes)")
        start = size - _TAIL_BYTES - _footer_bytes(tail) - _BLOCK_BYTES
        if start < len(_PARQUET):
            return False
        file.seek(start)
        block = file.read(_BLOCK_BYTES)
        if not block.startswith(_MAGIC):
            return False
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
    return True


def check_format(path: Path, metadata: Mapping[bytes, bytes], *, has_digests: bool) -> None:
    """Raise FileTooNew where a file's metadata names a newer format, and FileDamaged where it has lost its digests."""
    written = metadata.get(FORMAT_KEY.encode(), b"1")
    if not written.isdigit():
        raise FileDamaged(f"{path} is damaged: its format has no number")
    if int(written) > FORMAT:
        raise FileTooNew(too_new(path, int(written)))
    if int(written) > 1 and not has_digests:
        raise FileDamaged(f"{path} is damaged: it has lost its digest, or was changed by another program")


def too_new(path: Path, written: int) -> str:
    """Return the message about a file in a newer format."""
    return (
        f"{path} was written by a newer version of the harness (format {written}; this one knows {FORMAT}): "
        "use that version or a later one"
    )


def checksum(content: bytes, owner: str) -> bytes:
    """Return the checksum of a text that belongs to an attempt or a run, as 8 hexadecimal digits."""
    return b"%08x" % zlib.crc32(content, zlib.crc32(owner.encode()))


def with_checksum(record: bytes, owner: str) -> bytes:
    """Return a JSON object as a line that ends with its checksum as the last field."""
    body = record[:-1]
    return b'%b%b%b"}\n' % (body, _CHECKSUM_START, checksum(body, owner))


def has_right_checksum(line: bytes, owner: str) -> bool | None:
    """Compare a line of JSON, with or without its newline, with its checksum; None where it has none."""
    line = line.removesuffix(b"\n")
    body, end = line[:-_CHECKSUM_BYTES], line[-_CHECKSUM_BYTES:]
    if not (end.startswith(_CHECKSUM_START) and end.endswith(b'"}')):
        return None
    return end[len(_CHECKSUM_START) : -2] == checksum(body, owner)


def is_longer_than_its_checksum(line: bytes) -> bool:
    """True where something follows the place of a line's checksum, which is not how a torn line ends."""
    _, start, end = line.rpartition(_CHECKSUM_START)
    return bool(start) and len(end) > _CHECKSUM_BYTES - len(_CHECKSUM_START)


def _footer_bytes(tail: bytes) -> int:
    return int.from_bytes(tail[:4], "little")
