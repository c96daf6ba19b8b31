"""The events of a run: `events.jsonl` in its folder, an append-only log of changes to the run as a whole.

    {"format": 3, "event": "run", "at", "run_id", "crc32"}     the first line: the run that the folder was created for
    {"format": 3, "event": "file", "at", "file", "sha256", "crc32"}
    {"format": 3, "event": KIND, "at", …, "crc32"}             fields of each kind: docs/formats.md

Any number of processes and machines append whole lines, each durable before its writer continues. The first lines,
including those of the plan's files, are written after all plan files exist: a folder with events is a run.

A `file` event precedes its file: the file is written under a temporary name, announced and then renamed. If the writer
is killed in between, the announced file is missing or still has earlier announced content; both states are valid. A
file whose content was never announced under its name was damaged or copied from elsewhere, and is never read. DuckDB
and pyarrow verify less by default: of 300 files with one flipped byte they read 282 without an error.
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
    "left": ("name", str),
    "canceled": ("names", list),
}
"""A required field and its type, for kinds of events that are not read into a class; lists contain strings."""


@dataclass(frozen=True)
class Events:
    """The events of a run."""

    records: Sequence[Mapping[str, Any]]
    digests: Mapping[str, Collection[str]]
    """Announced digests of each file, by path in the run folder."""


def begin(folder: Path, run_id: str, files: Mapping[Path, bytes]) -> None:
    """Make a folder a run by writing its first events, which announce the plan's files. `files`: content by path."""
    records: list[dict[str, Any]] = [{"event": "run", "run_id": run_id}]
    records += [_announcement(folder, path, content) for path, content in files.items()]
    now = time.time()
    lines = (orjson.dumps({FORMAT_KEY: FORMAT, **record, "at": now}) for record in records)
    write_atomically(folder / NAME, b"".join(with_checksum(line, run_id) for line in lines))


def append(folder: Path, event: str, fields: Mapping[str, Any]) -> None:
    """Durably append an event. Raises FileDamaged, and OSError if the folder is not a run folder."""
    append_record(folder / NAME, {"event": event, "at": time.time(), **fields}, run_id(folder))


def run_id(folder: Path) -> str:
    """Return the id of the run that a folder was created for. Raises FileDamaged and OSError."""
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
        raise FileDamaged(f"{path} is damaged: its first line has no run id") from error
    if not has_right_checksum(first, owner):
        raise FileDamaged(f"{path} is damaged: its first line does not match its checksum")
    return owner


def write_announced(path: Path, content: bytes) -> None:
    """Announce a file of a run by recording its digest in the events, then write the file atomically."""
    folder = _folder_of(path)
    append(folder, "file", _announcement(folder, path, content))
    write_atomically(path, content)


def check(path: Path) -> None:
    """Verify a file against its announced digests. Raises FileDamaged, and OSError if the file cannot be read."""
    with reading(path) as file:
        check_digest(path, hashlib.file_digest(file, "sha256").hexdigest())


def check_digest(path: Path, digest: str) -> None:
    """Raise FileDamaged if no event announces this digest for the file."""
    folder = _folder_of(path)
    name, announced = path.relative_to(folder).as_posix(), read(folder).digests
    if digest in announced.get(name, ()):
        return
    if name in announced:
        raise FileDamaged(f"{path} is damaged: its content does not match its digest in {NAME}")
    if other := next((other for other, digests in announced.items() if digest in digests), None):
        raise FileDamaged(f"{path} is a copy of {other} or was renamed: remove it or rename it back")
    raise FileDamaged(f"{path} is not a file of this run: it is not listed in {NAME}")


def _announcement(folder: Path, path: Path, content: bytes) -> dict[str, Any]:
    name = path.relative_to(folder).as_posix()
    return {"event": "file", "file": name, "sha256": hashlib.sha256(content).hexdigest()}


def _folder_of(path: Path) -> Path:
    """Return the run folder that contains a file. Raises FileDamaged if there is none."""
    for folder in path.parents[:3]:
        if (folder / NAME).exists():
            return folder
    raise FileDamaged(f"{path} is not in a run folder: there is no {NAME}")


def read(folder: Path) -> Events:
    """Return the events of a run. Raises FileDamaged and OSError."""
    path = folder / NAME
    with reading(path) as file:  # open instead of stat: a shared filesystem then asks its server
        found = os.fstat(file.fileno())
    return _parsed(path, found.st_ino, found.st_size, found.st_mtime_ns)


@lru_cache(maxsize=32)
def _parsed(path: Path, *_: int) -> Events:
    """Parse the events of a file; the other arguments only identify its state in the cache."""
    records = [record for record in read_records(path, run_id(path.parent)) if "event" in record]
    digests: dict[str, set[str]] = {}
    for record in records:
        name, kind = _FIELDS.get(str(record["event"]), ("event", str))
        is_valid = isinstance(record.get(name), kind)
        if not is_valid or (kind is list and not all(isinstance(one, str) for one in record[name])):
            raise FileDamaged(f"{path} is damaged: an event {record['event']} has no {name}")
        if record["event"] == "file":
            digests.setdefault(record["file"], set()).add(str(record.get("sha256")))
    return Events(records, digests)
