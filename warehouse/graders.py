"""Choose the grader version whose grades the views count."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from warehouse.database import WAIT_SECONDS, Connection, WarehouseError, reader


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


@contextmanager
def reader_for_grader(database: Path, grader: str | None, wait_seconds: float = WAIT_SECONDS) -> Iterator[Connection]:
    """Open a database for reading; its views count one grader version, or with None each run's newest.

    Raises WarehouseError.
    """
    with reader(database, wait_seconds) as connection:
        if grader is not None:
            choose_grader(connection, grader)
        yield connection
