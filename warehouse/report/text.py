"""The report's tables as Markdown and LaTeX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from warehouse.display import printable
from warehouse.markup import aligned, latex, markdown
from warehouse.report.tables import Table

TextFormat = Literal["md", "latex"]


def write(title: str, warnings: Sequence[str], tables: Sequence[Table], shape: TextFormat) -> str:
    """Return all tables as one document, with the warnings first."""
    if shape == "md":
        head = [f"# {markdown(title)}", *(f"**{markdown(line)}**" for line in warnings)]
        return "\n\n".join([*head, *map(_markdown_table, tables)]) + "\n"
    head = [
        f"% {printable(title)}; needs \\usepackage{{booktabs}}",
        *(f"\\textbf{{{latex(line)}}}\n" for line in warnings),
    ]
    return "\n\n".join([*head, *map(_latex_table, tables)]) + "\n"


def _markdown_table(table: Table) -> str:
    grid = aligned(table.columns, table.rows, "markdown", _alignment(table))
    return f"## {markdown(table.title)}\n\n{grid}\n\n{markdown(table.caption)}"


def _latex_table(table: Table) -> str:
    grid = aligned(table.columns, table.rows, "latex", _alignment(table))
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
    is_numeric = table.name != "conditions"
    return ["left", *("right" if is_numeric else "left" for _ in table.columns[1:])]
