"""Files of a run folder: whole files that replace the old ones at once, and records appended line by line.

A kill cannot tear them. People who share a folder use each other's files, so every new file is created as `open` does:
the umask, the folder's setgid bit and its default ACL decide who may read and write it, nothing here does.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import orjson
from pydantic import TypeAdapter, ValidationError

from jobs.run.digest import checksum, say_once

_T = TypeVar("_T")
FULL = (errno.ENOSPC, errno.EDQUOT)
"""Numbers of the errors of a full disk, and of a quota that is used up."""
_CHECKSUM = b"#crc32 "
"""Beginning of the line before a record, which has its checksum."""


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

    A line before it has its checksum, which depends on the run that the record is of.
    """
    line = orjson.dumps(record)
    content = b"\n%b%b\n%b\n" % (_CHECKSUM, checksum(line, run_id), line)
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
    `run_id` is that of the run whose records they should be; None: it is not known, and nothing is compared.
    """
    if not path.exists():
        return
    expected: bytes | None = None
    seen: set[bytes] = set()
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, 1):
        if line.startswith(_CHECKSUM):
            expected = line.removeprefix(_CHECKSUM)
            continue
        is_right, expected = run_id is None or expected in (None, checksum(line, run_id)), None
        if not is_right:
            say_once(f"{path} is damaged: line {number} does not match its checksum, or is of another run; left out")
            continue
        record = _json(line)
        if isinstance(record, dict):
            if line not in seen:
                yield record
            seen.add(line)
        elif line and number < len(lines):
            say_once(f"{path}: line {number} is torn, or is no record; it is left out")


def _json(line: bytes) -> Any:
    with contextlib.suppress(orjson.JSONDecodeError):
        return orjson.loads(line)
    return None


def records_of(path: Path, kind: TypeAdapter[_T], records: Iterable[Any]) -> Iterator[_T]:
    """Yield records of a file as objects; one that lacks something is named and left out."""
    for record in records:
        try:
            yield kind.validate_python(record)
        except ValidationError as error:
            place = ".".join(map(str, error.errors()[0]["loc"]))
            say_once(f"{path} is damaged: a record is left out ({place}: {error.errors()[0]['msg']})")
