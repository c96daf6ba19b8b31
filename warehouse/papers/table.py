"""A suite as a table in the paper's shape: ours with its interval, published, and whether the two compare."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness import prompt_file
from warehouse.papers.conditions import TIMES_ONLY
from warehouse.papers.suite import Metric, Row, Suite
from warehouse.papers.vocabulary import OF_REWARDS, TIMES

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
    reasons: Mapping[str, Sequence[str]]
    """Why ours cannot be compared with what is published, by the metric for which a value is."""
    choices: Sequence[str] = ()
    """What was chosen for this run where the paper states nothing."""
    timed: tuple[int, int, int] | None = None
    """How many of its samples were timed one at a time, were to be timed, and are there; None: its times are of all."""


def show(suite: Suite, entries: Mapping[tuple[str, str], Entry], columns: Collection[str], console: Console) -> None:
    """Print the table: one block per column of the paper, or one block in all where the paper has one row."""
    console.print(
        f"{suite.name}: {suite.title} ({suite.paper}, {suite.version}, {suite.place})",
        style="bold",
        soft_wrap=not console.is_terminal,
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
        console.print(Text(f"[{number}] {note}"), soft_wrap=not console.is_terminal)
    _about_timing(suite, entries, console)
    about(suite, console)


def about(suite: Suite, console: Console) -> None:
    """Print what must be known beside the published values."""
    if suite.no_numbers:
        console.print(Text(f"No value is published: {suite.no_numbers}."), soft_wrap=not console.is_terminal)
    if suite.only_graphics:
        console.print(
            "The paper shows this as graphics: no value is published but those that its prose states.",
            soft_wrap=not console.is_terminal,
        )
    if suite.unstated:
        left_out = "; ".join(unstated.what for unstated in suite.unstated)
        console.print(Text(f"The paper does not state: {left_out}."), soft_wrap=not console.is_terminal)
    for covered, words in (("thought", "of the thought alone"), ("answer", "of the answer alone")):
        rows = "; ".join(row.label for row in suite.rows if row.includes == covered)
        if rows:
            console.print(
                Text(f"Published times and tokens are {words}, and so are ours: {rows}."),
                soft_wrap=not console.is_terminal,
            )
    _about_prompts(suite, console)
    for line in suite.stated:
        console.print(Text(f"Stated: {line}."), soft_wrap=not console.is_terminal)
    if any(metric.measure in OF_REWARDS for metric in suite.metrics.values()):
        console.print("Values of a process reward model need its scores: python -m jobs score RUN --model MODEL.")
    for what in sorted({m.awaits for m in suite.metrics.values() if m.awaits}):
        console.print(f"Not measured yet, because this harness lacks {what}.", soft_wrap=not console.is_terminal)


def _about_timing(suite: Suite, entries: Mapping[tuple[str, str], Entry], console: Console) -> None:
    """Say which times are estimates from a sample of samples."""
    has_times = any(metric.measure in TIMES for metric in suite.metrics.values())
    numbers = sorted({entry.timed for entry in entries.values() if entry.timed is not None})
    if not (has_times and numbers):
        return
    in_words = ", ".join(f"{timed:,} of {whole:,}" for timed, _, whole in numbers)
    labels = [metric.label for metric in suite.metrics.values() if metric.measure == "speed_up"]
    needs = f" {', '.join(labels)}: needs a time of every problem (--every-sample-alone)." if labels else ""
    console.print(
        Text(
            f"Times are of one sample in flight, estimated from a sample of samples ({in_words} timed alone in a run); "
            f"intervals cover the choice of the problems and of the timed samples.{needs}"
        ),
        soft_wrap=not console.is_terminal,
    )


def _about_prompts(suite: Suite, console: Console) -> None:
    """Print where the paper's prompts are, and the hashes that a file with them has."""
    told = prompt_file.published().get(suite.paper)
    if told is None:
        return
    hashes = ", ".join(f"{piece} {digest}" for piece, digest in told.pieces.items())
    console.print(
        Text(
            f"Prompts: {told.source}. A run counts with a file for --prompts that has these hashes, as far as its "
            f"method uses them: {hashes} (python -m harness.launch --list prompts --prompts FILE prints a file's)."
        ),
        soft_wrap=not console.is_terminal,
    )


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
        table.add_row(Text(label), *map(Text, cells), Text(_comparable(suite, row, entry, notes)))
    console.print(table)


def _comparable(suite: Suite, row: Row, entry: Entry, notes: list[str]) -> str:
    if entry.run_id is None:
        return f"awaits {row.awaits}" if row.awaits else "no run yet"
    if all(cell.published is None for cell in entry.cells.values()):
        return f"{NOTHING} (nothing published)"
    ours = f"our choice, because the paper does not state it: {', '.join(entry.choices)}"
    marks = [_mark(ours, notes)] if entry.choices else []
    against = list(dict.fromkeys(reason for reasons in entry.reasons.values() for reason in reasons))
    if not against:
        return " ".join(["yes, as far as stated", *marks])
    in_words = "; ".join(_with_metrics(suite, entry, reason) for reason in against)
    marks.insert(0, _mark(f"not comparable, because: {in_words}", notes))
    return " ".join([_not_all(suite, entry, against), *marks])


def _with_metrics(suite: Suite, entry: Entry, reason: str) -> str:
    """Return the reason, behind the names of the metrics if it does not hold against all that are published."""
    against = [name for name, reasons in entry.reasons.items() if reason in reasons]
    if len(against) == len(entry.reasons) or reason.startswith(TIMES_ONLY):
        return reason
    return f"for {', '.join(suite.metrics[name].label for name in against)}: {reason}"


def _not_all(suite: Suite, entry: Entry, against: Sequence[str]) -> str:
    """Return which of the published values ours may be read beside, in the fewest words."""
    if all(entry.reasons.values()):
        return "no"
    if all(reason.startswith(TIMES_ONLY) for reason in against):
        return "all but the times"
    return "all but " + ", ".join(suite.metrics[name].label for name, reasons in entry.reasons.items() if reasons)


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
