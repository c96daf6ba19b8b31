"""A suite as a table in the paper's shape: ours with its interval, published, and whether the two compare."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from warehouse.papers.conditions import TIMES_ONLY
from warehouse.papers.suite import Metric, Row, Suite

NOTHING = "–"


@dataclass(frozen=True, slots=True)
class Ours:
    """A measured value with its 95 % interval."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Cell:
    """What stands in the table for one metric of one run."""

    ours: Ours | None
    published: float | None


@dataclass(frozen=True, slots=True)
class Entry:
    """One row's run in one column."""

    run_id: str | None
    cells: Mapping[str, Cell]
    reasons: Sequence[str]
    """Why ours cannot be compared with what is published."""
    choices: Sequence[str] = ()
    """What was chosen for this run where the paper states nothing."""


def show(suite: Suite, entries: Mapping[tuple[str, str], Entry], columns: Collection[str], console: Console) -> None:
    """Print the table: one block per column of the paper, or one block in all where the paper has one row."""
    console.print(
        f"{suite.name}: {suite.title} ({suite.paper}, {suite.version}, {suite.place})", style="bold", soft_wrap=True
    )
    console.print(f"Published on {suite.devices}, {suite.engine}. Ours [95 % interval]; below it the published value.")
    notes: list[str] = []
    shown = {key: column for key, column in suite.columns.items() if key in columns}
    if len(suite.rows) == 1:
        lines = [(column.label, suite.rows[0], entries[suite.rows[0].label, key]) for key, column in shown.items()]
        _block(suite, suite.rows[0].label, lines, notes, console)
    else:
        for key, column in shown.items():
            _block(
                suite, column.label, [(row.label, row, entries[row.label, key]) for row in suite.rows], notes, console
            )
    for number, note in enumerate(notes, 1):
        console.print(Text(f"[{number}] {note}"), soft_wrap=True)
    about(suite, console)


def about(suite: Suite, console: Console) -> None:
    """Print what must be known beside the published values."""
    if suite.no_numbers:
        console.print(Text(f"No value is published: {suite.no_numbers}."), soft_wrap=True)
    if suite.only_graphics:
        console.print(
            "The paper shows this as graphics: no value is published but those that its prose states.", soft_wrap=True
        )
    if suite.unstated:
        left_out = "; ".join(unstated.what for unstated in suite.unstated)
        console.print(Text(f"The paper does not state: {left_out}."), soft_wrap=True)
    for line in suite.stated:
        console.print(Text(f"Stated: {line}."), soft_wrap=True)
    for what in sorted({m.awaits for m in suite.metrics.values() if m.awaits}):
        console.print(f"Not measured yet, because this harness lacks {what}.", soft_wrap=True)


def _block(
    suite: Suite, title: str, lines: Sequence[tuple[str, Row, Entry]], notes: list[str], console: Console
) -> None:
    table = Table(title=Text(title), box=box.SIMPLE_HEAD, title_justify="left", show_lines=False)
    table.add_column("")
    for metric in suite.metrics.values():
        table.add_column(metric.label, justify="right", overflow="fold")
    table.add_column("comparable")
    for label, row, entry in lines:
        cells = [_cell(entry.cells[key], metric) for key, metric in suite.metrics.items()]
        table.add_row(Text(label), *map(Text, cells), Text(_comparable(row, entry, notes)))
    console.print(table)


def _comparable(row: Row, entry: Entry, notes: list[str]) -> str:
    if entry.run_id is None:
        return f"awaits {row.awaits}" if row.awaits else "no run yet"
    if all(cell.published is None for cell in entry.cells.values()):
        return f"{NOTHING} (nothing published)"
    ours = f"our choice, because the paper does not state it: {', '.join(entry.choices)}"
    marks = [_mark(ours, notes)] if entry.choices else []
    if not entry.reasons:
        return " ".join(["yes, as far as stated", *marks])
    marks.insert(0, _mark(f"not comparable, because: {'; '.join(entry.reasons)}", notes))
    against_times_alone = all(reason.startswith(TIMES_ONLY) for reason in entry.reasons)
    return " ".join(["all but the times" if against_times_alone else "no", *marks])


def _mark(note: str, notes: list[str]) -> str:
    """Return the number of the note in brackets; it joins the notes if it is not among them."""
    if note not in notes:
        notes.append(note)
    return f"[{notes.index(note) + 1}]"


def _cell(cell: Cell, metric: Metric) -> str:
    def number(value: float, digits: int = metric.digits) -> str:
        return f"{value:,.{digits}f}"

    ours = NOTHING
    if cell.ours is not None:
        ours = number(cell.ours.value)
        if cell.ours.low is not None and cell.ours.high is not None:
            ours += f" [{number(cell.ours.low)}, {number(cell.ours.high)}]"
    if cell.published is None:
        return f"{ours}\n{NOTHING}"
    printed = len(repr(cell.published).rpartition(".")[2]) if "." in repr(cell.published) else 0
    return f"{ours}\n{number(cell.published, max(metric.digits, printed))}"
