"""Ask the warehouse: `python -m warehouse.query "SELECT * FROM pass_at_1"`.

The connection only reads: the SQL can neither change the warehouse nor touch another file.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import date, datetime, time
from pathlib import Path
from typing import IO, Literal

import click
import pyarrow.parquet as pq
from rich import box
from rich.table import Table

from harness.command import OneLineErrors
from warehouse.database import WAIT_SECONDS, Connection, DatabaseError, WarehouseError, arrow, one_line, reader
from warehouse.display import plain, print_table, printable

Format = Literal["table", "csv", "json", "parquet"]
_QUERIES = Path(__file__).with_name("queries")
_LIST = """
SELECT kind, name, comment FROM (
    SELECT 'view' AS kind, view_name AS name, comment FROM duckdb_views() WHERE NOT internal
    UNION ALL
    SELECT 'table', table_name, comment FROM duckdb_tables() WHERE NOT internal
) ORDER BY kind DESC, name
"""


def named_queries() -> dict[str, Path]:
    """The queries that come along, by name."""
    return {path.stem: path for path in sorted(_QUERIES.glob("*.sql"))}


def description(query: Path) -> str:
    """The comment that a named query begins with."""
    lines = query.read_text(encoding="utf-8").splitlines()
    opening = lines[: next((i for i, line in enumerate(lines) if not line.startswith("--")), len(lines))]
    return " ".join(line.removeprefix("--").strip() for line in opening)


def write_rows(names: Sequence[str], rows: Sequence[Sequence[object]], out: IO[str], shape: Format) -> None:
    """Write rows as table, CSV or JSON. What goes to a terminal is made harmless, what goes to a file is exact."""
    if shape == "table":
        table = Table(box=box.SIMPLE_HEAD)
        for name in names:
            table.add_column(plain(name), overflow="fold")
        for row in rows:
            table.add_row(*(plain(_cell(value)) for value in row))
        print_table(table, out)
    elif shape == "json":
        keys = _distinct(names)
        records = [dict(zip(keys, map(_plain_value, row), strict=True)) for row in rows]
        out.write(json.dumps(records, indent=2, ensure_ascii=out.isatty()) + "\n")
    else:
        text = io.StringIO()
        lines = csv.writer(text, lineterminator="\n")
        lines.writerow(names)
        lines.writerows(["" if value is None else _csv_value(value) for value in row] for row in rows)
        out.write(printable(text.getvalue(), keep="\n") if out.isatty() else text.getvalue())


def _distinct(names: Sequence[str]) -> list[str]:
    """Names with a number behind every repeated one: as keys they would hide each other."""
    keys: list[str] = []
    for name in names:
        same = (name if i == 0 else f"{name}_{i}" for i in itertools.count())
        keys.append(next(key for key in same if key not in keys))
    return keys


def _cell(value: object) -> str:
    if value is None:
        return "NULL"
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def _csv_value(value: object) -> object:
    return json.dumps(_plain_value(value), ensure_ascii=False) if isinstance(value, list | dict) else value


def _plain_value(value: object) -> object:
    """A value as JSON knows it; numbers that JSON does not know become null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, datetime):
        return value.isoformat() + ("" if value.tzinfo else "Z")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, list | tuple):
        return [_plain_value(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain_value(item) for key, item in value.items()}
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _listing(connection: Connection) -> tuple[list[str], list[tuple[object, ...]]]:
    found = connection.execute(_LIST).fetchall()
    return ["kind", "name", "comment"], [*found, *(("query", n, description(p)) for n, p in named_queries().items())]


def _answer(connection: Connection, sql: str) -> tuple[list[str], list[tuple[object, ...]]]:
    result = connection.execute(sql)
    if result is None or result.description is None:  # nothing but blanks or comments
        raise WarehouseError("the SQL asks for no rows")
    return [column[0] for column in result.description], result.fetchall()


def choose_grader(connection: Connection, given: str) -> None:
    """Let the views of this connection count one grader version. Raises WarehouseError where it is none or several."""
    sql = "SELECT DISTINCT grader_version FROM grade ORDER BY grader_version"
    versions = [str(version) for (version,) in connection.execute(sql).fetchall()]
    exact = [v for v in versions if v == given] or [v for v in versions if v.partition(" ")[0] == given]
    found = exact or [v for v in versions if v.startswith(given)]
    if len(found) != 1:
        what = "is ambiguous" if found else "graded nothing here"
        raise WarehouseError(f"grader version {given!r} {what}; there are: {'; '.join(found or versions) or 'none'}")
    connection.execute("SET VARIABLE grader_version = ?", found)


def _sql(sql: str | None, name: str | None) -> str:
    if (sql is None) == (name is None):
        raise click.UsageError("give one of: SQL, --name, --list")
    if name is None:
        assert sql is not None
        return sql
    if name not in named_queries():
        raise click.UsageError(f"no query {name!r}; there are: {', '.join(named_queries())}")
    return named_queries()[name].read_text(encoding="utf-8")


def _shape(shape: Format | None, output: Path | None) -> Format:
    suffixes: dict[str, Format] = {".csv": "csv", ".json": "json", ".parquet": "parquet"}
    chosen = shape or suffixes.get(output.suffix if output else "", "table")
    if chosen == "parquet" and output is None:
        raise click.UsageError("--format parquet needs -o FILE")
    return chosen


@click.command(cls=OneLineErrors)
@click.argument("sql", required=False)
@click.option("--name", help="Run a query that comes along (see --list) instead.")
@click.option("--list", "is_list", is_flag=True, help="List views, tables and queries with what they mean.")
@click.option(
    "--database",
    type=click.Path(path_type=Path),
    default=Path("warehouse.duckdb"),
    show_default=True,
    help="Warehouse.",
)
@click.option(
    "--format",
    "shape",
    type=click.Choice(["table", "csv", "json", "parquet"]),
    help="[default: by FILE's ending, else table]",
)
@click.option("-o", "--output", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False), help="Write to FILE.")
@click.option(
    "--grader",
    metavar="VERSION",
    help="Count this grader version's grades: its name, first word or beginning (view grader_versions).  "
    "[default: each run's newest]",
)
@click.option("--wait", "wait_seconds", default=WAIT_SECONDS, show_default=True, help="Seconds to wait if it is busy.")
def main(
    sql: str | None,
    name: str | None,
    is_list: bool,
    database: Path,
    shape: Format | None,
    output: Path | None,
    grader: str | None,
    wait_seconds: float,
) -> None:
    """Answer SQL from the warehouse, read-only."""
    try:
        text, shape = "" if is_list else _sql(sql, name), _shape(shape, output)
        with reader(database, wait_seconds) as connection:
            if grader is not None:
                choose_grader(connection, grader)
            if shape == "parquet" and output is not None:
                table = arrow(connection, text or _LIST)
                pq.write_table(table.rename_columns(_distinct(table.column_names)), output)
                return
            names, found = _listing(connection) if is_list else _answer(connection, text)
        with output.open("w", encoding="utf-8", newline="") if output else nullcontext(sys.stdout) as out:
            write_rows(names, found, out, shape)
    except (DatabaseError, WarehouseError, OSError, OverflowError, UnicodeError) as error:
        click.echo(printable(f"error: {one_line(error)}"), err=True)
        sys.exit(2)


if __name__ == "__main__":
    main(prog_name="python -m warehouse.query")
