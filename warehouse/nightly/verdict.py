"""The verdict on one night of a warehouse, and how it is written: as a table, JSON, Markdown or JUnit XML."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import IO

from rich import box
from rich.console import Console
from rich.table import Table

from harness.plural import counted
from warehouse.database import WAIT_SECONDS, WarehouseError, reader_for_grader
from warehouse.display import aligned, markdown, plain, print_table
from warehouse.formatting import NOTHING
from warehouse.nightly.cells import CellNight
from warehouse.nightly.history import kept_nights, read_nights
from warehouse.nightly.judge import CellVerdict, NightVerdict, judge_last
from warehouse.nightly.words import as_record, remarks
from warehouse.options import VerdictFormat

_HEADERS = ("verdict", "cell", "%", "baseline %", "nights", "p (Holm)", "detectable drop", "why")
_STYLES = {"PASS": "green", "WARN": "yellow", "FAIL": "bold red", "INCONCLUSIVE": "magenta"}


def until(nights: list[list[CellNight]], night: date | None) -> list[list[CellNight]]:
    """Return the nights up to one, by default the newest. Raises WarehouseError where nothing ran in that night."""
    if not nights:
        raise WarehouseError("there is no night to judge: the warehouse holds no run")
    if night is None:
        return nights
    dates = [cells[0].night for cells in nights]
    if night not in dates:
        newest = ", ".join(map(str, dates[-5:]))
        raise WarehouseError(f"nothing ran in the night of {night}; the newest nights are: {newest}")
    return nights[: dates.index(night) + 1]


def judged(
    database: Path,
    night: date | None = None,
    since: date | None = None,
    grader: str | None = None,
    wait_seconds: float = WAIT_SECONDS,
) -> NightVerdict:
    """Judge one night of a warehouse, by default the newest. Raises WarehouseError and DatabaseError.

    since: nights before it are ignored; grader: the version whose grades count, by default each run's newest.
    """
    with reader_for_grader(database, grader, wait_seconds) as connection:
        nights = read_nights(connection, since, kept_nights(database))
    return ordered(judge_last(until(nights, night)))


def ordered(verdict: NightVerdict) -> NightVerdict:
    """Return the verdict with failed cells first, then by the cells' names, which begin with dataset and method."""
    return replace(verdict, cells=sorted(verdict.cells, key=lambda cell: (cell.verdict != "FAIL", cell.cell)))


def write(verdict: NightVerdict, out: IO[str], output_format: VerdictFormat) -> None:
    """Write the verdict on one night as a table, JSON, Markdown or JUnit XML."""
    if output_format == "junit":
        from warehouse.nightly import junit

        out.write(junit.of_verdict(verdict) + "\n")
        return
    if output_format == "json":
        out.write(json.dumps(_record(verdict), indent=2, ensure_ascii=out.isatty(), allow_nan=False) + "\n")
        return
    opening = f"{verdict.verdict}: night of {verdict.night}, {counted(len(verdict.cells), 'cell')}"
    cells = [_cells(cell) for cell in verdict.cells]
    confirm = [f"run again with another seed: {cell.run_id} ({cell.cell})" for cell in verdict.to_confirm]
    if output_format == "markdown":
        out.write(f"**{markdown(opening)}**\n\n{aligned(_HEADERS, cells, 'markdown')}\n")
        lines = [*confirm, *remarks(verdict)]
        out.write("".join(f"\n- {markdown(line)}" for line in lines) + ("\n" if lines else ""))
        return
    console = Console(file=out)
    console.print(plain(opening, style=_STYLES[verdict.verdict]), soft_wrap=True)
    table = Table(box=box.SIMPLE_HEAD)
    for header in _HEADERS:
        table.add_column(header, overflow="fold")
    for row in cells:
        table.add_row(plain(row[0], style=_STYLES[row[0]]), *map(plain, row[1:]))
    print_table(table, out)
    for line in (*confirm, *remarks(verdict)):
        console.print(plain(line), soft_wrap=True)


def _cells(cell: CellVerdict) -> list[str]:
    return [
        cell.verdict,
        cell.cell,
        _percent(cell.score),
        _percent(cell.baseline_score),
        str(cell.num_baseline),
        NOTHING if cell.p_holm is None else f"{cell.p_holm:.2g}",
        NOTHING if cell.detectable_drop is None else f"{100 * cell.detectable_drop:.1f} points",
        "; ".join(cell.reasons),
    ]


def _percent(share: float | None) -> str:
    return NOTHING if share is None else f"{100 * share:.2f}"


def _record(verdict: NightVerdict) -> dict[str, object]:
    return {
        "night": verdict.night.isoformat(),
        "verdict": verdict.verdict,
        "exit_code": verdict.exit_code,
        "cells": [
            {
                "cell": cell.cell,
                "verdict": cell.verdict,
                "reasons": list(cell.reasons),
                "run_id": cell.run_id,
                "pass_at_1": cell.score,
                "baseline_pass_at_1": cell.baseline_score,
                "num_baseline_nights": cell.num_baseline,
                "p_holm": cell.p_holm,
                "detectable_drop": cell.detectable_drop,
                "needs_rerun": cell.needs_rerun,
                "metrics": [as_record(metric) for metric in cell.metrics],
            }
            for cell in verdict.cells
        ],
        "night_factors": {name: factor.standard_deviation for name, factor in verdict.factors.items()},
        "confirm": [cell.run_id for cell in verdict.to_confirm],
    }
