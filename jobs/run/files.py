"""Writes that a kill cannot tear: whole files that replace the old ones at once, and records appended line by line."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that every reader sees either the old content or the new, even if this process is killed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
    Path(name).replace(path)


def append_record(path: Path, record: Mapping[str, Any]) -> None:
    """Append a record as a line of JSON, durable when this returns; a torn line before it stays a line of its own."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
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
