"""Query the warehouse with SQL: `python -m warehouse.query "SELECT * FROM pass_at_1"`.

The connection is read-only: the SQL can neither change the warehouse nor reach another file.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click

from warehouse.files import WarehouseError
from warehouse.options import (
    QueryFormat,
    WarehouseCommand,
    choose_format,
    complete_output,
    database_option,
    default_database,
    format_option,
    grader_option,
    output_option,
    wait_option,
)

if TYPE_CHECKING:
    from harness.cli.screen import Table
    from warehouse.database import Connection

_BY_ENDING: dict[str, QueryFormat] = {".csv": "csv", ".json": "json", ".parquet": "parquet", ".txt": "table"}
_LIST = """
SELECT 'view' AS kind, view_name AS name, comment FROM duckdb_views() WHERE NOT internal
UNION ALL
SELECT 'table', table_name, comment FROM duckdb_tables() WHERE NOT internal
ORDER BY kind DESC, NOT starts_with(name, 'wide_'), name
"""
_COLUMNS = """
SELECT table_name, column_name, data_type, comment, table_name IN (SELECT view_name FROM duckdb_views()) AS is_view
FROM duckdb_columns() WHERE NOT internal
ORDER BY column_index
"""


def named_queries() -> dict[str, Traversable]:
    """Return the files of the bundled queries by name."""
    files = (resources.files("warehouse") / "sql" / "queries").iterdir()
    return {file.name.removesuffix(".sql"): file for file in sorted(files, key=lambda file: file.name)}


def description(query: Traversable) -> str:
    """Return the comment at the beginning of a bundled query."""
    lines = query.read_text(encoding="utf-8").splitlines()
    opening = lines[: next((i for i, line in enumerate(lines) if not line.startswith("--")), len(lines))]
    return " ".join(line.removeprefix("--").strip() for line in opening)


def _listing(connection: Connection) -> Table:
    queries = [("query", name, description(path)) for name, path in named_queries().items()]
    return _table(("kind", "name", "comment"), [*connection.execute(_LIST).fetchall(), *queries])


def _table(names: Sequence[str], rows: Sequence[Sequence[str | None]]) -> Table:
    from harness.cli.screen import Column, Table

    return Table([Column(name) for name in names], rows)


def _description(connection: Connection, name: str) -> Table:
    """Return the columns of a table or view with type and meaning. Raises WarehouseError for any other name."""
    from warehouse.schema import Column, comment, comments_of_tables

    columns = [Column(*row) for row in connection.execute(_COLUMNS).fetchall()]
    of_tables = comments_of_tables(columns)
    found = [(c.name, c.type, comment(c, of_tables)) for c in columns if c.table == name]
    if not found:
        names = ", ".join(str(entry[1]) for entry in connection.execute(_LIST).fetchall())
        raise WarehouseError(f"no table or view {name!r}; there are: {names}")
    return _table(("column", "type", "comment"), found)


def _sql(sql: str | None, name: str | None) -> str:
    if name is None:
        assert sql is not None
        return sql
    if name not in named_queries():
        raise click.UsageError(f"no query {name!r}; there are: {', '.join(named_queries())}")
    return named_queries()[name].read_text(encoding="utf-8")


def _write_parquet(connection: Connection, sql: str, columns: Sequence[str], output: Path) -> None:
    import pyarrow.parquet as pq

    from warehouse.answer import check_statement, places_of
    from warehouse.database import arrow
    from warehouse.tables import distinct

    check_statement(connection, sql)
    table = arrow(connection, sql)
    if columns:
        table = table.select(places_of(columns, table.column_names))
    pq.write_table(table.rename_columns(distinct(table.column_names)), output)


def _names(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...]:
    if value is None:
        return ()
    names = tuple(name.strip() for name in value.split(","))
    if not all(names):
        raise click.BadParameter(f"{value!r}: expected names of columns, as in run_id,pass_at_1")
    return names


@click.command(cls=WarehouseCommand)
@click.argument("sql", required=False)
@click.option("--name", help="Run a bundled query (see --list) instead of SQL.")
@click.option("--list", "is_list", is_flag=True, help="List views, tables and bundled queries with their meaning.")
@click.option("--describe", metavar="VIEW", help="List the columns of a view or table with type, unit and meaning.")
@click.option("--columns", metavar="NAME,NAME…", callback=_names, help="Only these columns, in this order.")
@click.option(
    "--wide", "is_wide", is_flag=True, help="Table with every column, full numbers and one line per row, at any width."
)
@database_option()
@format_option(get_args(QueryFormat))
@output_option()
@grader_option()
@wait_option()
def main(
    sql: str | None,
    name: str | None,
    is_list: bool,
    describe: str | None,
    columns: tuple[str, ...],
    is_wide: bool,
    database: Path | None,
    output_format: QueryFormat | None,
    output: Path | None,
    grader: str | None,
    wait_seconds: float,
) -> None:
    """Run SQL on the warehouse, read-only.

    On a terminal, a table is made to fit: numbers are rounded, and columns without room are named below it. In a pipe
    or a file it has every column, tabs between them, and full numbers.
    """
    from warehouse.answer import answer, selected, write
    from warehouse.database import reader_for_grader

    if [sql is not None, name is not None, is_list, describe is not None].count(True) != 1:
        raise click.UsageError("expected exactly one of SQL, --name, --list or --describe")
    chosen: QueryFormat = choose_format(output_format, output, _BY_ENDING, "table", file_only=["parquet"])
    with reader_for_grader(database or default_database(), grader, wait_seconds) as connection:
        if chosen == "parquet" and output is not None:
            if describe is not None:
                raise click.UsageError("--describe has no Parquet form: --format is one of table, csv, json")
            _write_parquet(connection, _LIST if is_list else _sql(sql, name), columns, output)
            return
        if describe is not None:
            given = _description(connection, describe)
        else:
            given = _listing(connection) if is_list else answer(connection, _sql(sql, name))
        if columns:
            given = selected(given, columns)
        with complete_output(output) as out:
            write(given, out, chosen, is_wide=is_wide)


if __name__ == "__main__":
    main(prog_name="python -m warehouse.query")
