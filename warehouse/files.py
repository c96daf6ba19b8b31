"""The database as a file: who may write it, and how a new state takes the place of the old one.

A writer works on a copy and renames it over the database when it is done. So readers always find a whole database
and never wait for a writer, and a writer does not wait for readers: they go on reading the file that they opened.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

_COPIED_AT_ONCE = 2**30


class WarehouseError(Exception):
    """Something is wrong with the database itself; the message is one line that says what to do."""


class WarehouseMissing(WarehouseError):
    """There is no such file."""


class WarehouseBusy(WarehouseError):
    """Another process kept the file locked for the whole wait."""


class WarehouseOutdated(WarehouseError):
    """The file was made with another version of the schema."""


def busy(database: Path, wait_seconds: float) -> WarehouseBusy:
    """The error of a wait that was too short."""
    return WarehouseBusy(
        f"{database} is in use by another process and stayed so for {wait_seconds:.0f} s: try again later"
    )


@contextmanager
def write_lock(database: Path, wait_seconds: float) -> Iterator[None]:
    """Be the only writer: a lock on a file beside the database, let go by the system when its holder dies.

    Raises WarehouseBusy.
    """
    database.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(database.with_name(f".{database.name}.lock"), timeout=wait_seconds):
            yield
    except Timeout as error:
        raise busy(database, wait_seconds) from error


@contextmanager
def successor(database: Path) -> Iterator[Path]:
    """A path for a new state of the database, which takes its place when the block ends well. Needs the write lock."""
    database = database.resolve()
    fresh = database.with_name(f".{database.name}.new")
    remove(fresh)
    try:
        yield fresh
        _log_of(database).unlink(missing_ok=True)  # else it would be replayed into the new file
        fresh.replace(database)
    finally:
        remove(fresh)


def copy(database: Path, target: Path) -> None:
    """Copy a database that nobody writes, without moving its bytes through this process where the system can."""
    for source, to in ((database, target), (_log_of(database), _log_of(target))):
        if source.exists():
            _copy_file(source, to)


def remove(database: Path) -> None:
    """Remove a database and what belongs to it."""
    database.unlink(missing_ok=True)
    _log_of(database).unlink(missing_ok=True)
    shutil.rmtree(database.with_name(f"{database.name}.tmp"), ignore_errors=True)


def _copy_file(source: Path, target: Path) -> None:
    with source.open("rb") as read, target.open("wb") as written:
        try:  # shares the blocks on file systems that can
            while os.copy_file_range(read.fileno(), written.fileno(), _COPIED_AT_ONCE):
                pass
        except (AttributeError, OSError):
            read.seek(0)
            written.seek(0)
            written.truncate()
            shutil.copyfileobj(read, written, 2**20)
    shutil.copymode(source, target)


def _log_of(database: Path) -> Path:
    return database.with_name(f"{database.name}.wal")
