"""Files of a run folder: whole files that replace the old ones at once, and records appended line by line.

A kill cannot tear them. People who share a folder use each other's files, so every new file is created as `open` does:
the umask, the folder's setgid bit and its default ACL decide who may read and write it, nothing here does.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson


def opened(path: Path, flags: int) -> int:
    """Open a file for writing, which is created where it is missing; returns its descriptor. Raises OSError."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | flags, 0o666)  # less the umask


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that every reader sees either the old content or the new, even if this process is killed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with os.fdopen(opened(temporary, os.O_EXCL), "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


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


def append_record(path: Path, record: Mapping[str, Any]) -> None:
    """Append a record as a line of JSON, durable when this returns; a torn line before it stays a line of its own."""
    handle = opened(path, os.O_APPEND)
    try:
        os.write(handle, b"\n" + orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))
        os.fsync(handle)
    finally:
        os.close(handle)


def read_records(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a file in order; a torn line, which nobody acted upon, is skipped."""
    if path.exists():
        for line in path.read_bytes().splitlines():
            with contextlib.suppress(orjson.JSONDecodeError):
                yield orjson.loads(line)
