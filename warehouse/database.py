"""The warehouse's file: the only importer of duckdb.

One process may write, or several may read. A busy file is waited for. Any SQL of a user goes through `reader`, whose
connection can neither write nor reach any other file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pyarrow as pa
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

WAIT_SECONDS = 60.0
"""How long a busy warehouse is waited for by default."""

Connection = duckdb.DuckDBPyConnection
DatabaseError = duckdb.Error
_FOLDER = Path(__file__).parent
_VIEWS = ("macros", "accuracy", "graders", "speculation", "tokens", "speed", "speed_up")
"""Files of views/, each after what it builds on."""
_NO_EXTENSIONS = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}


class WarehouseError(Exception):
    """Something is wrong with the database itself; the message is one line that says what to do."""


class WarehouseMissing(WarehouseError):
    """There is no such file."""


class WarehouseBusy(WarehouseError):
    """Another process kept the file locked for the whole wait."""


class WarehouseOutdated(WarehouseError):
    """The file was made with another version of the schema."""


@contextmanager
def writer(database: Path, wait_seconds: float = WAIT_SECONDS) -> Iterator[Connection]:
    """Open for writing, making the file and the schema where they are missing. Raises WarehouseError."""
    database.parent.mkdir(parents=True, exist_ok=True)
    connection = _connect(database, wait_seconds, read_only=False)
    try:
        _create_or_check(connection, database)
        yield connection
    finally:
        connection.close()


@contextmanager
def reader(database: Path, wait_seconds: float = WAIT_SECONDS) -> Iterator[Connection]:
    """Open for reading: no writes, no other files, no network, and no setting that would allow them."""
    if not database.is_file():
        raise WarehouseMissing(f"there is no warehouse at {database}: make one with python -m warehouse.load RUNS_DIR")
    connection = _connect(database, wait_seconds, read_only=True)
    try:
        if _stored_version(connection, database) != (_digest(tables_sql()), _digest(views_sql())):
            raise WarehouseOutdated(_outdated(database))
        yield connection
    finally:
        connection.close()


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


@contextmanager
def replacement(database: Path, wait_seconds: float = WAIT_SECONDS) -> Iterator[Path]:
    """A path for a new database, which takes the old one's place when the block ends well; nobody writes meanwhile."""
    fresh = database.with_name(f".{database.name}.rebuild")
    with _held(database, wait_seconds):
        _remove(fresh)
        try:
            yield fresh
            _log_of(database).unlink(missing_ok=True)  # else it would be replayed into the new file
            fresh.replace(database)
        finally:
            _remove(fresh)


def rows(connection: Connection, sql: str, parameters: dict[str, object] | None = None) -> list[dict[str, object]]:
    """Rows of a query by column name."""
    result = connection.execute(sql, parameters)
    names = [column[0] for column in result.description or ()]
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


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


def tables_sql() -> str:
    """The tables' definition."""
    return (_FOLDER / "schema.sql").read_text(encoding="utf-8")


def views_sql() -> str:
    """The definition of macros and views, in the order in which they build on each other."""
    return "\n".join((_FOLDER / "views" / f"{name}.sql").read_text(encoding="utf-8") for name in _VIEWS)


def _connect(database: Path, wait_seconds: float, *, read_only: bool) -> Connection:
    config: dict[str, str | bool | int | float | list[str]] = dict(_NO_EXTENSIONS)
    if read_only:
        config |= {"enable_external_access": False, "lock_configuration": True}
    retrying = Retrying(
        retry=retry_if_exception(_is_locked),
        wait=wait_random_exponential(multiplier=0.1, max=2),
        stop=stop_after_delay(wait_seconds),
        reraise=True,
    )
    try:
        return retrying(duckdb.connect, str(database), read_only=read_only, config=config)
    except duckdb.Error as error:
        if _is_locked(error):
            raise WarehouseBusy(
                f"{database} is in use by another process and stayed so for {wait_seconds:.0f} s: try again later"
            ) from error
        raise WarehouseError(f"{database} cannot be opened: {one_line(error)}") from error


def _is_locked(error: BaseException) -> bool:
    return isinstance(error, duckdb.IOException) and "lock" in str(error).lower()


@contextmanager
def _held(database: Path, wait_seconds: float) -> Iterator[None]:
    """Keep other writers off a file that may be missing, outdated or no database at all."""
    if not database.exists():
        yield
        return
    try:
        connection = _connect(database, wait_seconds, read_only=False)
    except WarehouseBusy:
        raise
    except WarehouseError:
        yield
        return
    try:
        yield
    finally:
        connection.close()


def _create_or_check(connection: Connection, database: Path) -> None:
    tables, views = _digest(tables_sql()), _digest(views_sql())
    if not connection.execute("SELECT 1 FROM duckdb_tables() LIMIT 1").fetchall():
        with transaction(connection):
            connection.execute(tables_sql())
            connection.execute(views_sql())
            connection.execute("INSERT INTO schema_version VALUES (?, ?)", [tables, views])
        return
    stored_tables, stored_views = _stored_version(connection, database)
    if stored_tables != tables:
        raise WarehouseOutdated(_outdated(database))
    if stored_views != views:
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
        f"{database} was made by another version of the warehouse: "
        f"python -m warehouse.load --rebuild RUNS_DIR --database {database}"
    )


def _log_of(database: Path) -> Path:
    return database.with_name(f"{database.name}.wal")


def _remove(database: Path) -> None:
    database.unlink(missing_ok=True)
    _log_of(database).unlink(missing_ok=True)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
