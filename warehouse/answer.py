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
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import IO

from warehouse.database import Connection, WarehouseError
from warehouse.display import printable
from warehouse.formats import QueryFormat
from warehouse.terminal_rows import Row, full, print_rows

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
