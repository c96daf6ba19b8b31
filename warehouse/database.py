"""Connections to the warehouse's database file; the only module that imports duckdb.

One process writes at a time, to a copy of the file (files.py), so readers never wait. SQL from a user always goes
through `reader`, whose connection can neither write nor reach any other file.
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
"""A row of a query by its columns, or the parameters of one by their names; the database knows their types."""
Row = dict[str, Any]
"""A row of a query that its reader may change."""
Arrays = dict[str, NDArray[Any]]
"""Columns of a query by name, each (rows,)."""
__all__ = ["WAIT_SECONDS", "WarehouseBusy", "WarehouseError", "WarehouseMissing", "WarehouseOutdated"]
"""What is imported from here, too, although it stands in warehouse.files."""
_MOST_MEMORY_MEBIBYTES = 4096
_ROW_GROUP_ROWS = 30720
"""Rows that are compressed and written together. A full row group is written while its thread goes on reading; what is
left of a run waits uncompressed for the commit. With DuckDB's default of 122,880 rows that would be most of a run."""
_EMPTY_DATABASE: list[bytes] = []
"""The file of a database without rows, as soon as this process has made one."""
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
"""Statements without which the same is defined, in less time."""
_NO_EXTENSIONS = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}


@contextmanager
def writer(database: Path, wait_seconds: float = WAIT_SECONDS, *, is_anew: bool = False) -> Iterator[Connection]:
    """Open a copy of the database for writing; it replaces the file when the block ends without an exception.

    is_anew: begin without any rows, whatever the file is. The file and the schema are created where they are missing.
    Readers do not wait; they see the new state when they open the file the next time. Raises WarehouseError.
    """
    check_is_file(database)
    with write_lock(database, wait_seconds), ExitStack() as stack, _interrupts():
        is_kept = database.exists() and not is_anew
        if is_kept:
            # An open reader keeps other programs from opening the file itself for writing.
            _check_format(stack.enter_context(closing(_connect(database, wait_seconds))), database)
        with successor(database) as new_file:
            if is_kept:
                copy(database, new_file)
            with _open_for_writing(new_file, database) as connection:
                yield connection


@contextmanager
def reader(database: Path, wait_seconds: float = WAIT_SECONDS, grader: str | None = None) -> Iterator[Connection]:
    """Open the database for reading: no writes, no other files, no network, and no setting that would allow them.

    grader: the version that views count (see `choose_grader`); None: each run's newest. Raises WarehouseMissing,
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
    """Let an interrupt during a query be an interrupt: DuckDB raises a RuntimeError for it."""
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
    """Return the names of the tables that hold rows of runs: those with a column `run_id`."""
    return [name for (name,) in connection.execute(_RUN_TABLES).fetchall()]


def columns(connection: Connection, sql: str, parameters: Record) -> Arrays:
    """Run a query and return arrays (rows,) by column name; NULL becomes NaN, so only a DOUBLE may be NULL."""
    arrays = connection.execute(sql, parameters).fetchnumpy()
    return {
        name: values.filled(np.nan) if isinstance(values, np.ma.MaskedArray) else values
        for name, values in arrays.items()
    }


def arrow(connection: Connection, sql: str) -> pa.Table:
    """Run a query and return an Arrow table. Raises DatabaseError, and WarehouseError where the SQL returns nothing."""
    relation = connection.sql(sql)
    if relation is None:
        raise WarehouseError("the SQL returns no rows")
    return relation.to_arrow_table()


def literal(text: str) -> str:
    """Return a text as an SQL literal, for places where a parameter is not allowed."""
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
            f"{database} cannot be opened: {one_line(error)}; if it is a damaged warehouse, delete it, and "
            f"python -m warehouse.load RUNS_DIR --database {quote(str(database))} makes it anew"
        ) from error


def _holder(error: BaseException | None) -> str:
    """Return in words who has a database locked: the program and its PID, where DuckDB names them."""
    named = re.search(r"lock is held in (.+?)(?:\.\s|\.?$)", str(error))
    return f"another process, {named[1]}" if named else "another process"


def memory_mebibytes() -> int:
    """Return the memory limit of a connection that writes: half of what is free, within bounds.

    Loading also runs on login nodes and beside engines.
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
    """Attach the file to a connection, for writing; nothing of it is searched yet."""
    try:
        connection.execute(f"ATTACH {literal(str(path))} AS warehouse (ROW_GROUP_SIZE {_ROW_GROUP_ROWS})")
    except duckdb.Error as error:
        raise WarehouseError(f"{path} cannot be opened: {one_line(error)}") from error


def _check_definitions(connection: Connection, database: Path) -> None:
    """Raise WarehouseError where an attached database defines something otherwise than this version does.

    Its macros would stand for functions of the same name, and read files of whoever loads. None is searched yet.
    """
    found = set(connection.execute(_DEFINITIONS).fetchall())
    if others := sorted(found - _definitions()):
        kind, name, _ = others[0]
        raise WarehouseError(
            f"{database} holds the {kind} {name!r}, which this version does not define like this: python -m "
            f"warehouse.load RUNS_DIR --database {quote(str(database))} --rebuild makes it anew from the run folders"
        )


@cache
def _definitions() -> frozenset[tuple[str, str, str]]:
    """Return what this version defines in a database."""
    with closing(duckdb.connect(":memory:", config={**_NO_EXTENSIONS})) as connection:
        connection.execute("ATTACH ':memory:' AS warehouse; USE warehouse")
        created = [
            one for one in duckdb.extract_statements(tables_sql() + views_sql()) if not _COMMENTS.match(one.query)
        ]
        connection.execute(";".join(one.query for one in created))
        return frozenset(connection.execute(_DEFINITIONS).fetchall())


def _create(path: Path) -> None:
    """Make a database without rows, which takes a while, so a process makes one once."""
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
    """Raise WarehouseOutdated where a database has another format than this version's."""
    try:
        is_known = connection.execute("SELECT digest FROM schema_version").fetchall() == [(format_digest(),)]
    except duckdb.Error:
        is_known = False
    if not is_known:
        raise WarehouseOutdated(
            f"{database} was written by another version of the warehouse: python -m warehouse.load RUNS_DIR "
            f"--database {quote(str(database))} --rebuild makes it anew from the run folders"
        )


def choose_grader(connection: Connection, name: str) -> None:
    """Let the views of this connection count the grades of one grader version.

    name: the whole version, its first word, or its beginning. Raises WarehouseError where it names no version that
    graded anything here, or several.
    """
    sql = "SELECT DISTINCT grader_version FROM grade ORDER BY grader_version"
    versions = [str(version) for (version,) in connection.execute(sql).fetchall()]
    exact = [v for v in versions if v == name] or [v for v in versions if v.partition(" ")[0] == name]
    matching = exact or [v for v in versions if v.startswith(name)]
    if len(matching) != 1:
        problem = "is ambiguous" if matching else "graded nothing here"
        choices = "; ".join(matching or versions) or "none"
        raise WarehouseError(f"grader version {name!r} {problem}; there are: {choices}")
    connection.execute("SET VARIABLE grader_version = ?", matching)
