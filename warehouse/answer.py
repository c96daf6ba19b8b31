"""The rows that a query answers with, and their forms: a table, CSV or JSON.

A terminal gets a table that fits it. Everything else gets the rows as they come, with full numbers and no padding.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time
from decimal import Decimal
from typing import IO

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from harness.plural import counted
from warehouse.database import Connection, WarehouseError
from warehouse.display import NEVER_WRAPPED, plain, printable
from warehouse.options import QueryFormat

_CHUNK_ROWS = 1024


@dataclass(frozen=True)
class Answer:
    """Column names, and the rows in chunks, which are read as they are used."""

    names: Sequence[str]
    chunks: Iterator[Sequence[Row]]

    def selected(self, columns: Sequence[str]) -> Answer:
        """Return some of the columns, in the given order. Raises WarehouseError for one that is not there."""
        places = places_of(columns, self.names)
        return Answer(columns, ([[row[i] for i in places] for row in chunk] for chunk in self.chunks))


def places_of(columns: Sequence[str], names: Sequence[str]) -> list[int]:
    """Return the place of each of the columns among the names. Raises WarehouseError for one that is not there."""
    for column in columns:
        if column not in names:
            raise WarehouseError(f"the answer has no column {column!r}; it has: {', '.join(names)}")
    return [names.index(column) for column in columns]


def answer(connection: Connection, sql: str) -> Answer:
    """Run one statement that returns rows. Its first rows are computed now, the others as they are read.

    Raises WarehouseError and DatabaseError.
    """
    check_statement(connection, sql)
    result = connection.execute(sql)
    if result.description is None:
        raise WarehouseError("the SQL returns no rows")
    first = result.fetchmany(_CHUNK_ROWS)
    rest = iter(lambda: result.fetchmany(_CHUNK_ROWS), [])
    return Answer([column[0] for column in result.description], itertools.chain([first], rest))


def check_statement(connection: Connection, sql: str) -> None:
    """Raise WarehouseError unless the text is exactly one statement, and DatabaseError where it cannot be parsed."""
    statements = connection.extract_statements(sql)
    if not statements:  # only blanks or comments
        raise WarehouseError("the SQL is empty")
    if len(statements) > 1:
        raise WarehouseError(f"expected one SQL statement, not {len(statements)}")


def write(given: Answer, out: IO[str], output_format: QueryFormat, *, is_wide: bool = False) -> None:
    """Write the rows as a table, CSV or JSON. Output to a terminal is escaped; CSV and JSON in a file are exact.

    is_wide: align a table at any width, with every column and full numbers.
    """
    if output_format == "json":
        _write_json(given, out)
    elif output_format == "csv":
        _write_csv(given, out)
    elif is_wide or out.isatty():
        print_rows(given.names, [row for chunk in given.chunks for row in chunk], out, is_wide=is_wide)
    else:
        out.write("\t".join(map(printable, given.names)) + "\n")
        for chunk in given.chunks:
            out.writelines("\t".join(printable(full(value)) for value in row) + "\n" for row in chunk)


def _write_json(given: Answer, out: IO[str]) -> None:
    """Write a list of records, as `json.dumps` would, one by one."""
    keys, opening = distinct(given.names), "[\n  "
    for row in itertools.chain.from_iterable(given.chunks):
        record = dict(zip(keys, map(_plain_value, row), strict=True))
        text = json.dumps(record, indent=2, ensure_ascii=out.isatty())
        out.write(opening + text.replace("\n", "\n  "))
        opening = ",\n  "
    out.write("[]\n" if opening.startswith("[") else "\n]\n")


def _write_csv(given: Answer, out: IO[str]) -> None:
    for rows in itertools.chain([[given.names]], given.chunks):
        text = io.StringIO()
        lines = csv.writer(text, lineterminator="\n")
        lines.writerows(["" if value is None else _csv_value(value) for value in row] for row in rows)
        out.write(printable(text.getvalue(), keep="\n") if out.isatty() else text.getvalue())


def distinct(names: Sequence[str]) -> list[str]:
    """Return the names with a number appended to repeated ones, which would otherwise overwrite each other as keys."""
    keys: list[str] = []
    for name in names:
        variants = (name if i == 0 else f"{name}_{i}" for i in itertools.count())
        keys.append(next(key for key in variants if key not in keys))
    return keys


def _csv_value(value: object) -> object:
    return json.dumps(_plain_value(value), ensure_ascii=False) if isinstance(value, list | dict) else value


def _plain_value(value: object) -> object:
    """Return a value that JSON can hold; NaN and infinity become null."""
    if isinstance(value, Decimal):
        return float(value)
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


Row = Sequence[object]
NULL = "NULL"
_GAP = "  "
_FEW_ROWS = 2
"""Rows that are shown as blocks, a line per column, rather than without some of their columns."""
_SIGNIFICANT_DIGITS = 4
_LARGE = 1e15
"""Fractions from which on no decimal is known; they and what is not a number are shown as they are."""
_LONGEST_CONSTANT = 120
"""Characters of a value that is said once above the table because every row has it."""


@dataclass(frozen=True)
class _Column:
    place: int
    name: str
    cells: Sequence[str]
    is_number: bool
    header: Sequence[str]
    """Lines of the header."""
    width: int

    def least_width(self) -> int:
        """Return the width below which a word or the header would be folded."""
        words = max((cell_len(word) for cell in self.cells for word in cell.split()), default=0)
        return min(self.width, max(NEVER_WRAPPED, words, *map(cell_len, self.header)))


def print_rows(names: Sequence[str], rows: Sequence[Row], out: IO[str], *, is_wide: bool = False) -> None:
    """Print rows for a person; `is_wide`: every column with full numbers and one line per row, at any width."""
    columns = [_column(i, name, [row[i] for row in rows], is_wide) for i, name in enumerate(names)]
    console = Console(file=out)
    room = console.width
    if is_wide or _width(columns) <= room:
        _print(console, columns, out)
        return
    if not rows:
        console.print(plain(f"(no rows) {', '.join(names)}"))
        return
    candidates, fitting = columns, _fitted(columns, room)
    if fitting is None and len(rows) > _FEW_ROWS:
        candidates = _without_constant(console, columns)
        fitting = _fitted(candidates, room, may_drop=True)
    if fitting is None:
        _print_blocks(console, columns)
        return
    _print(console, fitting, out)
    shown = {column.place for column in fitting}
    if left_out := [column.name for column in candidates if column.place not in shown]:
        verb = "does" if len(left_out) == 1 else "do"
        text = f"{counted(len(left_out), 'column')} {verb} not fit: {', '.join(left_out)}"
        console.print(plain(f"{text} (--columns NAME,NAME chooses, --wide shows all)"))


def full(value: object) -> str:
    """Return a value as the text of a cell, with ten significant digits."""
    if value is None:
        return NULL
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def rounded(values: Sequence[object]) -> list[str]:
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


def _column(place: int, name: str, values: Sequence[object], is_wide: bool) -> _Column:
    values = [float(value) if isinstance(value, Decimal) else value for value in values]
    cells = [printable(text) for text in (map(full, values) if is_wide else rounded(values))]
    present = [value for value in values if value is not None]
    is_number = bool(present) and all(isinstance(v, int | float) and not isinstance(v, bool) for v in present)
    header = printable(name)
    return _Column(place, header, cells, is_number, [header], max(map(cell_len, (header, *cells))))


def _width(columns: Sequence[_Column]) -> int:
    return sum(column.width for column in columns) + len(_GAP) * (len(columns) - 1)


def _fitted(columns: Sequence[_Column], room: int, *, may_drop: bool = False) -> list[_Column] | None:
    """Return the columns with broken headers and wrapped text within `room`; None where they do not fit.

    may_drop: leave out columns that do not fit, from the left to the right; None only where fewer than two do.
    """
    broken = [_with_broken_header(column) for column in columns]
    kept: list[_Column] = []
    for column in broken:
        if sum(other.least_width() + len(_GAP) for other in kept) + column.least_width() <= room:
            kept.append(column)
        elif not may_drop:
            return None
    if len(kept) < min(2, len(columns)):
        return None
    widths, least = [column.width for column in kept], [column.least_width() for column in kept]
    for _ in range(_width(kept) - room):
        widest = max((i for i, width in enumerate(widths) if width > least[i]), key=widths.__getitem__)
        widths[widest] -= 1
    return [replace(column, width=width) for column, width in zip(kept, widths, strict=True)]


def _with_broken_header(column: _Column) -> _Column:
    """Return the column with its header broken behind underscores, as far as its cells are narrower."""
    parts = column.name.replace("_", "_\n").split("\n")
    room = max(map(cell_len, (*parts, *column.cells)))
    lines: list[str] = []
    for part in parts:
        if lines and cell_len(lines[-1] + part) <= room:
            lines[-1] += part
        else:
            lines.append(part)
    return replace(column, header=lines, width=room)


def _without_constant(console: Console, columns: Sequence[_Column]) -> list[_Column]:
    """Print the columns but the first that have one value in every row, and return the others."""
    constant = [
        column
        for column in columns[1:]
        if len(set(column.cells)) == 1 and cell_len(column.cells[0]) <= _LONGEST_CONSTANT
    ]
    said = ", ".join(f"{column.name} {column.cells[0]}" for column in constant if column.cells[0] != NULL)
    empty = ", ".join(column.name for column in constant if column.cells[0] == NULL)
    for opening, text in (("In every row", said), ("NULL in every row", empty)):
        if text:
            console.print(plain(f"{opening}: {text}"))
    return [column for column in columns if column not in constant]


def _print(console: Console, columns: Sequence[_Column], out: IO[str]) -> None:
    height = max((len(column.header) for column in columns), default=0)
    headers = [[*[""] * (height - len(column.header)), *column.header] for column in columns]
    for line in zip(*headers, strict=True):
        out.write(_line(line, columns))
    out.write(_GAP.join("─" * column.width for column in columns) + "\n")
    for cells in zip(*(column.cells for column in columns), strict=True):
        wrapped = [_wrapped(cell, column.width, console) for cell, column in zip(cells, columns, strict=True)]
        height = max(map(len, wrapped))
        for line in zip(*([*lines, *[""] * (height - len(lines))] for lines in wrapped), strict=True):
            out.write(_line(line, columns))


def _line(cells: Sequence[str], columns: Sequence[_Column]) -> str:
    padded = []
    for cell, column in zip(cells, columns, strict=True):
        blanks = " " * (column.width - cell_len(cell))
        padded.append(blanks + cell if column.is_number else cell + blanks)
    return _GAP.join(padded).rstrip() + "\n"


def _wrapped(cell: str, width: int, console: Console) -> list[str]:
    if cell_len(cell) <= width:
        return [cell]
    return [line.plain.rstrip() for line in Text(cell).wrap(console, width)]


def _print_blocks(console: Console, columns: Sequence[_Column]) -> None:
    names = max(cell_len(column.name) for column in columns)
    room = max(console.width - names - len(_GAP), 1)
    for cells in zip(*(column.cells for column in columns), strict=True):
        console.print()
        for column, cell in zip(columns, cells, strict=True):
            for i, line in enumerate(_wrapped(cell, room, console)):
                name = "" if i else column.name
                console.print(Text(name + " " * (names - cell_len(name)), style="bold") + _GAP + Text(line))
    console.print()
