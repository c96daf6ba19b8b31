"""Text for terminals, Markdown and LaTeX.

Model output is hostile: it must not move the cursor, change colors or hide anything, and nothing in it acts as markup.
"""

from __future__ import annotations

import html
import os
import re
import unicodedata
from collections.abc import Sequence
from copy import copy
from typing import IO, Literal

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
"""Unicode categories shown as escapes: control, format (such as text direction), surrogate, private use, line and
paragraph separators."""
_NO_CHARACTERS = {"\ufffe", "\uffff"}
"""Code points that no document may hold, such as one of XML."""
_UNLIMITED = 1_000_000
NEVER_WRAPPED = 24
"""Columns of at most this many characters, such as numbers, intervals and names, are not wrapped."""


def printable(text: str, keep: str = "") -> str:
    """Return a text with visible escapes for all characters that could act on a terminal, except those in `keep`."""
    return "".join(c if c in keep or not _is_hidden(c) else _escaped(c) for c in text)


def _is_hidden(character: str) -> bool:
    return unicodedata.category(character) in _HIDDEN or character in _NO_CHARACTERS


def plain(text: str, style: str = "", keep: str = "") -> Text:
    """Return `printable` text for rich, which is never parsed as markup."""
    return Text(printable(text, keep), style=style)


def asks_for_width() -> bool:
    """Return whether the environment says how wide output shall be where there is no terminal."""
    columns = os.environ.get("COLUMNS", "")
    return columns.isdecimal() and int(columns) > 0


def print_table(table: Table, out: IO[str], *, is_fitted: bool = False) -> None:
    """Print a table; no word of it is ever folded or cut off.

    A table too wide for the terminal loses its rules, then its wide columns are wrapped between words. If it still does
    not fit, each row is printed as a block with one line per column. Elsewhere a table is as wide as it needs to be,
    without blanks at the ends of its lines, unless it `is_fitted` to the width that the environment asks for.
    """
    console = Console(file=out)
    is_fitted |= console.is_terminal
    if not console.is_terminal or _full_width(console, table) > console.width:
        table.box = None
        table.pad_edge = False
    if not is_fitted:
        console.width = max(_full_width(console, table), 1)
    elif (excess := _full_width(console, table) - console.width) > 0:
        widths = _wrapped_widths(console, table, excess)
        if widths is None:
            _print_blocks(console, table)
            return
        for column, width in zip(table.columns, widths, strict=True):
            column.width = width
    with console.capture() as printed:
        console.print(table)
    out.write("".join(f"{line.rstrip()}\n" for line in printed.get().splitlines()))


def fits(table: Table, out: IO[str], *, is_fitted: bool = False) -> bool:
    """Return whether `print_table` prints a table there, rather than a block per row."""
    console, bare = Console(file=out), copy(table)
    bare.box, bare.pad_edge = None, False
    excess = _full_width(console, bare) - console.width
    return not (is_fitted or console.is_terminal) or excess <= 0 or _wrapped_widths(console, bare, excess) is not None


def print_item(text: str, console: Console, *, is_fitted: bool = False) -> None:
    """Print an indented line; where a width is kept it is wrapped between words, with the rest indented further."""
    if not (is_fitted or console.is_terminal):
        console.print(plain(f"  {text}"), soft_wrap=True)
        return
    for index, line in enumerate(plain(text).wrap(console, max(console.width - 4, 1))):
        line.rstrip()
        console.print(plain("    " if index else "  ") + line)


def _full_width(console: Console, table: Table) -> int:
    return Measurement.get(console, console.options.update(width=_UNLIMITED), table).maximum


def _wrapped_widths(console: Console, table: Table, excess: int) -> list[int] | None:
    """Return widths of the columns, in characters, that together save `excess`; None where words would be folded."""
    unlimited = console.options.update(width=_UNLIMITED)
    widths, least = [], []
    for column in table.columns:
        cells = [Measurement.get(console, unlimited, cell) for cell in (column.header, *column.cells)]
        widths.append(max(cell.maximum for cell in cells))
        unwrapped = NEVER_WRAPPED if column.min_width is None else column.min_width
        least.append(max(min(widths[-1], unwrapped), *(cell.minimum for cell in cells)))
    if sum(widths) - sum(least) < excess:
        return None
    for _ in range(excess):
        widest = max((i for i, width in enumerate(widths) if width > least[i]), key=widths.__getitem__)
        widths[widest] -= 1
    return widths


def _print_blocks(console: Console, table: Table) -> None:
    rows = list(zip(*(column.cells for column in table.columns), strict=True))
    for row in rows:
        block = Table.grid(padding=(0, 2))
        block.add_column(no_wrap=True, style="bold")
        block.add_column(overflow="fold")
        for column, cell in zip(table.columns, row, strict=True):
            block.add_row(column.header, cell)
        console.print()
        console.print(block)
    console.print("" if rows else "(no rows)")


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


Markup = Literal["markdown", "latex"]
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
    "≥": r"\(\ge\)",
    "✔": r"\(\checkmark\)",
    "–": "--",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}
LATEX_NEEDS = "needs \\usepackage{booktabs,graphicx}"
_NUMBER = re.compile(r"[+−]?[\d.,]+×?|–")


def markdown(text: str) -> str:
    """Return text that a Markdown reader shows as it is; HTML in it is escaped as well."""
    return _MARKDOWN.sub(r"\\\1", html.escape(printable(text), quote=False))


def latex(text: str) -> str:
    """Return text in which LaTeX's special characters are escaped.

    At the beginning, where [ and * could be an argument of the line before, they are set apart.
    """
    escaped = "".join(_LATEX.get(character, character) for character in printable(text))
    return f"{{}}{escaped}" if escaped[:1] in ("[", "*") else escaped


def aligned(
    headers: Sequence[str], rows: Sequence[Sequence[str]], shape: Markup, alignment: Sequence[str] | None = None
) -> str:
    """Return a table with escaped cells. alignment: "left" or "right" per column; default: numbers right."""
    from tabulate import tabulate

    escape = markdown if shape == "markdown" else latex
    if alignment is None and rows:
        numeric = [all(_NUMBER.fullmatch(row[place]) for row in rows) for place in range(len(headers))]
        alignment = ["right" if is_number else "left" for is_number in numeric]
    return tabulate(
        [[escape(cell) for cell in row] for row in rows],
        headers=[escape(header.strip()) for header in headers],
        tablefmt="pipe" if shape == "markdown" else "latex_raw",
        disable_numparse=True,
        colalign=alignment,
    )


def booktabs(headers: Sequence[str], rows: Sequence[Sequence[str]], alignment: Sequence[str]) -> str:
    """Return a LaTeX table with escaped cells, made smaller where it is wider than the line."""
    grid = aligned(headers, rows, "latex", alignment)
    for rule in ("\\toprule", "\\midrule", "\\bottomrule"):
        grid = grid.replace("\\hline", rule, 1)
    return f"\\resizebox{{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}}{{!}}{{%\n{grid}}}"


def latex_float(caption: str, label: str, parts: Sequence[str], *, is_wide: bool = True) -> str:
    """Return a table of a paper; is_wide: over both of its columns. `LATEX_NEEDS` says what it needs."""
    star = "*" if is_wide else ""
    head = [
        f"\\begin{{table{star}}}[t]",
        "\\centering\\small",
        f"\\caption{{{latex(caption)}}}",
        f"\\label{{tab:{label}}}",
    ]
    return "\n".join([*head, *parts, f"\\end{{table{star}}}"])
