"""The warehouse's file: the only importer of duckdb.

One process writes at a time, on a copy (files.py), so readers go on meanwhile. Any SQL of a user goes through `reader`,
whose connection can neither write nor reach any other file.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import psutil
import pyarrow as pa
from numpy.typing import NDArray
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from warehouse.files import (
    WarehouseBusy,
    WarehouseError,
    WarehouseMissing,
    WarehouseOutdated,
    busy,
    copy,
    successor,
    write_lock,
)

WAIT_SECONDS = 60.0
"""How long a busy warehouse is waited for by default."""

Connection = duckdb.DuckDBPyConnection
DatabaseError = duckdb.Error
__all__ = [
    "WAIT_SECONDS",
    "Connection",
    "DatabaseError",
    "WarehouseBusy",
    "WarehouseError",
    "WarehouseMissing",
    "WarehouseOutdated",
    "arrow",
    "columns",
    "former_runs",
    "literal",
    "memory_mebibytes",
    "one_line",
    "reader",
    "rebuilder",
    "rows",
    "scratch",
    "sql_of",
    "transaction",
    "writer",
]
SCHEMA_VERSION = 2
"""For people; whether a database fits is told by the hash of the tables' definition."""
_MOST_MEMORY_MEBIBYTES = 4096
_ROW_GROUP_ROWS = 30720
"""Rows compressed and written together. A whole row group is written while its thread goes on reading; the rest
of a run waits uncompressed for the commit, and with DuckDB's usual 122,880 rows most of most runs would."""
_FORMER = "SELECT run_id, folder FROM run ORDER BY run_id"
_FOLDER = Path(__file__).parent
FILLING = ("loading/insert", "loading/totals")
"""SQL that fills the tables from the staged ones of one run, in turn."""
_TABLES = ("run", "trace", "grade", "totals")
"""Files of tables/."""
_VIEWS = (
    "macros", "accuracy", "graders", "speculation", "tokens", "speed", "speed_up", "judge", "replay", "drafts", "flips",
)  # fmt: skip
"""Files of views/, each after what it builds on."""
_FILLED_WITH = ("macros", "replay")
"""Those of them that filling the tables uses."""
_NO_EXTENSIONS = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}


@contextmanager
def writer(database: Path, wait_seconds: float = WAIT_SECONDS) -> Iterator[Connection]:
    """Open a copy for writing, which takes the file's place when the block ends well. Raises WarehouseError.

    The file and the schema are made where they are missing. Readers are not kept waiting and see the new state when
    they open the file the next time.
    """
    with write_lock(database, wait_seconds), ExitStack() as held:
        if database.exists():
            # Reading keeps off whoever would open the file itself for writing, another program for instance.
            current = held.enter_context(closing(_connect(database, wait_seconds)))
            if _stored_version(current, database)[0] != _tables_digest():
                raise WarehouseOutdated(_outdated(database))
        with successor(database) as fresh:
            if database.exists():
                copy(database, fresh)
            with _open_for_writing(fresh) as connection:
                yield connection


@contextmanager
def rebuilder(database: Path, wait_seconds: float = WAIT_SECONDS) -> Iterator[Connection]:
    """Open a new database, which takes the old one's place, whatever that was, when the block ends well."""
    with (
        write_lock(database, wait_seconds),
        _kept_from_writers(database, wait_seconds),
        successor(database) as fresh,
        _open_for_writing(fresh) as connection,
    ):
        yield connection


@contextmanager
def reader(database: Path, wait_seconds: float = WAIT_SECONDS) -> Iterator[Connection]:
    """Open for reading: no writes, no other files, no network, and no setting that would allow them."""
    if not database.is_file():
        raise WarehouseMissing(f"there is no warehouse at {database}: make one with python -m warehouse.load RUNS_DIR")
    connection = _connect(database, wait_seconds)
    try:
        if _stored_version(connection, database) != (_tables_digest(), _digest(views_sql())):
            raise WarehouseOutdated(_outdated(database))
        yield connection
    finally:
        connection.close()


@contextmanager
def scratch(folder: Path) -> Iterator[Connection]:
    """A database in memory, for work on files that are no warehouse; may read and write any file.

    What does not fit into memory goes into `folder` for the while.
    """
    config: dict[str, str | bool | int | float | list[str]] = dict(_NO_EXTENSIONS)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".spill-") as spill:
        config |= {"memory_limit": f"{memory_mebibytes()}MiB", "temp_directory": spill}
        with closing(duckdb.connect(":memory:", config=config)) as connection:
            yield connection


@contextmanager
def transaction(connection: Connection) -> Iterator[None]:
    """All of the block or nothing of it."""
    connection.begin()
    try:
        yield
    except BaseException:
        connection.rollback()
        raise
    connection.commit()


def former_runs(database: Path, wait_seconds: float = WAIT_SECONDS) -> dict[str, Path]:
    """The run folders that a database of any version was loaded from, by run id; empty where it does not say."""
    try:
        with closing(_connect(database, wait_seconds)) as connection:
            return {run_id: Path(folder) for run_id, folder in connection.execute(_FORMER).fetchall()}
    except WarehouseBusy:
        raise
    except (WarehouseError, duckdb.Error):
        return {}


def rows(connection: Connection, sql: str, parameters: dict[str, object] | None = None) -> list[dict[str, object]]:
    """Rows of a query by column name."""
    result = connection.execute(sql, parameters)
    names = [column[0] for column in result.description or ()]
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def columns(connection: Connection, sql: str, parameters: dict[str, object]) -> dict[str, NDArray[Any]]:
    """The answer to a query as arrays (rows,) by column name; NULL becomes NaN, so only a DOUBLE may be NULL."""
    found = connection.execute(sql, parameters).fetchnumpy()
    return {
        name: values.filled(np.nan) if isinstance(values, np.ma.MaskedArray) else values
        for name, values in found.items()
    }


def arrow(connection: Connection, sql: str) -> pa.Table:
    """The answer to a query as an Arrow table. Raises DatabaseError, and WarehouseError where there is no answer."""
    relation = connection.sql(sql)
    if relation is None:
        raise WarehouseError("the SQL asks for no rows")
    return relation.to_arrow_table()


def one_line(error: Exception) -> str:
    """An error's message without its further lines."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def literal(text: str) -> str:
    """A text as SQL writes it, where no parameter may stand."""
    return "'" + text.replace("'", "''") + "'"


def sql_of(name: str) -> str:
    """One of this package's SQL files by name."""
    return (_FOLDER / f"{name}.sql").read_text(encoding="utf-8")


def tables_sql() -> str:
    """The tables' definition."""
    return "\n".join(sql_of(f"tables/{name}") for name in _TABLES)


def views_sql() -> str:
    """The definition of macros and views, in the order in which they build on each other."""
    return "\n".join(sql_of(f"views/{name}") for name in _VIEWS)


def _connect(database: Path, wait_seconds: float) -> Connection:
    config: dict[str, str | bool | int | float | list[str]] = dict(_NO_EXTENSIONS)
    config |= {"enable_external_access": False, "lock_configuration": True}
    retrying = Retrying(
        retry=retry_if_exception(_is_locked),
        wait=wait_random_exponential(multiplier=0.1, max=2),
        stop=stop_after_delay(wait_seconds),
        reraise=True,
    )
    try:
        return retrying(duckdb.connect, str(database), read_only=True, config=config)
    except duckdb.Error as error:
        if _is_locked(error):
            raise busy(database, wait_seconds) from error
        raise WarehouseError(f"{database} cannot be opened: {one_line(error)}") from error


def memory_mebibytes() -> int:
    """What loading may use: half of what is free, within a bound. It runs on login nodes and beside engines, too."""
    return max(256, min(_MOST_MEMORY_MEBIBYTES, int(psutil.virtual_memory().available) // 2**21))


@contextmanager
def _open_for_writing(fresh: Path) -> Iterator[Connection]:
    config: dict[str, str | bool | int | float | list[str]] = dict(_NO_EXTENSIONS)
    config |= {
        "memory_limit": f"{memory_mebibytes()}MiB",
        "temp_directory": f"{fresh}.tmp",
        "preserve_insertion_order": False,
    }
    if not fresh.exists():
        # Nothing is deleted from a new file, and joining small row groups costs a rewrite.
        config["max_vacuum_tasks"] = 0
    with closing(duckdb.connect(":memory:", config=config)) as connection:
        try:
            connection.execute(f"ATTACH {literal(str(fresh))} AS warehouse (ROW_GROUP_SIZE {_ROW_GROUP_ROWS})")
        except duckdb.Error as error:
            raise WarehouseError(f"{fresh} cannot be opened: {one_line(error)}") from error
        connection.execute("USE warehouse")
        _create_or_check(connection)
        yield connection
        connection.execute("CHECKPOINT")


def _is_locked(error: BaseException) -> bool:
    return isinstance(error, duckdb.IOException) and "lock" in str(error).lower()


@contextmanager
def _kept_from_writers(database: Path, wait_seconds: float) -> Iterator[None]:
    """Keep other programs from writing a file that may be missing, outdated or no database at all."""
    with ExitStack() as held:
        try:
            if database.exists():
                held.enter_context(closing(_connect(database, wait_seconds)))
        except WarehouseBusy:
            raise
        except WarehouseError:
            pass
        yield


def _create_or_check(connection: Connection) -> None:
    """Make the schema in an empty database; else bring the views up to date."""
    tables, views = _tables_digest(), _digest(views_sql())
    if not connection.execute("SELECT 1 FROM duckdb_tables() LIMIT 1").fetchall():
        with transaction(connection):
            connection.execute(tables_sql())
            connection.execute(views_sql())
            connection.execute("INSERT INTO schema_version VALUES (?, ?, ?)", [SCHEMA_VERSION, tables, views])
    elif connection.execute("SELECT views_hash FROM schema_version").fetchall() != [(views,)]:
        with transaction(connection):
            connection.execute(views_sql())
            connection.execute("UPDATE schema_version SET views_hash = ?", [views])


def _stored_version(connection: Connection, database: Path) -> tuple[str, str]:
    try:
        [(tables, views)] = connection.execute("SELECT tables_hash, views_hash FROM schema_version").fetchall()
    except (duckdb.Error, ValueError) as error:
        raise WarehouseOutdated(_outdated(database)) from error
    return tables, views


def _outdated(database: Path) -> str:
    return (
        f"{database} was made by another version of the warehouse (this one has schema {SCHEMA_VERSION}): "
        f"python -m warehouse.load RUNS_DIR --database {database} makes it anew from its run folders"
    )


def _tables_digest() -> str:
    """Of the tables' definition and of what fills them."""
    using = [f"views/{name}" for name in _FILLED_WITH]
    return _digest("\n".join([tables_sql(), *(sql_of(name) for name in (*FILLING, *using))]))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
