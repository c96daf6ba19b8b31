"""A table of one's own on a terminal, and as Markdown, LaTeX and CSV. Nothing in a text acts as markup."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from typing import IO

from rich import box
from rich.console import Console
from rich.table import Table

from warehouse.display import plain, print_table, printable
from warehouse.formats import TableFormat
from warehouse.formatting import NOTHING, fixed
from warehouse.markup import aligned, latex, markdown
from warehouse.own_tables.metrics import METRICS
from warehouse.own_tables.table import Cell, OwnTable
from warehouse.papers.table import Ours

_COLUMN_NUMBERS = 4
"""Numbers in a row of LaTeX up to which the table fits one column of a two-column paper."""
_PAGE_NUMBERS = 8
"""Numbers up to which it fits the page; a wider one is made smaller."""
_INTERVALS = "In brackets: 95 % interval over problems."
_UNFINISHED = f"{NOTHING}: no run yet, or no such number of it."


def write(table: OwnTable, out: IO[str], shape: TableFormat, *, has_intervals: bool = True) -> None:
    """Write a table; CSV has every number in full with its interval, shares as fractions."""
    if shape == "csv":
        out.write(_csv(table))
    elif shape == "latex":
        out.write(_latex(table, has_intervals=has_intervals))
    elif shape == "markdown":
        out.write(_markdown(table, has_intervals=has_intervals))
    else:
        _print(table, out, has_intervals=has_intervals)


def _print(table: OwnTable, out: IO[str], *, has_intervals: bool) -> None:
    console = Console(file=out)
    grid = Table(box=box.SIMPLE_HEAD)
    for place, header in enumerate(_headers(table)):
        grid.add_column(plain(header, keep="\n"), justify="right" if place else "left", overflow="fold")
    for row in _rows(table, has_intervals=has_intervals):
        grid.add_row(*(plain(cell) for cell in row))
    print_table(grid, out)
    for line in _lines(table, has_intervals=has_intervals):
        console.print(plain(line), soft_wrap=not console.is_terminal)


def _markdown(table: OwnTable, *, has_intervals: bool) -> str:
    alignment = ["left", *("right" for _ in _places(table))]
    grid = aligned(_headers(table), _rows(table, has_intervals=has_intervals), "markdown", alignment)
    lines = "\n".join(f"- {markdown(line)}" for line in _lines(table, has_intervals=has_intervals))
    return f"{grid}\n\n{lines}\n"


def _headers(table: OwnTable) -> list[str]:
    return ["", *(f"{table.columns[dataset]} {METRICS[metric].header}" for dataset, metric in _places(table))]


def _places(table: OwnTable) -> list[tuple[str, str]]:
    """Return the dataset and the metric of each column of numbers."""
    return [(dataset, metric) for dataset in table.columns for metric in table.metrics]


def _rows(table: OwnTable, *, has_intervals: bool) -> list[list[str]]:
    found = []
    for row in table.rows:
        cells = [row]
        for dataset, metric in _places(table):
            cell = table.cells.get((row, dataset))
            value, interval = _value(cell, metric), _interval(cell, metric) if has_intervals else ""
            marks = "".join(f" [{number}]" for number in _marks(table, cell, metric))
            cells.append(f"{value}{f' ({interval})' if interval else ''}{marks}")
        found.append(cells)
    return found


def _lines(table: OwnTable, *, has_intervals: bool) -> list[str]:
    """Return what stands under the table: the notes, then how to read it."""
    notes = [f"[{number}] {note}" for number, note in enumerate(table.notes, 1)]
    return [*notes, " ".join(_about(table, has_intervals=has_intervals))]


def _about(table: OwnTable, *, has_intervals: bool) -> list[str]:
    return [*table.about, *([_INTERVALS.replace("brackets", "parentheses")] if has_intervals else []), _UNFINISHED]


def _number(cell: Cell | None, metric: str) -> Ours | None:
    return None if cell is None else cell.numbers.get(metric)


def _value(cell: Cell | None, metric: str) -> str:
    number, of = _number(cell, metric), METRICS[metric]
    return NOTHING if number is None else f"{fixed(number.value, of.digits, of.factor)}{of.suffix}"


def _interval(cell: Cell | None, metric: str) -> str:
    number, of = _number(cell, metric), METRICS[metric]
    if number is None or number.low is None or number.high is None:
        return ""
    between = " to " if number.low < 0 else "–"
    return f"{fixed(number.low, of.digits, of.factor)}{between}{fixed(number.high, of.digits, of.factor)}"


def _marks(table: OwnTable, cell: Cell | None, metric: str) -> Sequence[int]:
    """Return the numbers of the notes on a run, which stand at its first number."""
    return cell.notes if cell is not None and metric == table.metrics[0] else ()


def _csv(table: OwnTable) -> str:
    names = ["row", "draft", "target"]
    for dataset in table.columns:
        names += [f"{dataset} {name}" for name in ("run_id", "num_finished", "num_samples", "num_ungraded")]
        names += [f"{dataset} {metric}{end}" for metric in table.metrics for end in ("", " low_95", " high_95")]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([printable(name) for name in names])
    for row in table.rows:
        of_row = [cell for dataset in table.columns if (cell := table.cells.get((row, dataset)))]
        spec = of_row[0].run.prepared.plan.spec
        values: list[object] = [row, spec.draft and spec.draft.name, spec.target and spec.target.name]
        for dataset in table.columns:
            cell = table.cells.get((row, dataset))
            values += [None] * 4 if cell is None else [cell.run_id, cell.finished, cell.run.num_samples, cell.ungraded]
            for metric in table.metrics:
                number = _number(cell, metric)
                values += [None] * 3 if number is None else [number.value, number.low, number.high]
        writer.writerow([printable(value) if isinstance(value, str) else value for value in values])
    return text.getvalue()


def _latex(table: OwnTable, *, has_intervals: bool) -> str:
    places = _places(table)
    star, is_wide = "*" if len(places) > _COLUMN_NUMBERS else "", len(places) > _PAGE_NUMBERS
    caption = [table.name + ".", *_about(table, has_intervals=has_intervals)]
    lines = [
        f"% needs \\usepackage{{booktabs{',graphicx' if is_wide else ''}}}",
        f"\\begin{{table{star}}}[t]",
        "\\centering",
        "\\small\\setlength{\\tabcolsep}{3pt}",
        f"\\caption{{{latex(' '.join(caption))}}}",
        f"\\label{{tab:{re.sub('[^A-Za-z0-9]+', '-', table.name).strip('-') or 'suite'}}}",
        "\\smallskip" + ("\\resizebox{\\linewidth}{!}{%" if is_wide else ""),
        f"\\begin{{tabular}}{{@{{}}l{'r' * len(places)}@{{}}}}",
        "\\toprule",
        *_latex_head(table),
        "\\midrule",
    ]
    for number, row in enumerate(table.rows):
        cells = [(table.cells.get((row, dataset)), metric) for dataset, metric in places]
        lines += ["\\addlinespace[2pt]"] if number and has_intervals else []
        lines.append(_latex_row(row, [_latex_value(table, cell, metric) for cell, metric in cells]))
        intervals = [_interval(cell, metric) if has_intervals else "" for cell, metric in cells]
        if any(intervals):
            small = [f"{{\\scriptsize ({latex(interval)})}}" if interval else "" for interval in intervals]
            lines.append(_latex_row("", small))
    lines += ["\\bottomrule", "\\end{tabular}" + ("}" if is_wide else "")]
    lines += [
        f"\\par\\smallskip\\parbox{{\\linewidth}}{{\\footnotesize $^{{{number}}}$ {latex(note)}}}"
        for number, note in enumerate(table.notes, 1)
    ]
    return "\n".join([*lines, f"\\end{{table{star}}}"]) + "\n"


def _latex_head(table: OwnTable) -> list[str]:
    """Return the datasets above the metrics, or in one line where there is one metric or one dataset."""
    headers = [latex(METRICS[metric].header) for _, metric in _places(table)]
    width = len(table.metrics)
    if width == 1:
        return [_latex_row("", [latex(heading) for heading in table.columns.values()])]
    groups = [f"\\multicolumn{{{width}}}{{c}}{{{latex(heading)}}}" for heading in table.columns.values()]
    starts = range(2, 2 + width * len(groups), width)
    rules = " ".join(f"\\cmidrule(lr){{{start}-{start + width - 1}}}" for start in starts)
    return [_latex_row("", groups), rules, _latex_row("", headers)]


def _latex_row(label: str, cells: Sequence[str]) -> str:
    # After a rule or the end of a line, [ and * would be an argument.
    return f"{{}}{' & '.join([latex(label), *cells])} \\\\"


def _latex_value(table: OwnTable, cell: Cell | None, metric: str) -> str:
    marks = ",".join(map(str, _marks(table, cell, metric)))
    return latex(_value(cell, metric)) + (f"$^{{{marks}}}$" if marks else "")
