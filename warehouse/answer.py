"""The rows that a query answers with, and their forms: a table, CSV or JSON.

A terminal gets a table that fits it. Everything else gets the rows as they come, with full numbers and no padding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from itertools import chain
from typing import IO, Any

from harness.cli.messages import counted
from harness.cli.screen import Column, Screen, Table, printable
from warehouse.database import Connection, WarehouseError
from warehouse.options import QueryFormat
from warehouse.tables import write_csv, write_json

NULL = "NULL"
_CHUNK_ROWS = 1024
_FEW_ROWS = 2
"""Rows that are shown as blocks, a line per column, rather than without some of their columns."""
_SIGNIFICANT_DIGITS = 4
_LARGE = 1e15
"""Fractions from which on no decimal is known; they and what is not a number are shown as they are."""
_LONGEST_CONSTANT = 120
"""Characters of a value that is said once above the table because every row has it."""


def selected(given: Table, columns: Sequence[str]) -> Table:
    """Return some of the columns, in the given order. Raises WarehouseError for one that is not there."""
    places = places_of(columns, given.names)
    return Table([Column(name) for name in columns], ([row[i] for i in places] for row in given.rows))


def places_of(columns: Sequence[str], names: Sequence[str]) -> list[int]:
    """Return the place of each of the columns among the names. Raises WarehouseError for one that is not there."""
    for column in columns:
        if column not in names:
            raise WarehouseError(f"the answer has no column {column!r}; it has: {', '.join(names)}")
    return [names.index(column) for column in columns]


def answer(connection: Connection, sql: str) -> Table:
    """Run one statement that returns rows. Its first rows are computed now, the others as they are read.

    Raises WarehouseError and DatabaseError.
    """
    check_statement(connection, sql)
    result = connection.execute(sql)
    if result.description is None:
        raise WarehouseError("the SQL returns no rows")
    first = result.fetchmany(_CHUNK_ROWS)
    rest = iter(lambda: result.fetchmany(_CHUNK_ROWS), [])
    return Table([Column(column[0]) for column in result.description], chain(first, chain.from_iterable(rest)))


def check_statement(connection: Connection, sql: str) -> None:
    """Raise WarehouseError unless the text is exactly one statement, and DatabaseError where it cannot be parsed."""
    statements = connection.extract_statements(sql)
    if not statements:  # only blanks or comments
        raise WarehouseError("the SQL is empty")
    if len(statements) > 1:
        raise WarehouseError(f"expected one SQL statement, not {len(statements)}")


def write(given: Table, out: IO[str], output_format: QueryFormat, *, is_wide: bool = False) -> None:
    """Write the rows as a table, CSV or JSON, to a terminal escaped.

    is_wide: align a table at any width, with every column and full numbers.
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
    """Print rows for a person; `is_wide`: every column with full numbers and one line per row, at any width."""
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
        verb = "does" if len(left_out) == 1 else "do"
        text = f"{counted(len(left_out), 'column')} {verb} not fit: {', '.join(left_out)}"
        screen.say(f"{text} (--columns NAME,NAME chooses, --wide shows all)")


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
    """Return a value as the text of a cell, with ten significant digits."""
    if value is None:
        return NULL
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def rounded(values: Sequence[Any]) -> list[str]:
    """Return a column's values as text; its fractions have as many decimals as four digits of the largest need."""
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
    """Print the columns but the first that have one value in every row, and return the others."""
    constant = [
        (column, cells)
        for column, cells in columns[1:]
        if len(set(cells)) == 1 and len(printable(cells[0])) <= _LONGEST_CONSTANT
    ]
    said = ", ".join(f"{column.name} {cells[0]}" for column, cells in constant if cells[0] != NULL)
    empty = ", ".join(column.name for column, cells in constant if cells[0] == NULL)
    for opening, text in (("In every row", said), ("NULL in every row", empty)):
        if text:
            screen.say(f"{opening}: {text}")
    return [shown for shown in columns if shown not in constant]
