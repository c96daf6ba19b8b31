"""Text and tables as Markdown and LaTeX. Nothing in a text acts as markup."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from typing import Literal

from warehouse.display import printable

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
_NUMBER = re.compile(r"[+−]?[\d.,]+×?|–")


def markdown(text: str) -> str:
    """Return text that a Markdown reader shows as it is; HTML in it is escaped as well."""
    return _MARKDOWN.sub(r"\\\1", html.escape(printable(text), quote=False))


def latex(text: str) -> str:
    """Return text in which LaTeX's special characters are escaped."""
    return "".join(_LATEX.get(character, character) for character in printable(text))


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
