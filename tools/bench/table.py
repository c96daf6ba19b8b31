"""Results as Markdown tables and plain data, with a line that describes the machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from harness import environment

Cell = str | int | float | None


@dataclass
class Table:
    """One table of one section; latency and throughput are never in the same table."""

    title: str
    columns: Sequence[str]
    rows: list[Sequence[Cell]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def markdown(self) -> str:
        """Return the table as Markdown, with the notes below it."""
        lines = [f"### {self.title}", "", _line(self.columns), _line(["---"] * len(self.columns))]
        lines += [_line([shown(cell) for cell in row]) for row in self.rows]
        for note in self.notes:
            lines += ["", note]
        return "\n".join(lines) + "\n"

    def data(self) -> dict[str, Any]:
        """Return the table as plain data, with the numbers as measured."""
        rows = [dict(zip(self.columns, row, strict=True)) for row in self.rows]
        return {"title": self.title, "rows": rows, "notes": self.notes}


def measured_on(cores: int | None = None) -> str:
    """Return the date and the machine, for a heading. `cores`: number of cores used."""
    hardware = environment.hardware()
    name = ", ".join(gpu["name"] for gpu in hardware["gpus"] or []) or hardware["cpu"]
    of = f"{cores} of " if cores is not None else ""
    memory = hardware["memory_bytes"] / 2**30
    return (
        f"Measured {datetime.now(UTC).date()} on {name}, {of}{hardware['usable_cores']} logical cores, {memory:.0f} GiB"
    )


def shown(cell: Cell) -> str:
    """Format a cell: numbers with three significant digits, large ones without decimals."""
    if cell is None:
        return ""
    if isinstance(cell, float):
        return f"{cell:.0f}" if abs(cell) >= 100 else f"{cell:.3g}"
    return str(cell)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
