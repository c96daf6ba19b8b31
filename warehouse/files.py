"""The database file: write access, and replacing an old state with a new one.

A writer works on a copy and finally renames it over the database. So readers always find a complete database and never
wait for a writer. A writer does not wait for readers either: they keep the file that they opened.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote

from filelock import Timeout

from harness.cli import permissions
from harness.cli.messages import place_and_problem
from jobs.run.files import Lock, LocksRefused

DATABASE_NAME = "warehouse.duckdb"
RUNS_FOLDER = Path("runs")
"""Default output folder of launches (--output)."""
WAIT_SECONDS = 60.0
"""Default number of seconds to wait for a locked database."""
SAY_SECONDS = 2.0
"""Seconds of waiting after which a message is logged."""
_BYTES_PER_CALL = 2**30
_logger = logging.getLogger(__name__)


class WarehouseError(Exception):
    """The database cannot be used, or a request to it is invalid. The message is one line with the remedy."""


class WarehouseMissing(WarehouseError):
    """The database file does not exist."""


class WarehouseBusy(WarehouseError):
    """Another process held the lock for the whole waiting time."""


class WarehouseOutdated(WarehouseError):
    """The file's format differs from this version's."""


def database_beside(run_folder: Path) -> Path:
    """Return the default database of a run folder."""
    return run_folder.parent / DATABASE_NAME


def busy(database: Path, wait_seconds: float, holder: str = "another process") -> WarehouseBusy:
    """Return the error for a database that stayed locked for `wait_seconds`."""
    return WarehouseBusy(f"{database} was locked by {holder} for {wait_seconds:g} s: try again later")


def say_waiting(database: Path, wait_seconds: float, holder: str) -> None:
    _logger.warning("%s is locked by %s: waiting for up to %g s", database, holder, wait_seconds)


@contextmanager
def write_lock(database: Path, wait_seconds: float) -> Iterator[None]:
    """Hold the lock that makes this process the only writer. Raises WarehouseBusy.

    The lock is on a file next to the database; the operating system releases it if the holder dies.
    """
    database = database.resolve()
    lock = Lock(lock_path(database))
    try:
        database.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=min(SAY_SECONDS, wait_seconds))
        except Timeout:
            if wait_seconds <= SAY_SECONDS:
                raise
            say_waiting(database, wait_seconds, "another process")
            lock.acquire(timeout=wait_seconds - SAY_SECONDS)
    except Timeout as error:
        raise busy(database, wait_seconds) from error
    except LocksRefused as error:
        raise WarehouseError(str(error)) from error
    except OSError as error:
        if not permissions.is_forbidden(error):
            raise
        raise WarehouseError(permissions.explained(error)) from error
    try:
        yield
    finally:
        lock.release()


def lock_path(database: Path) -> Path:
    """Return the lock file of a database, which is the same for every symlink to it."""
    database = database.resolve()
    return database.with_name(f".{database.name}.lock")


def check_readable(database: Path) -> None:
    """Raise WarehouseError if the database exists but the user has no permission to read it."""
    if database.exists() and not os.access(database, os.R_OK):
        raise WarehouseError(_not_allowed(database))


def check_writable(database: Path) -> None:
    """Raise WarehouseError if the user cannot read an existing database, or cannot write to its folder or lock file."""
    check_readable(database)
    for path, mode in ((database.parent, os.W_OK | os.X_OK), (lock_path(database), os.W_OK)):
        if path.exists() and not os.access(path, mode):
            raise WarehouseError(_not_allowed(path))


def _not_allowed(path: Path) -> str:
    return permissions.explained(PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path)))


@contextmanager
def successor(database: Path) -> Iterator[Path]:
    """Yield the path for a new database file, which replaces the old one if the block ends without an exception.

    The caller holds the write lock.
    """
    database = database.resolve()
    new_file = database.with_name(f".{database.name}.new")
    remove(new_file)
    try:
        yield new_file
        _keep_shared(database, new_file)
        _log_of(database).unlink(missing_ok=True)  # otherwise DuckDB would replay the old log into the new file
        new_file.replace(database)
    finally:
        remove(new_file)


def _keep_shared(old: Path, new: Path) -> None:
    """Give a new database the group and mode of the old one, so it stays shared."""
    if old.exists():
        found = old.stat()
        with contextlib.suppress(OSError):  # the user is not in this group
            os.chown(new, -1, found.st_gid)
        new.chmod(stat.S_IMODE(found.st_mode))


def copy(database: Path, target: Path) -> None:
    """Copy a database that is not being written, sharing blocks if the file system supports it."""
    for source, destination in ((database, target), (_log_of(database), _log_of(target))):
        if source.exists():
            _copy_file(source, destination)


def remove(database: Path) -> None:
    """Remove a database with its write-ahead log and temporary files."""
    database.unlink(missing_ok=True)
    _log_of(database).unlink(missing_ok=True)
    shutil.rmtree(database.with_name(f"{database.name}.tmp"), ignore_errors=True)


def _copy_file(source: Path, target: Path) -> None:
    with source.open("rb") as read, target.open("wb") as written:
        try:  # share the blocks if the file system supports it
            while os.copy_file_range(read.fileno(), written.fileno(), _BYTES_PER_CALL):
                pass
        except (AttributeError, OSError):
            read.seek(0)
            written.seek(0)
            written.truncate()
            shutil.copyfileobj(read, written, 2**20)


def _log_of(database: Path) -> Path:
    return database.with_name(f"{database.name}.wal")


def check_is_file(database: Path) -> None:
    """Raise WarehouseError if the database path is a folder."""
    if database.is_dir():
        raise WarehouseError(f"the database {database} is a folder")


def missing(database: Path) -> str:
    """Return the message for a missing database, with the remedy."""
    other = database.parent / "runs" / "warehouse.duckdb"
    if other.is_file():
        return f"no database at {database}; use --database {quote(str(other))}"
    return (
        f"no database at {database}; create one with: python -m warehouse.load RUNS --database {quote(str(database))}"
    )


_NOT_THE_MESSAGE = re.compile(r"LINE \d+:|Stack Trace:")
"""Start of the text after the message in DuckDB's errors: the SQL line or a stack trace."""


def one_line(error: Exception) -> str:
    """Return an error's message as one line, with DuckDB's hints but without the quoted SQL."""
    from pydantic import ValidationError

    if isinstance(error, ValidationError):
        return "; ".join(map(place_and_problem, error.errors()))
    if isinstance(error, OSError) and permissions.is_forbidden(error):
        return permissions.explained(error)
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    lines = (line.strip() for line in str(error).splitlines())
    message = itertools.takewhile(lambda line: not _NOT_THE_MESSAGE.match(line), lines)
    return " ".join(filter(None, message)) or type(error).__name__
