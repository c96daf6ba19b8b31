"""Text for a terminal. What a model wrote is hostile: it must not move the cursor, recolour or hide anything."""

from __future__ import annotations

import unicodedata
from typing import IO

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
"""Unicode categories that are shown as escapes: controls, formats (text direction), surrogates, private use, breaks."""


def printable(text: str, keep: str = "") -> str:
    """Text with every character that could act on a terminal as a visible escape, those in `keep` excepted."""
    return "".join(c if c in keep or unicodedata.category(c) not in _HIDDEN else _escaped(c) for c in text)


def plain(text: str, style: str = "", keep: str = "") -> Text:
    """`printable` text for rich, never read as markup."""
    return Text(printable(text, keep), style=style)


def print_table(table: Table, out: IO[str]) -> None:
    """On a terminal the table folds to its width; anywhere else it is as wide as it needs, so nothing is cut off."""
    console = Console(file=out)
    if not console.is_terminal:
        table.box = None
        table.pad_edge = False
        wide = console.options.update(width=1_000_000)
        console.width = max(Measurement.get(console, wide, table).maximum, 1)
    console.print(table)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
