"""Tables and their layout on a terminal.

Text from models and other users is untrusted: it must not move the cursor, change colors or hide text. All text is
escaped by `printable` when it is written: here, in `warehouse.report.tables` for files, and in harness.cli.command for
other output. Nothing is parsed as markup.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from harness.cli.number_format import NOTHING, number

_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
"""Unicode categories shown as escapes: control, format (such as text direction), surrogate, private use, line and
paragraph separators."""
_NO_CHARACTERS = {"\ufffe", "\uffff"}
"""Code points that are invalid in documents such as XML."""
NEVER_WRAPPED = 24
"""Maximum length in characters of cells that are never wrapped, such as numbers, intervals and names."""
_UNLIMITED = 1_000_000
_GAP = 2
_NUMBER = re.compile(r"[+−]?[\d.,]+×?|–")

Cell = str | float | None
"""A string, a number (shown with at least three significant digits), or None (shown as a dash)."""


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str
    is_right: bool | None = None
    """Whether cells are right-aligned; None: if all cells are numbers."""
    least: int = NEVER_WRAPPED
    """Minimum width in characters when cells are wrapped on a narrow terminal."""
    is_folded: bool = False
    """Whether words can be split when wrapping; for names that users do not copy."""
    style: str = ""
    styles: Mapping[str, str] = field(default_factory=dict)
    """Cell styles by cell text."""


@dataclass(frozen=True)
class Table:
    """A table with explanatory notes."""

    columns: Sequence[Column]
    rows: Iterable[Sequence[Cell]]
    """Large results may be iterators, which are read only once."""
    notes: Sequence[str] = ()
    title: str = ""

    @property
    def texts(self) -> list[list[str]]:
        """The rows as displayed text."""
        return [[shown(cell) for cell in row] for row in self.rows]

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    def alignment(self, texts: Sequence[Sequence[str]]) -> list[bool]:
        """Return for each column whether it is right-aligned. texts: the rows as displayed."""
        return [
            bool(texts) and all(_NUMBER.fullmatch(row[place]) for row in texts)
            if column.is_right is None
            else column.is_right
            for place, column in enumerate(self.columns)
        ]


@dataclass(frozen=True)
class Line:
    """A line above or below a table."""

    text: str
    style: str = ""
    """Style for rich, used for headings and warnings."""
    is_item: bool = False


Page = Iterable[Line | Table]


def shown(cell: Cell) -> str:
    """Return a cell as text."""
    if cell is None:
        return NOTHING
    return number(cell) if isinstance(cell, float) else str(cell)


def exact(stream: IO[str]) -> IO[str]:
    """Return the stream for CSV and JSON: escaped on a terminal, otherwise unchanged for programs."""
    return stream if stream.isatty() else getattr(stream, "rich_proxied_file", stream)


def printable(text: str, keep: str = "") -> str:
    """Escape all characters that could act on a terminal, except those in `keep`."""
    hidden = {c for c in set(text).difference(keep) if unicodedata.category(c) in _HIDDEN or c in _NO_CHARACTERS}
    return text.translate({ord(c): c.encode("unicode_escape").decode("ascii") for c in hidden})


def plain(text: str, style: str = "", keep: str = "") -> Text:
    """Return `printable` text as an object that rich never parses as markup."""
    return Text(printable(text, keep), style=style)


def terminal(**options: Any) -> Console:
    """Return a rich console that escapes untrusted text; markup is off by default."""
    return _Terminal(**{"highlight": False, "markup": False, **options})


class _Terminal(Console):
    @property
    def file(self) -> IO[str]:
        """The unescaped stream for rich, also while a status display replaces stdout."""
        stream = super().file
        found: IO[str] = getattr(stream, "rich_proxied_file", stream)
        return found

    @file.setter
    def file(self, stream: IO[str]) -> None:
        self._file = stream

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text, "\t\n"), **options)


class Screen:
    """Print lines and tables, wrapped to the width of a terminal; output to pipes and files is not wrapped.

    is_fitted: also wrap piped output to COLUMNS, if set. is_whole: never wrap, even on a terminal.
    """

    def __init__(self, out: IO[str] | Console, *, is_fitted: bool = False, is_whole: bool = False) -> None:
        self._console = out if isinstance(out, Console) else Console(file=out, highlight=False)
        asks_for_width = is_fitted and os.environ.get("COLUMNS", "").isdecimal()
        self._is_fitted = not is_whole and (self._console.is_terminal or asks_for_width)
        self._is_ruled = is_whole or self._console.is_terminal

    def show(self, page: Page) -> None:
        for part in page:
            if isinstance(part, Table):
                self.table(part)
            elif part.is_item:
                self._item(part)
            else:
                self.say(part.text, part.style)

    def say(self, line: str, style: str = "") -> None:
        """Print a line, wrapped between words if output is fitted to a width."""
        self._console.print(plain(line, style), soft_wrap=not self._is_fitted)

    def _item(self, line: Line) -> None:
        """Print an indented line with a hanging indent."""
        room = max(self._console.width - 4, 1) if self._is_fitted else _UNLIMITED
        for index, part in enumerate(plain(line.text, line.style).wrap(self._console, room)):
            part.rstrip()
            self._console.print(plain("    " if index else "  ") + part, soft_wrap=True)

    def table(self, table: Table) -> None:
        """Print a table with its title and notes, without truncating words.

        If the table is too wide for the terminal, wide columns are wrapped between words. If it still does not fit,
        each row is printed as a block with one line per column.
        """
        if table.title:
            self._console.print()
            self.say(table.title, "bold")
        texts = table.texts
        widths, least = self._widths(table, texts)
        excess = _total(widths) - self._console.width if self._is_fitted else 0
        if excess > _total(widths) - _total(least):
            self._blocks(table, texts)
        else:
            for _ in range(excess):
                widest = max((i for i, width in enumerate(widths) if width > least[i]), key=widths.__getitem__)
                widths[widest] -= 1
            self._grid(table, texts, widths)
        for note in table.notes:
            self.say(note)

    def fitting(self, table: Table) -> list[int]:
        """Return the indices of the columns to show: from the left, each that still fits; all without a width limit."""
        _, least = self._widths(table, table.texts)
        kept: list[int] = []
        for place in range(len(least)):
            if not self._is_fitted or _total([least[i] for i in (*kept, place)]) <= self._console.width:
                kept.append(place)
        return kept

    def _widths(self, table: Table, texts: Sequence[Sequence[str]]) -> tuple[list[int], list[int]]:
        """Return the preferred and minimum column widths."""
        widths, least = [], []
        for place, column in enumerate(table.columns):
            lines = [line for row in texts for line in printable(row[place], "\n").split("\n")]
            words = (1,) if column.is_folded else (cell_len(word) for line in lines for word in line.split())
            widest = max(map(cell_len, lines), default=0)
            header = printable(column.name, "\n")
            parts = map(cell_len, re.split(r"(?<=_)|\s+", header))
            widths.append(max(widest, *map(cell_len, header.split("\n")), 1))
            least.append(min(widths[-1], max(min(widest, column.least), *parts, *words, 1)))
        return widths, least

    def _grid(self, table: Table, texts: Sequence[Sequence[str]], widths: Sequence[int]) -> None:
        grid = Grid(
            box=box.SIMPLE_HEAD if self._is_ruled else None,  # the divider takes one character of the gap
            padding=(0, _GAP - self._is_ruled, 0, 0),
            pad_edge=False,
            show_edge=False,
            show_header=any(table.names),
        )
        sides = table.alignment(texts)
        for column, width, is_right in zip(table.columns, widths, sides, strict=True):
            header = Text("\n".join(_broken(printable(column.name, "\n"), width)))
            grid.add_column(header, justify="right" if is_right else "left", width=width, overflow="fold")
        for row in texts:
            grid.add_row(*map(_styled, table.columns, row))
        options = self._console.options.update(width=max(_total(widths), 1))
        for segments in self._console.render_lines(grid, options, pad=False):
            line = Text.assemble(*((segment.text, segment.style or "") for segment in segments))
            line.rstrip()
            self._console.print(line, soft_wrap=True)

    def _blocks(self, table: Table, texts: Sequence[Sequence[str]]) -> None:
        names = [printable(name, "\n").replace("\n", " ").strip() for name in table.names]
        margin = max(map(cell_len, names)) + _GAP
        for row in texts:
            self._console.print()
            for column, name, cell in zip(table.columns, names, row, strict=True):
                lines = _styled(column, cell).wrap(self._console, max(self._console.width - margin, 1)) or [Text()]
                for index, line in enumerate(lines):
                    line.rstrip()
                    blanks = " " * (margin - (0 if index else cell_len(name)))
                    opening = Text("" if index else name, style="bold") + Text(blanks)
                    self._console.print(opening + line, soft_wrap=True)
        self._console.print(plain("" if texts else f"(no rows) {', '.join(names)}"))


def _styled(column: Column, cell: str) -> Text:
    return plain(cell, column.styles.get(cell, column.style), keep="\n")


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _broken(header: str, width: int) -> Iterator[str]:
    """Yield the lines of a header, broken at blanks and after underscores."""
    for line in header.split("\n"):
        room = ""
        for part in re.findall(r"[^ _]*[ _]?", line):
            if room and cell_len((room + part).rstrip()) > width:
                yield room.rstrip()
                room = ""
            room += part
        yield room.rstrip()
