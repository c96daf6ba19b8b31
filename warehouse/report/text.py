"""Tables as Markdown and LaTeX."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from typing import Literal

from tabulate import tabulate

from warehouse.display import printable
from warehouse.report.tables import Table

TextFormat = Literal["md", "latex"]
_MARKDOWN = re.compile(r"([\\`*_|\[\]#~$])")
_LATEX = {"×": r"\(\times\)", "→": r"\(\to\)", "–": "--", "«": "``", "»": "''", "≥": r"\(\ge\)", "✔": r"\(\checkmark\)"}


def write(title: str, warnings: Sequence[str], tables: Sequence[Table], shape: TextFormat) -> str:
    """All tables, warnings first."""
    parts = [_markdown_table(t) for t in tables] if shape == "md" else [_latex_table(t) for t in tables]
    if shape == "md":
        head = [f"# {_markdown(title)}", *(f"**{_markdown(line)}**" for line in warnings)]
    else:
        head = [
            f"% {printable(title)}; needs \\usepackage{{booktabs}}",
            *(f"\\textbf{{{latex(line)}}}\n" for line in warnings),
        ]
    return "\n\n".join([*head, *parts]) + "\n"


def latex(text: str) -> str:
    """Text with nothing that LaTeX would act on."""
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    special |= {c: f"\\{c}" for c in "&%$#_{}"} | {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"}
    return "".join((special | _LATEX).get(c, c) for c in printable(text))


def _markdown(text: str) -> str:
    return _MARKDOWN.sub(r"\\\1", html.escape(printable(text), quote=False))


def _markdown_table(table: Table) -> str:
    cells = [[_markdown(cell) for cell in row] for row in table.rows]
    headers = [_markdown(name) for name in table.columns]
    grid = tabulate(cells, headers, tablefmt="pipe", disable_numparse=True, colalign=_alignment(table))
    return f"## {_markdown(table.title)}\n\n{grid}\n\n{_markdown(table.caption)}"


def _latex_table(table: Table) -> str:
    cells = [[latex(cell) for cell in row] for row in table.rows]
    headers = [latex(name) for name in table.columns]
    grid = tabulate(cells, headers, tablefmt="latex_raw", disable_numparse=True, colalign=_alignment(table))
    for rule in ("\\toprule", "\\midrule", "\\bottomrule"):
        grid = grid.replace("\\hline", rule, 1)
    return "\n".join(
        (
            "\\begin{table}[t]",
            "\\centering",
            f"\\caption{{{latex(table.title)}. {latex(table.caption)}}}",
            f"\\label{{tab:{table.name}}}",
            grid,
            "\\end{table}",
        )
    )


def _alignment(table: Table) -> list[str]:
    numeric = table.name != "conditions"
    return ["left", *("right" if numeric else "left" for _ in table.columns[1:])]
