"""Rows of any query on a terminal: rounded numbers, and no more columns than it has room for.

What does not fit is done without in this order: headers on one line, text on one line, columns that have one value in
every row (said once above the table), and finally the columns that are still too wide, which are named below it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import IO

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from harness.plural import counted
from warehouse.display import NEVER_WRAPPED, plain, printable

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
