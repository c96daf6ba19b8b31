"""Query the database with SQL: `python -m warehouse.query "SELECT * FROM pass_at_1"`.

The connection is read-only: the SQL can neither change the database nor access other files.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from importlib import resources
from importlib.resources.abc import Traversable
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, get_args

import click

from harness.cli.screen import Column, Screen, Table, printable
from warehouse.files import WarehouseError, one_line
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
from warehouse.report.tables import distinct, write_csv, write_json

if TYPE_CHECKING:
    from warehouse.database import Connection

_BY_ENDING: dict[str, QueryFormat] = {".csv": "csv", ".json": "json", ".parquet": "parquet", ".txt": "table"}
_LIST = """
SELECT 'view' AS kind, view_name AS name, comment FROM duckdb_views() WHERE NOT internal
UNION ALL
SELECT 'table', table_name, comment FROM duckdb_tables() WHERE NOT internal
ORDER BY kind DESC, NOT starts_with(name, 'wide_'), name
"""
NULL = "NULL"
_CHUNK_ROWS = 1024
_FEW_ROWS = 2
"""Maximum number of rows that are shown as blocks, one line per column, instead of hiding columns."""
_SIGNIFICANT_DIGITS = 4
_LARGE = 1e15
"""Numbers at least this large, NaN and infinity are printed as `full` prints them."""
_LONGEST_CONSTANT = 120
"""Maximum length of a value that is printed once above the table if it is equal in all rows."""


def named_queries() -> dict[str, Traversable]:
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
    return Table([Column(name) for name in names], rows)


def _description(connection: Connection, name: str) -> Table:
    """Return the columns of a table or view with type and meaning. Raises WarehouseError for an unknown name."""
    from warehouse.sql import schema

    columns = [schema.Column(*row) for row in connection.execute(schema.COLUMNS).fetchall()]
    meanings = schema.meanings(columns)
    found = [(c.name, c.type, meanings[name, c.name]) for c in columns if c.table == name]
    if not found:
        names = ", ".join(str(entry[1]) for entry in connection.execute(_LIST).fetchall())
        raise WarehouseError(f"no table or view {name!r}; available: {names}")
    return _table(("column", "type", "comment"), found)


def _sql(sql: str | None, name: str | None) -> str:
    if name is None:
        assert sql is not None
        return sql
    if name not in named_queries():
        raise click.UsageError(f"no query {name!r}; available: {', '.join(named_queries())}")
    return named_queries()[name].read_text(encoding="utf-8")


def _write_parquet(connection: Connection, sql: str, columns: Sequence[str], output: Path) -> None:
    import pyarrow.parquet as pq

    from warehouse.database import arrow

    check_statement(connection, sql)
    table = arrow(connection, sql)
    if columns:
        table = table.select(places_of(columns, table.column_names))
    pq.write_table(table.rename_columns(distinct(table.column_names)), output)


def selected(given: Table, columns: Sequence[str]) -> Table:
    """Return some of the columns, in the given order. Raises WarehouseError for a missing one."""
    places = places_of(columns, given.names)
    return Table([Column(name) for name in columns], ([row[i] for i in places] for row in given.rows))


def places_of(columns: Sequence[str], names: Sequence[str]) -> list[int]:
    """Return the index of each column among the names. Raises WarehouseError for a missing one."""
    for column in columns:
        if column not in names:
            raise WarehouseError(f"no column {column!r} in the result; available: {', '.join(names)}")
    return [names.index(column) for column in columns]


def answer(connection: Connection, sql: str) -> Table:
    """Run one query. The first rows are computed now, the remaining rows when they are read.

    Raises WarehouseError and DatabaseError.
    """
    from warehouse.database import UnknownName

    check_statement(connection, sql)
    try:
        result = connection.execute(sql)
    except UnknownName as error:
        raise WarehouseError(f"{one_line(error)} List tables with --list, columns with --describe TABLE") from error
    if result.description is None:
        raise WarehouseError("the SQL statement returns no table; expected a query, e.g. SELECT")
    first = result.fetchmany(_CHUNK_ROWS)
    rest = iter(lambda: result.fetchmany(_CHUNK_ROWS), [])
    return Table([Column(column[0]) for column in result.description], chain(first, chain.from_iterable(rest)))


def check_statement(connection: Connection, sql: str) -> None:
    """Raise WarehouseError unless the string is exactly one statement, and DatabaseError if it cannot be parsed."""
    statements = connection.extract_statements(sql)
    if not statements:  # only blanks or comments
        raise WarehouseError("the SQL is empty")
    if len(statements) > 1:
        raise WarehouseError(f"expected one SQL statement, not {len(statements)}")


def write(given: Table, out: IO[str], output_format: QueryFormat, *, is_wide: bool = False) -> None:
    """Write the rows as a table, CSV or JSON. Control characters are escaped, in CSV only on a terminal.

    is_wide: print an aligned table with all columns and unrounded numbers, even if it is wider than the terminal.
    """
    if output_format == "json":
        write_json(given, out)
    elif output_format == "csv":
        write_csv(given, out)
    elif is_wide or out.isatty():
        print_rows(given, out, is_wide=is_wide)
    else:
        for row in chain([given.names], given.rows):
            out.write("\t".join(printable(full(value)) for value in row) + "\n")


def print_rows(given: Table, out: IO[str], *, is_wide: bool = False) -> None:
    """Print rows as text. `is_wide`: all columns, unrounded numbers and one line per row, even beyond the terminal's
    width.
    """
    rows = list(given.rows)
    columns = [_shown(column.name, [row[i] for row in rows], is_wide) for i, column in enumerate(given.columns)]
    screen, table = Screen(out, is_whole=is_wide), _together(columns)
    if len(screen.fitting(table)) == len(columns) or len(rows) <= _FEW_ROWS:
        screen.table(table)
        return
    varying = _without_constant(screen, columns)
    kept = screen.fitting(_together(varying))
    screen.table(_together([varying[i] for i in kept]) if len(kept) > 1 or len(varying) == 1 else table)
    if 1 < len(kept) < len(varying):
        left_out = [column.name for i, (column, _) in enumerate(varying) if i not in kept]
        screen.say(f"Hidden: {', '.join(left_out)} (--columns, --wide)")


_Shown = tuple[Column, Sequence[str]]
"""A column with its cells."""


def _together(columns: Sequence[_Shown]) -> Table:
    return Table([column for column, _ in columns], list(zip(*(cells for _, cells in columns), strict=True)))


def _shown(name: str, values: Sequence[Any], is_wide: bool) -> _Shown:
    values = [float(value) if isinstance(value, Decimal) else value for value in values]
    present = [value for value in values if value is not None]
    is_number = bool(present) and all(isinstance(v, int | float) and not isinstance(v, bool) for v in present)
    return Column(name, is_number), [full(value) for value in values] if is_wide else rounded(values)


def full(value: Any) -> str:
    """Return a value as a cell's text, with ten significant digits."""
    if value is None:
        return NULL
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def rounded(values: Sequence[Any]) -> list[str]:
    """Return a column's values as strings; floats get enough decimals for four significant digits of the largest."""
    fractions = [value for value in values if isinstance(value, float) and abs(value) < _LARGE]
    decimals = _decimals(fractions)
    return [_rounded(value, decimals) if isinstance(value, float) else full(value) for value in values]


def _decimals(values: Sequence[float]) -> int:
    largest = max((abs(value) for value in values), default=0.0)
    if largest == 0:
        return 0
    given = max(len(f"{value:.10f}".rstrip("0").partition(".")[2]) for value in values)
    return min(given, max(0, _SIGNIFICANT_DIGITS - 1 - math.floor(math.log10(largest))))


def _rounded(value: float, decimals: int) -> str:
    if not abs(value) < _LARGE:
        return full(value)
    text = f"{value:.{decimals}f}"
    return f"{value:.2g}" if value != 0 and float(text) == 0 else text


def _without_constant(screen: Screen, columns: Sequence[_Shown]) -> list[_Shown]:
    """Print the columns, except the first, that are equal in all rows, and return the others."""
    constant = [
        (column, cells)
        for column, cells in columns[1:]
        if len(set(cells)) == 1 and len(printable(cells[0])) <= _LONGEST_CONSTANT
    ]
    said = ", ".join(f"{column.name} {cells[0]}" for column, cells in constant if cells[0] != NULL)
    empty = ", ".join(column.name for column, cells in constant if cells[0] == NULL)
    for opening, text in (("In all rows", said), ("NULL in all rows", empty)):
        if text:
            screen.say(f"{opening}: {text}")
    return [shown for shown in columns if shown not in constant]


def _names(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...]:
    if value is None:
        return ()
    names = tuple(name.strip() for name in value.split(","))
    if not all(names):
        raise click.BadParameter(f"{value!r}: expected column names separated by commas, e.g. run_id,pass_at_1")
    return names


@click.command(cls=WarehouseCommand)
@click.argument("sql", required=False)
@click.option("--name", help="Run a bundled query (see --list) instead of SQL.")
@click.option("--list", "is_list", is_flag=True, help="List views, tables and bundled queries with their meaning.")
@click.option("--describe", metavar="VIEW", help="List the columns of a view or table with type, unit and meaning.")
@click.option("--columns", metavar="NAME,NAME…", callback=_names, help="Print only these columns, in this order.")
@click.option(
    "--wide",
    "is_wide",
    is_flag=True,
    help="Print all columns, unrounded numbers and one line per row, even if the table is wider than the terminal.",
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
    """Run SQL on the database, read-only.

    On a terminal, a table is fitted to the width: numbers are rounded, and hidden columns are listed below. In a pipe
    or a file, it has all columns, separated by tabs, and unrounded numbers.
    """
    from warehouse.database import reader

    if [sql is not None, name is not None, is_list, describe is not None].count(True) != 1:
        raise click.UsageError("expected exactly one of SQL, --name, --list or --describe")
    chosen: QueryFormat = choose_format(output_format, output, _BY_ENDING, "table", file_only=["parquet"])
    with reader(database or default_database(), wait_seconds, grader) as connection:
        if chosen == "parquet" and output is not None:
            if describe is not None:
                raise click.UsageError("--describe cannot write Parquet: use --format table, csv or json")
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
