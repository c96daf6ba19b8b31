"""Query the warehouse with SQL: `python -m warehouse.query "SELECT * FROM pass_at_1"`.

The connection is read-only: the SQL can neither change the warehouse nor reach another file.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
from collections.abc import Sequence
from datetime import date, datetime, time
from pathlib import Path
from typing import IO, Literal, get_args

import click
import pyarrow.parquet as pq
from rich import box
from rich.table import Table

from warehouse.database import Connection, WarehouseError, arrow
from warehouse.display import plain, print_table, printable
from warehouse.graders import reader_for_grader
from warehouse.options import (
    WarehouseCommand,
    choose_format,
    database_option,
    format_option,
    grader_option,
    open_output,
    output_option,
    wait_option,
)

Format = Literal["table", "csv", "json", "parquet"]
_BY_ENDING: dict[str, Format] = {".csv": "csv", ".json": "json", ".parquet": "parquet", ".txt": "table"}
_QUERIES = Path(__file__).with_name("queries")
_LIST = """
SELECT kind, name, comment FROM (
    -- Another version's views may lie in the file, below those of this version.
    SELECT 'view' AS kind, view_name AS name, arg_max(comment, database_name = 'temp') AS comment
    FROM duckdb_views() WHERE NOT internal GROUP BY view_name
    UNION ALL
    SELECT 'table', table_name, comment FROM duckdb_tables() WHERE NOT internal
) ORDER BY kind DESC, name
"""


def named_queries() -> dict[str, Path]:
    """Return the files of the bundled queries by name."""
    return {path.stem: path for path in sorted(_QUERIES.glob("*.sql"))}


def description(query: Path) -> str:
    """Return the comment at the beginning of a bundled query."""
    lines = query.read_text(encoding="utf-8").splitlines()
    opening = lines[: next((i for i, line in enumerate(lines) if not line.startswith("--")), len(lines))]
    return " ".join(line.removeprefix("--").strip() for line in opening)


def write_rows(names: Sequence[str], rows: Sequence[Sequence[object]], out: IO[str], output_format: Format) -> None:
    """Write rows as a table, CSV or JSON. Output to a terminal is escaped; output to a file is exact."""
    if output_format == "table":
        table = Table(box=box.SIMPLE_HEAD)
        for name in names:
            table.add_column(plain(name), overflow="fold")
        for row in rows:
            table.add_row(*(plain(_cell(value)) for value in row))
        print_table(table, out)
    elif output_format == "json":
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
    """Return the names with a number appended to repeated ones, which would otherwise overwrite each other as keys."""
    keys: list[str] = []
    for name in names:
        variants = (name if i == 0 else f"{name}_{i}" for i in itertools.count())
        keys.append(next(key for key in variants if key not in keys))
    return keys


def _cell(value: object) -> str:
    if value is None:
        return "NULL"
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def _csv_value(value: object) -> object:
    return json.dumps(_plain_value(value), ensure_ascii=False) if isinstance(value, list | dict) else value


def _plain_value(value: object) -> object:
    """Return a value that JSON can hold; NaN and infinity become null."""
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
    queries = [("query", name, description(path)) for name, path in named_queries().items()]
    return ["kind", "name", "comment"], [*connection.execute(_LIST).fetchall(), *queries]


def _check_statement(connection: Connection, sql: str) -> None:
    """Raise WarehouseError unless the text is exactly one statement, and DatabaseError where it cannot be parsed."""
    statements = connection.extract_statements(sql)
    if not statements:  # only blanks or comments
        raise WarehouseError("the SQL is empty")
    if len(statements) > 1:
        raise WarehouseError(f"expected one SQL statement, not {len(statements)}")


def _answer(connection: Connection, sql: str) -> tuple[list[str], list[tuple[object, ...]]]:
    _check_statement(connection, sql)
    result = connection.execute(sql)
    if result.description is None:
        raise WarehouseError("the SQL returns no rows")
    return [column[0] for column in result.description], result.fetchall()


def _sql(sql: str | None, name: str | None) -> str:
    if (sql is None) == (name is None):
        raise click.UsageError("expected exactly one of SQL, --name or --list")
    if name is None:
        assert sql is not None
        return sql
    if name not in named_queries():
        raise click.UsageError(f"no query {name!r}; there are: {', '.join(named_queries())}")
    return named_queries()[name].read_text(encoding="utf-8")


@click.command(cls=WarehouseCommand)
@click.argument("sql", required=False)
@click.option("--name", help="Run a bundled query (see --list) instead of SQL.")
@click.option("--list", "is_list", is_flag=True, help="List views, tables and bundled queries with their meaning.")
@database_option()
@format_option(get_args(Format))
@output_option()
@grader_option()
@wait_option()
def main(
    sql: str | None,
    name: str | None,
    is_list: bool,
    database: Path,
    output_format: Format | None,
    output: Path | None,
    grader: str | None,
    wait_seconds: float,
) -> None:
    """Run SQL on the warehouse, read-only."""
    text = "" if is_list else _sql(sql, name)
    chosen: Format = choose_format(output_format, output, _BY_ENDING, "table", file_only=["parquet"])
    with reader_for_grader(database, grader, wait_seconds) as connection:
        if chosen == "parquet" and output is not None:
            _check_statement(connection, text or _LIST)
            table = arrow(connection, text or _LIST)
            pq.write_table(table.rename_columns(_distinct(table.column_names)), output)
            return
        names, answer = _listing(connection) if is_list else _answer(connection, text)
    with open_output(output) as out:
        write_rows(names, answer, out, chosen)


if __name__ == "__main__":
    main(prog_name="python -m warehouse.query")
