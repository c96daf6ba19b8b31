"""Text for a terminal. Model output is hostile: it must not move the cursor, change colors or hide anything."""

from __future__ import annotations

import unicodedata
from typing import IO

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
"""Unicode categories shown as escapes: control, format (such as text direction), surrogate, private use, line and
paragraph separators."""


def printable(text: str, keep: str = "") -> str:
    """Return a text with visible escapes for all characters that could act on a terminal, except those in `keep`."""
    return "".join(c if c in keep or unicodedata.category(c) not in _HIDDEN else _escaped(c) for c in text)


def plain(text: str, style: str = "", keep: str = "") -> Text:
    """Return `printable` text for rich, which is never parsed as markup."""
    return Text(printable(text, keep), style=style)


def print_table(table: Table, out: IO[str]) -> None:
    """Print a table, folded to the width of a terminal; elsewhere it is as wide as it needs to be and never cut off."""
    console = Console(file=out)
    if not console.is_terminal:
        table.box = None
        table.pad_edge = False
        unlimited = console.options.update(width=1_000_000)
        console.width = max(Measurement.get(console, unlimited, table).maximum, 1)
    console.print(table)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
