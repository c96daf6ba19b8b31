"""Tables as Markdown, LaTeX, CSV and JSON; for terminals, see `harness.cli.screen`.

Text is untrusted and escaped: it cannot act as markup or as a spreadsheet formula.
"""

from __future__ import annotations

import csv
import html
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from itertools import chain, count
from typing import IO, Any

from rich.cells import cell_len

from harness.cli.screen import Column, Line, Page, Table, exact, printable

_MARKDOWN = re.compile(r"([\\`*_{}\[\]|#~$])")
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "×": r"\(\times\)",
    "→": r"\(\to\)",
    "−": r"\(-\)",
    "±": r"\(\pm\)",
    "≥": r"\(\ge\)",
    "✔": r"\(\checkmark\)",
    "–": "--",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}
LATEX_NEEDS = "needs \\usepackage{booktabs,graphicx}"
_FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n")
"""Prefixes that make a spreadsheet evaluate a cell."""
_NUMBER_TEXT = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")


def of_records(records: Sequence[Mapping[str, Any]]) -> Table:
    """Return records with equal keys (at least one record) as a table."""
    return Table([Column(name) for name in records[0]], [list(record.values()) for record in records])


def markdown_text(text: str) -> str:
    """Escape text for Markdown, including HTML."""
    return _MARKDOWN.sub(r"\\\1", html.escape(printable(text), quote=False))


def markdown(page: Page) -> str:
    """Return lines and tables as Markdown; titles become headings, and styled lines are bold."""
    text, is_list = "", False
    for part in page:
        blocks = [part] if isinstance(part, Line) else _markdown_blocks(part)
        for block in blocks:
            is_item = isinstance(block, Line) and block.is_item
            text += ("\n" if is_item and is_list else "\n\n") if text else ""
            text += block if isinstance(block, str) else _markdown_line(block)
            is_list = is_item
    return text + "\n"


def _markdown_line(line: Line) -> str:
    text = f"**{markdown_text(line.text)}**" if line.style else markdown_text(line.text)
    return f"- {text}" if line.is_item else text


def _markdown_blocks(table: Table) -> Iterator[str]:
    if table.title:
        yield f"## {markdown_text(table.title)}"
    texts = table.texts
    sides = table.alignment(texts)
    lines = [[markdown_text(" ".join(cell.split())) for cell in line] for line in (table.names, *texts)]
    widths = [max(3, *map(cell_len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        for place, (width, is_right) in enumerate(zip(widths, sides, strict=True)):
            blanks = " " * (width - cell_len(line[place]))
            line[place] = blanks + line[place] if is_right else line[place] + blanks
    dashes = ["-" * (width + 1) for width in widths]
    rules = [f"{dash}:" if is_right else f":{dash}" for dash, is_right in zip(dashes, sides, strict=True)]
    header, *rows = (f"| {' | '.join(line)} |" for line in lines)
    yield "\n".join([header, f"|{'|'.join(rules)}|", *rows])
    yield from map(markdown_text, table.notes)


def latex_text(text: str) -> str:
    """Escape text for LaTeX.

    A leading [ or * is protected, because it could be parsed as an argument of the previous line.
    """
    escaped = "".join(_LATEX.get(character, character) for character in printable(text))
    return f"{{}}{escaped}" if escaped[:1] in ("[", "*") else escaped


def latex(tables: Sequence[Table], caption: str, label: str, *, notes: Sequence[str] = (), is_wide: bool = True) -> str:
    """Return a LaTeX table for a paper, with one part per table; required packages: `LATEX_NEEDS`.

    notes: footnotes. is_wide: span both columns of the page.
    """
    star = "*" if is_wide else ""
    lines = [f"\\begin{{table{star}}}[t]", "\\centering\\small", f"\\caption{{{latex_text(caption)}}}"]
    lines.append(f"\\label{{tab:{re.sub('[^A-Za-z0-9]+', '-', label).strip('-') or 'runs'}}}")
    for table in tables:
        lines += [f"\\par\\smallskip\\textbf{{{latex_text(table.title)}}}\\par"] if table.title else []
        lines.append(_booktabs(table))
    lines += [f"\\par\\smallskip\\parbox{{\\linewidth}}{{\\footnotesize {latex_text(note)}}}" for note in notes]
    return "\n".join([*lines, f"\\end{{table{star}}}"])


def _booktabs(table: Table) -> str:
    """Return the rows as a booktabs tabular, scaled down if it is wider than the line."""
    texts = table.texts
    sides = "".join("r" if is_right else "l" for is_right in table.alignment(texts))
    cells = ([latex_text(" ".join(cell.split())) for cell in line] for line in (table.names, *texts))
    header, *rows = (f"{' & '.join(line)} \\\\" for line in cells)
    grid = [f"\\begin{{tabular}}{{{sides}}}", "\\toprule", header, "\\midrule", *rows, "\\bottomrule", "\\end{tabular}"]
    return "\n".join([r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%", *grid]) + "}"


def write_csv(table: Table, out: IO[str]) -> None:
    """Stream the rows with unrounded numbers; an apostrophe protects text that a spreadsheet would evaluate."""
    write = csv.writer(exact(out), lineterminator="\n").writerow
    for row in chain([table.names], table.rows):
        write([_csv_value(value, is_escaped=out.isatty()) for value in row])


def _csv_value(value: Any, *, is_escaped: bool) -> Any:
    if isinstance(value, list | tuple | dict):
        value = json.dumps(json_value(value), ensure_ascii=False)
    if isinstance(value, str):
        value = f"'{value}" if value.startswith(_FORMULAS) and not _NUMBER_TEXT.fullmatch(value) else value
        return printable(value) if is_escaped else value
    return value


def write_json(table: Table, out: IO[str]) -> None:
    """Stream records as a JSON array in the format of `json.dumps`."""
    keys, opening, out = distinct(table.names), "[\n  ", exact(out)
    for row in table.rows:
        record = {key: json_value(value) for key, value in zip(keys, row, strict=True)}
        out.write(opening + json.dumps(record, indent=2, ensure_ascii=out.isatty()).replace("\n", "\n  "))
        opening = ",\n  "
    out.write("[]\n" if opening.startswith("[") else "\n]\n")


def distinct(names: Sequence[str]) -> list[str]:
    """Append numbers to repeated names, to make them unique as keys."""
    keys: list[str] = []
    for name in names:
        variants = (name if i == 0 else f"{name}_{i}" for i in count())
        keys.append(next(key for key in variants if key not in keys))
    return keys


def json_value(value: Any) -> Any:
    """Return the value in JSON types; NaN and infinity become null."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, datetime):
        return value.isoformat() + ("" if value.tzinfo else "Z")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]
    if isinstance(value, dict):
        return {str(key): json_value(item) for key, item in value.items()}
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
