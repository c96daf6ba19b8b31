"""Tables as Markdown, LaTeX, CSV and JSON; their form on a terminal is `harness.cli.screen`.

Text of models and of others is hostile: nothing in it acts as markup, nor as a formula in a spreadsheet.
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
"""Beginnings of texts that a spreadsheet would evaluate."""
_NUMBER_TEXT = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")


def of_records(records: Sequence[Mapping[str, Any]]) -> Table:
    """Return records with the same keys, of which there is at least one, as a table of values for programs."""
    return Table([Column(name) for name in records[0]], [list(record.values()) for record in records])


def markdown_text(text: str) -> str:
    """Return text that a Markdown reader shows as it is; HTML in it is escaped as well."""
    return _MARKDOWN.sub(r"\\\1", html.escape(printable(text), quote=False))


def markdown(page: Page) -> str:
    """Return lines and tables as Markdown: titles are headings, and lines with a style are bold."""
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
    """Return text in which LaTeX's special characters are escaped.

    At the beginning, where [ and * could be an argument of the line before, they are set apart.
    """
    escaped = "".join(_LATEX.get(character, character) for character in printable(text))
    return f"{{}}{escaped}" if escaped[:1] in ("[", "*") else escaped


def latex(tables: Sequence[Table], caption: str, label: str, *, notes: Sequence[str] = (), is_wide: bool = True) -> str:
    """Return a table of a paper, of several parts where these have titles; `LATEX_NEEDS` says what it needs.

    notes: small print below it. is_wide: whether it is over both columns of the page.
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
    """Return the rows with rules, made smaller where they are wider than the line."""
    texts = table.texts
    sides = "".join("r" if is_right else "l" for is_right in table.alignment(texts))
    cells = ([latex_text(" ".join(cell.split())) for cell in line] for line in (table.names, *texts))
    header, *rows = (f"{' & '.join(line)} \\\\" for line in cells)
    grid = [f"\\begin{{tabular}}{{{sides}}}", "\\toprule", header, "\\midrule", *rows, "\\bottomrule", "\\end{tabular}"]
    return "\n".join([r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%", *grid]) + "}"


def write_csv(table: Table, out: IO[str]) -> None:
    """Write the rows as they come, with full numbers; a text that a spreadsheet would evaluate gets an apostrophe."""
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
    """Write a list of records as the rows come, as `json.dumps` would."""
    keys, opening, out = distinct(table.names), "[\n  ", exact(out)
    for row in table.rows:
        record = {key: json_value(value) for key, value in zip(keys, row, strict=True)}
        out.write(opening + json.dumps(record, indent=2, ensure_ascii=out.isatty()).replace("\n", "\n  "))
        opening = ",\n  "
    out.write("[]\n" if opening.startswith("[") else "\n]\n")


def distinct(names: Sequence[str]) -> list[str]:
    """Return the names with a number appended to repeated ones, which would otherwise overwrite each other as keys."""
    keys: list[str] = []
    for name in names:
        variants = (name if i == 0 else f"{name}_{i}" for i in count())
        keys.append(next(key for key in variants if key not in keys))
    return keys


def json_value(value: Any) -> Any:
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
        return [json_value(item) for item in value]
    if isinstance(value, dict):
        return {str(key): json_value(item) for key, item in value.items()}
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
