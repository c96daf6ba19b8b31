"""A suite's table: rows are methods, columns data sets, and each cell has our numbers, with published ones beside them.

On a terminal, and as Markdown, LaTeX and CSV. Nothing in a text acts as markup.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO

from harness.cli.number_format import MINUS, NOTHING
from harness.cli.screen import Column, Line, Page, Screen, Table
from warehouse.measured import Measured
from warehouse.options import TableFormat
from warehouse.tables import LATEX_NEEDS, latex, markdown, write_csv

_COLUMN_NUMBERS = 2
"""Numbers in a row of LaTeX up to which the table fits one column of a two-column paper."""
_INTERVALS = "In parentheses: 95 % interval over problems."
_UNFINISHED = f"{NOTHING}: no run yet, or no such number of it."


@dataclass(frozen=True)
class Heading:
    """One number of every cell, as it is shown."""

    label: str
    digits: int
    is_percent: bool = False
    """Whether the number is a fraction that is shown in percent, or in percentage points."""
    suffix: str = ""

    def shown(self, value: float, digits: int | None = None) -> str:
        """Return a value as text, without its suffix."""
        factor = 100.0 if self.is_percent else 1.0
        return f"{factor * value:,.{self.digits if digits is None else digits}f}".replace("-", MINUS)


@dataclass(frozen=True)
class Cell:
    """One run in the table."""

    run_id: str | None
    """The run's id in the warehouse; None: a published table has no run here yet."""
    numbers: Mapping[str, Measured | None]
    """Ours by metric, as fractions where shown in percent; empty if the warehouse lacks the run."""
    published: Mapping[str, float] = field(default_factory=dict)
    """What a paper prints, by metric."""
    notes: Sequence[int] = ()
    """Numbers of the notes on this run, from 1."""
    comparable: str = ""
    """Whether ours may be read beside what is published, in a few words."""
    num_finished: int = 0
    """Samples that have ended, by the warehouse, or by the run folder where the warehouse lacks the run."""
    num_samples: int = 0
    num_ungraded: int | None = None
    """Samples that have ended and are not graded."""


@dataclass(frozen=True)
class SuiteTable:
    """The runs of a suite, laid out in rows and columns."""

    name: str
    head: Sequence[str]
    """Lines above the table."""
    rows: Mapping[str, tuple[str | None, str | None]]
    """The draft and the target of each row."""
    columns: Mapping[str, str]
    """The headings by data set, or by column of a published table."""
    metrics: Mapping[str, Heading]
    cells: Mapping[tuple[str, str], Cell]
    """The cells by row and column. A row may lack a column."""
    notes: Sequence[str]
    """What limits the validity of the numbers, or keeps them from being compared."""
    about: Sequence[str]
    """How to read the table, in paragraphs."""
    is_published: bool = False
    """Whether the cells have published values beside ours."""


def write(table: SuiteTable, out: IO[str], shape: TableFormat, *, has_intervals: bool = True) -> None:
    """Write a table; CSV has every number in full with its interval, shares as fractions."""
    if shape == "csv":
        write_csv(_values(table), out)
    elif shape == "latex":
        out.write(_latex(table, has_intervals=has_intervals))
    elif shape == "markdown":
        out.write(markdown(_page(table, "; published ", has_intervals=has_intervals)))
    else:
        Screen(out).show(_page(table, "\n", has_intervals=has_intervals))


def _page(table: SuiteTable, between: str, *, has_intervals: bool) -> Page:
    signs = _signs(has_intervals=has_intervals)
    return [
        *(Line(line, "bold") for line in table.head),
        *_blocks(table, between, has_intervals=has_intervals),
        *map(Line, [*_notes(table), *table.about[:-1], " ".join([*table.about[-1:], *signs])]),
    ]


def _blocks(table: SuiteTable, between: str, *, has_intervals: bool) -> list[Table]:
    """Return all in one block; with published values a block for each column, or for the only row.

    between: what stands between a number of ours and the published one.
    """

    def numbers(cell: Cell | None) -> list[str]:
        return [_number(table, cell, metric, between, has_intervals) for metric in table.metrics]

    labels = [heading.label for heading in table.metrics.values()]
    if not table.is_published:
        headers = ["", *(f"{heading} {label}" for heading in table.columns.values() for label in labels)]
        rows = [
            [row, *(text for column in table.columns for text in numbers(table.cells.get((row, column))))]
            for row in table.rows
        ]
        return [_block("", headers, rows)]
    by_title: dict[str, list[tuple[str, Cell]]] = {}
    for column, heading in table.columns.items():
        for row in table.rows:
            title, label = (row, heading) if len(table.rows) == 1 else (heading, row)
            by_title.setdefault(title, []).append((label, table.cells[row, column]))
    return [
        _block(
            title,
            ["", *labels, "comparable"],
            [[label, *numbers(cell), f"{cell.comparable}{_marks(cell)}"] for label, cell in lines],
        )
        for title, lines in by_title.items()
    ]


def _block(title: str, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    columns = [Column(name, is_right=bool(place)) for place, name in enumerate(headers)]
    return Table(columns, rows, title=title)


def _marks(cell: Cell) -> str:
    return "".join(f" [{number}]" for number in cell.notes)


def _notes(table: SuiteTable) -> list[str]:
    return [f"[{number}] {note}" for number, note in enumerate(table.notes, 1)]


def _signs(*, has_intervals: bool) -> list[str]:
    return [*([_INTERVALS] if has_intervals else []), _UNFINISHED]


def _number(table: SuiteTable, cell: Cell | None, metric: str, between: str, has_intervals: bool) -> str:
    """Return a number of a cell with its interval, and with the marks of the run where no column is left for these."""
    value, interval = _value(table, cell, metric), _interval(table, cell, metric) if has_intervals else ""
    text = f"{value} ({interval})" if interval else value
    if table.is_published:
        return f"{text}{between}{_published(table, cell, metric)}"
    return text + (_marks(cell) if cell is not None and metric == next(iter(table.metrics)) else "")


def _value(table: SuiteTable, cell: Cell | None, metric: str) -> str:
    number, heading = (cell.numbers.get(metric) if cell else None), table.metrics[metric]
    return f"{heading.shown(number.value)}{heading.suffix}" if number else NOTHING


def _interval(table: SuiteTable, cell: Cell | None, metric: str) -> str:
    number, heading = (cell.numbers.get(metric) if cell else None), table.metrics[metric]
    if number is None or number.low is None or number.high is None:
        return ""
    return f"{heading.shown(number.low)}{' to ' if number.low < 0 else '–'}{heading.shown(number.high)}"


def _published(table: SuiteTable, cell: Cell | None, metric: str) -> str:
    """Return a published value with as many decimals as it is printed with, and no fewer than ours."""
    value, heading = (cell.published.get(metric) if cell else None), table.metrics[metric]
    if value is None:
        return NOTHING
    printed = len(repr(value).rpartition(".")[2]) if "." in repr(value) else 0
    return heading.shown(value, max(heading.digits, printed))


def _values(table: SuiteTable) -> Table:
    """Return every number in full."""
    names = ["row", "draft", "target"]
    ends = ("", " low_95", " high_95", *([" published"] if table.is_published else []))
    for column in table.columns:
        names += [f"{column} {name}" for name in ("run_id", "num_finished", "num_samples", "num_ungraded")]
        names += [f"{column} {metric}{end}" for metric in table.metrics for end in ends]
    rows = []
    for row, models in table.rows.items():
        values: list[str | float | None] = [row, *models]
        for column in table.columns:
            cell = table.cells.get((row, column)) or Cell(None, {})
            told = (cell.run_id, cell.num_finished, cell.num_samples, cell.num_ungraded)
            values += told if cell.num_samples else [None] * 4
            for metric in table.metrics:
                number = cell.numbers.get(metric)
                values += [None] * 3 if number is None else [number.value, number.low, number.high]
                values += [cell.published.get(metric)] if table.is_published else []
        rows.append(values)
    return Table([Column(name) for name in names], rows)


def _latex(table: SuiteTable, *, has_intervals: bool) -> str:
    blocks = _blocks(table, "; published ", has_intervals=has_intervals)
    caption = [*(table.head or [f"{table.name}."]), *table.about, *_signs(has_intervals=has_intervals)]
    is_wide = max(len(block.columns) for block in blocks) > _COLUMN_NUMBERS + 1
    text = latex(blocks, " ".join(caption), table.name, notes=_notes(table), is_wide=is_wide)
    return f"% {LATEX_NEEDS}\n{text}\n"
