"""The events of a run: `events.jsonl` in its folder, to which is appended what happens to the run as a whole.

    {"format": 3, "event": "run", "at", "run_id", "crc32"}     the first line: the run that the folder was made for
    {"format": 3, "event": "file", "at", "file", "sha256", "crc32"}
    {"format": 3, "event": KIND, "at", …, "crc32"}              what its kind has: docs/formats.md

Any number of processes and machines append whole lines, each durable before its writer goes on. The first line comes
with those of the plan's files, when all of these are written: a folder that has events is a run, whole or damaged.

A line of the kind `file` stands there before its file: a file is written under another name, announced and then
renamed. Killed in between, the line announces a file that does not exist, or one that still has the content that an
earlier line announced; both are as if nothing had been done. So a file whose content no line announces under its name
was damaged, or comes from elsewhere, and is never read. DuckDB and pyarrow verify less by default: of 300 files with
one flipped byte they read 282 without an error.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson

from jobs.run.files import (
    FORMAT,
    FORMAT_KEY,
    FileDamaged,
    append_record,
    check_format,
    has_right_checksum,
    read_records,
    reading,
    with_checksum,
    write_atomically,
)

NAME = "events.jsonl"
_FIELDS: Mapping[str, tuple[str, type]] = {
    "file": ("file", str),
    "retries": ("samples", list),
    "timing": ("samples", int),
    "job": ("id", str),
}
"""Field of the kinds whose readers have no model of them, and its type."""


@dataclass(frozen=True)
class Events:
    """The events of a run."""

    records: Sequence[Mapping[str, Any]]
    digests: Mapping[str, Collection[str]]
    """Digests that were announced of each file, by its path in the run folder."""


def begin(folder: Path, run_id: str, files: Mapping[Path, bytes]) -> None:
    """Make a folder a run by its first events, which announce the files of its plan, given with their contents."""
    records: list[dict[str, Any]] = [{"event": "run", "run_id": run_id}]
    records += [_announcement(folder, path, content) for path, content in files.items()]
    now = time.time()
    lines = (orjson.dumps({FORMAT_KEY: FORMAT, **record, "at": now}) for record in records)
    write_atomically(folder / NAME, b"".join(with_checksum(line, run_id) for line in lines))


def append(folder: Path, event: str, fields: Mapping[str, Any]) -> None:
    """Append an event, durable when this returns. Raises FileDamaged, and OSError where the folder is no run's."""
    append_record(folder / NAME, {"event": event, "at": time.time(), **fields}, run_id(folder))


def run_id(folder: Path) -> str:
    """Return the id of the run that a folder was made for. Raises FileDamaged and OSError."""
    path = folder / NAME
    with reading(path) as file:
        first = file.readline()
    try:
        record = orjson.loads(first)
        owner = str(record["run_id"])
        check_format(path, record.get(FORMAT_KEY))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        if isinstance(error, FileDamaged):
            raise
        raise FileDamaged(f"{path} is damaged: its first line names no run") from error
    if not has_right_checksum(first, owner):
        raise FileDamaged(f"{path} is damaged: its first line does not match its checksum")
    return owner


def write_announced(path: Path, content: bytes) -> None:
    """Write a file of a run so that it is complete or absent, and announced before it is there."""
    folder = _folder_of(path)
    append(folder, "file", _announcement(folder, path, content))
    write_atomically(path, content)


def check(path: Path) -> None:
    """Compare a file with what its run announced. Raises FileDamaged, and OSError where the file cannot be read."""
    with reading(path) as file:
        check_digest(path, hashlib.file_digest(file, "sha256").hexdigest())


def check_digest(path: Path, digest: str) -> None:
    """Raise FileDamaged where no event announces a digest under the name of this file."""
    folder = _folder_of(path)
    name, announced = path.relative_to(folder).as_posix(), read(folder).digests
    if digest in announced.get(name, ()):
        return
    if name in announced:
        raise FileDamaged(f"{path} is damaged: its content does not match its digest in {NAME}")
    if other := next((other for other, digests in announced.items() if digest in digests), None):
        raise FileDamaged(f"{path} is a copy of {other}, or that file under another name: remove it, or rename it back")
    raise FileDamaged(f"{path} is not a file of this run: {NAME} does not announce it")


def _announcement(folder: Path, path: Path, content: bytes) -> dict[str, Any]:
    name = path.relative_to(folder).as_posix()
    return {"event": "file", "file": name, "sha256": hashlib.sha256(content).hexdigest()}


def _folder_of(path: Path) -> Path:
    """Return the run folder that a file lies in. Raises FileDamaged where there is none."""
    for folder in path.parents[:3]:
        if (folder / NAME).exists():
            return folder
    raise FileDamaged(f"{path} lies in no run folder: no {NAME} announces it")


def read(folder: Path) -> Events:
    """Return the events of a run. Raises FileDamaged and OSError."""
    path = folder / NAME
    with reading(path) as file:  # opened, not looked at: a shared filesystem asks its server then
        found = os.fstat(file.fileno())
    return _parsed(path, found.st_ino, found.st_size, found.st_mtime_ns)


@lru_cache(maxsize=32)
def _parsed(path: Path, *_: int) -> Events:
    """Read the events of a file; the other arguments tell one state of it from another."""
    records = [record for record in read_records(path, run_id(path.parent)) if "event" in record]
    digests: dict[str, set[str]] = {}
    for record in records:
        name, kind = _FIELDS.get(str(record["event"]), ("event", str))
        if not isinstance(record.get(name), kind):
            raise FileDamaged(f"{path} is damaged: an event {record['event']} has no {name}")
        if record["event"] == "file":
            digests.setdefault(record["file"], set()).add(str(record.get("sha256")))
    return Events(records, digests)
