"""Connections to the database file; the only module that imports duckdb.

One process writes at a time, to a copy of the file (files.py), so readers never wait. User-supplied SQL always runs
through `reader`, whose connection can neither write nor access other files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import cache
from pathlib import Path
from shlex import quote
from typing import Any

import duckdb
import numpy as np
import psutil
import pyarrow as pa
from numpy.typing import NDArray
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from warehouse.files import (
    SAY_SECONDS,
    WAIT_SECONDS,
    WarehouseBusy,
    WarehouseError,
    WarehouseMissing,
    WarehouseOutdated,
    busy,
    check_is_file,
    check_readable,
    copy,
    missing,
    one_line,
    say_waiting,
    successor,
    write_lock,
)
from warehouse.sql.schema import format_digest, tables_sql, views_sql

Connection = duckdb.DuckDBPyConnection
DatabaseError = duckdb.Error
UnknownName = (duckdb.CatalogException, duckdb.BinderException)
"""Exceptions for a table or column that does not exist."""
Record = Mapping[str, Any]
"""A query's row by column, or a query's parameters by name."""
Row = dict[str, Any]
"""A query's row that the caller may change."""
Arrays = dict[str, NDArray[Any]]
"""A query's columns by name, each of shape (rows,)."""
__all__ = ["WAIT_SECONDS", "WarehouseBusy", "WarehouseError", "WarehouseMissing", "WarehouseOutdated"]
"""Names re-exported from warehouse.files."""
_MOST_MEMORY_MEBIBYTES = 4096
_ROW_GROUP_ROWS = 30720
"""Number of rows that are compressed and written together. A full row group is written while its thread continues
reading; the remaining rows of a run stay uncompressed until the commit. With DuckDB's default of 122,880 rows, most
rows of a run would stay uncompressed.
"""
_EMPTY_DATABASE: list[bytes] = []
"""File content of a database without rows, cached by this process."""
_RUN_TABLES = """
SELECT table_name FROM duckdb_columns() WHERE column_name = 'run_id' AND database_name = current_database()
    AND table_name IN (SELECT table_name FROM duckdb_tables() WHERE database_name = current_database())
ORDER BY table_name
"""
_DEFINITIONS = """
SELECT 'macro' AS kind, function_name AS name, concat_ws(' ', schema_name, function_type, parameters, macro_definition)
FROM duckdb_functions() WHERE NOT internal AND database_name = 'warehouse'
UNION ALL SELECT 'view', view_name, concat_ws(' ', schema_name, sql)
FROM duckdb_views() WHERE NOT internal AND database_name = 'warehouse'
UNION ALL SELECT 'table', table_name, concat_ws(' ', schema_name, sql)
FROM duckdb_tables() WHERE NOT internal AND database_name = 'warehouse'
"""
_COMMENTS = re.compile(r"\s*(--[^\n]*\n\s*)*COMMENT ON ")
"""Start of the statements that are skipped to save time, because they define nothing."""
_NO_EXTENSIONS = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}


@contextmanager
def writer(database: Path, wait_seconds: float = WAIT_SECONDS, *, is_anew: bool = False) -> Iterator[Connection]:
    """Open a copy of the database for writing; it replaces the file if the block ends without an exception.

    is_anew: start without rows, ignoring an existing file. The file and the schema are created if missing. Readers do
    not wait; they see the new state when they next open the file. Raises WarehouseError.
    """
    check_is_file(database)
    with write_lock(database, wait_seconds), ExitStack() as stack, _interrupts():
        is_kept = database.exists() and not is_anew
        if is_kept:
            # While this reader is open, other programs cannot open the file itself for writing.
            _check_format(stack.enter_context(closing(_connect(database, wait_seconds))), database)
        with successor(database) as new_file:
            if is_kept:
                copy(database, new_file)
            with _open_for_writing(new_file, database) as connection:
                yield connection


@contextmanager
def reader(database: Path, wait_seconds: float = WAIT_SECONDS, grader: str | None = None) -> Iterator[Connection]:
    """Open the database for reading: no writes, other files or network, and no settings that would allow them.

    grader: grader version used by views (see `choose_grader`); None: each run's newest. Raises WarehouseMissing,
    WarehouseOutdated, WarehouseBusy and other WarehouseErrors.
    """
    check_is_file(database)
    if not database.exists():
        raise WarehouseMissing(missing(database))
    connection = _connect(database, wait_seconds)
    try:
        _check_format(connection, database)
        if grader is not None:
            choose_grader(connection, grader)
        with _interrupts():
            yield connection
    finally:
        connection.close()


@contextmanager
def _interrupts() -> Iterator[None]:
    """Raise KeyboardInterrupt for an interrupt during a query, where DuckDB raises RuntimeError."""
    try:
        yield
    except RuntimeError as error:
        if str(error) == "Query interrupted":
            raise KeyboardInterrupt from error
        raise


@contextmanager
def transaction(connection: Connection) -> Iterator[None]:
    """Run the block in a transaction: commit at its end, roll back on an exception."""
    connection.begin()
    try:
        yield
    except BaseException:
        connection.rollback()
        raise
    connection.commit()


def rows(connection: Connection, sql: str, parameters: Record | None = None) -> list[Row]:
    """Run a query and return its rows as dictionaries by column name."""
    result = connection.execute(sql, parameters)
    names = [column[0] for column in result.description or ()]
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def run_tables(connection: Connection) -> list[str]:
    """Return the tables whose rows belong to runs: those with a column `run_id`."""
    return [name for (name,) in connection.execute(_RUN_TABLES).fetchall()]


def columns(connection: Connection, sql: str, parameters: Record) -> Arrays:
    """Run a query and return arrays (rows,) by column name. NULL becomes NaN; only DOUBLE columns may contain NULL."""
    arrays = connection.execute(sql, parameters).fetchnumpy()
    return {
        name: values.filled(np.nan) if isinstance(values, np.ma.MaskedArray) else values
        for name, values in arrays.items()
    }


def arrow(connection: Connection, sql: str) -> pa.Table:
    """Run a query and return an Arrow table. Raises DatabaseError, and WarehouseError if the SQL returns no table."""
    relation = connection.sql(sql)
    if relation is None:
        raise WarehouseError("the SQL statement returns no table; expected a query, e.g. SELECT")
    return relation.to_arrow_table()


def literal(text: str) -> str:
    """Return a string as an SQL literal, for places that do not allow parameters."""
    return "'" + text.replace("'", "''") + "'"


def _connect(database: Path, wait_seconds: float) -> Connection:
    config: dict[str, str | bool | int | float | list[str]] = dict(_NO_EXTENSIONS)
    config |= {"enable_external_access": False, "lock_configuration": True}
    said: list[str] = []

    def say(state: RetryCallState) -> None:
        if not said and state.seconds_since_start and state.seconds_since_start >= SAY_SECONDS and state.outcome:
            said.append(_holder(state.outcome.exception()))
            say_waiting(database, wait_seconds, said[0])

    retrying = Retrying(
        retry=retry_if_exception(_is_locked),
        wait=wait_random_exponential(multiplier=0.1, max=0.5),
        stop=stop_after_delay(wait_seconds),
        before_sleep=say,
        reraise=True,
    )
    try:
        return retrying(duckdb.connect, str(database), read_only=True, config=config)
    except duckdb.Error as error:
        if _is_locked(error):
            raise busy(database, wait_seconds, _holder(error)) from error
        check_readable(database)
        raise WarehouseError(
            f"{database} cannot be opened: {one_line(error)}; if it is a damaged database, delete it and recreate it "
            f"with: python -m warehouse.load RUNS_DIR --database {quote(str(database))}"
        ) from error


def _holder(error: BaseException | None) -> str:
    """Describe the process that has locked a database: its program and PID, if DuckDB reports them."""
    named = re.search(r"lock is held in (.+?)(?:\.\s|\.?$)", str(error))
    return f"another process, {named[1]}" if named else "another process"


def memory_mebibytes() -> int:
    """Return the memory limit for a writing connection: half of the free memory, at least 256 MiB, at most 4 GiB.

    The limit is low because loading also runs on login nodes and next to engines.
    """
    return max(256, min(_MOST_MEMORY_MEBIBYTES, int(psutil.virtual_memory().available) // 2**21))


@contextmanager
def _open_for_writing(path: Path, database: Path) -> Iterator[Connection]:
    """Open the file that will replace a database. Raises WarehouseError."""
    config: dict[str, str | bool | int | float | list[str]] = dict(_NO_EXTENSIONS)
    config |= {
        "memory_limit": f"{memory_mebibytes()}MiB",
        "temp_directory": f"{path}.tmp",
        "preserve_insertion_order": False,
    }
    is_kept = path.exists()
    if not is_kept:
        _create(path)
        # Nothing is deleted from a new file, and merging small row groups would rewrite them.
        config["max_vacuum_tasks"] = 0
    with closing(duckdb.connect(":memory:", config=config)) as connection:
        _attach(connection, path)
        if is_kept:
            _check_definitions(connection, database)
        connection.execute("USE warehouse")
        yield connection
        connection.execute("CHECKPOINT")


def _attach(connection: Connection, path: Path) -> None:
    """Attach the file for writing, without adding it to the search path."""
    try:
        connection.execute(f"ATTACH {literal(str(path))} AS warehouse (ROW_GROUP_SIZE {_ROW_GROUP_ROWS})")
    except duckdb.Error as error:
        raise WarehouseError(f"{path} cannot be opened: {one_line(error)}") from error


def _check_definitions(connection: Connection, database: Path) -> None:
    """Raise WarehouseError if an attached database has definitions that are not from this version.

    A foreign macro could shadow a function and read the loading user's files. So call this before the database is in
    the search path.
    """
    found = set(connection.execute(_DEFINITIONS).fetchall())
    if others := sorted(found - _definitions()):
        kind, name, _ = others[0]
        raise WarehouseError(
            f"{database} contains a definition of the {kind} {name!r} that is not from this version; recreate the "
            "database from the run folders with: python -m warehouse.load RUNS_DIR --database "
            f"{quote(str(database))} --rebuild"
        )


@cache
def _definitions() -> frozenset[tuple[str, str, str]]:
    with closing(duckdb.connect(":memory:", config={**_NO_EXTENSIONS})) as connection:
        connection.execute("ATTACH ':memory:' AS warehouse; USE warehouse")
        created = [
            one for one in duckdb.extract_statements(tables_sql() + views_sql()) if not _COMMENTS.match(one.query)
        ]
        connection.execute(";".join(one.query for one in created))
        return frozenset(connection.execute(_DEFINITIONS).fetchall())


def _create(path: Path) -> None:
    """Create a database without rows. This is slow, so each process does it only once."""
    if _EMPTY_DATABASE:
        path.write_bytes(_EMPTY_DATABASE[0])
        return
    with closing(duckdb.connect(":memory:", config={**_NO_EXTENSIONS})) as connection:
        _attach(connection, path)
        connection.execute("USE warehouse")
        with transaction(connection):
            connection.execute(tables_sql())
            connection.execute(views_sql())
            connection.execute("INSERT INTO schema_version VALUES (?)", [format_digest()])
        connection.execute("CHECKPOINT")
        connection.execute("USE memory")
        connection.execute("DETACH warehouse")
    _EMPTY_DATABASE.append(path.read_bytes())


def _is_locked(error: BaseException) -> bool:
    return isinstance(error, duckdb.IOException) and "lock" in str(error).lower()


def _check_format(connection: Connection, database: Path) -> None:
    """Raise WarehouseOutdated if a database's format differs from this version's."""
    try:
        is_known = connection.execute("SELECT digest FROM schema_version").fetchall() == [(format_digest(),)]
    except duckdb.Error:
        is_known = False
    if not is_known:
        raise WarehouseOutdated(
            f"{database} was written by another version; recreate the database from the run folders with: python -m "
            f"warehouse.load RUNS_DIR --database {quote(str(database))} --rebuild"
        )


def choose_grader(connection: Connection, name: str) -> None:
    """Select the grader version used by this connection's views.

    name: the whole version, its first word, or a prefix. Raises WarehouseError if the name matches several versions
    with grades in the database, or none.
    """
    sql = "SELECT DISTINCT grader_version FROM grade ORDER BY grader_version"
    versions = [str(version) for (version,) in connection.execute(sql).fetchall()]
    exact = [v for v in versions if v == name] or [v for v in versions if v.partition(" ")[0] == name]
    matching = exact or [v for v in versions if v.startswith(name)]
    if len(matching) != 1:
        problem = "is ambiguous" if matching else "has no grades in this database"
        choices = "; ".join(matching or versions) or "none"
        raise WarehouseError(f"grader version {name!r} {problem}; available: {choices}")
    connection.execute("SET VARIABLE grader_version = ?", matching)
