"""A comparison as a file or on a terminal: table, CSV, JSON, Markdown or LaTeX."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import IO

from rich import box
from rich.console import Console
from rich.table import Table

from warehouse.comparison import show
from warehouse.comparison.contrasts import Comparison
from warehouse.comparison.manifests import differences
from warehouse.comparison.show import Regime
from warehouse.display import aligned, asks_for_width, fits, markdown, plain, print_item, print_table, printable
from warehouse.options import ComparisonFormat

_LEAST_NAME_WIDTH = 8
"""Characters to which the names of runs are wrapped so that their numbers fit on a terminal."""


def write(comparison: Comparison, out: IO[str], shape: ComparisonFormat, *, is_brief: bool = False) -> None:
    """Write a comparison; every format but CSV, which has only the rows, starts with the warnings.

    is_brief: a table has only the columns that a person reads first, and fits the width that COLUMNS asks for; the
    other formats are always complete.
    """
    records = [show.record(row) for row in comparison.rows]
    if shape == "table":
        _write_table(comparison, out, is_brief)
    elif shape == "csv":
        text = io.StringIO()
        writer = csv.DictWriter(text, list(records[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)
        out.write(printable(text.getvalue(), keep="\n") if out.isatty() else text.getvalue())
    elif shape == "json":
        document = {
            "warnings": list(show.warnings(comparison)),
            "baselines": [
                {"dataset": b.run.dataset, "run_id": b.run.run_id, "why": b.why, "regimes": b.regimes}
                for b in comparison.baselines
            ],
            "differences": [
                {"name": d.name, "matter": d.matter, "values": dict(d.values)} for d in comparison.differences
            ],
            "rows": records,
        }
        out.write(json.dumps(document, indent=2, ensure_ascii=out.isatty(), allow_nan=False) + "\n")
    elif shape == "latex":
        _write_latex(comparison, out)
    else:
        _write_markdown(comparison, out)


class _Screen:
    """Where lines and tables are printed, fitted to a width or whole."""

    def __init__(self, out: IO[str], *, is_fitted: bool) -> None:
        self._console = Console(file=out)
        self._is_fitted = self._console.is_terminal or (is_fitted and asks_for_width())

    def say(self, line: str, style: str = "") -> None:
        self._console.print(plain(line, style=style), soft_wrap=not self._is_fitted)

    def item(self, line: str) -> None:
        print_item(line, self._console, is_fitted=self._is_fitted)

    def rows(self, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        print_table(_table(headers, rows), self._console.file, is_fitted=self._is_fitted)

    def brief(self, comparison: Comparison) -> None:
        """Print the table for a person, without the intervals of the speed-ups where there is no room for them."""
        self.rows(*show.brief_table(comparison, has_speed_interval=self._fits(show.brief_table(comparison))))

    def regimes(self, found: Sequence[Regime]) -> None:
        """Print what both regimes come to, short enough for a small screen, and how to read it."""
        self.rows(*show.regimes_table(found, has_intervals=self._fits(show.regimes_table(found))))
        self.say(show.regimes_legend(found))

    def _fits(self, table: tuple[Sequence[str], Sequence[Sequence[str]]]) -> bool:
        return fits(_table(*table), self._console.file, is_fitted=self._is_fitted)


def write_short(comparison: Comparison, out: IO[str]) -> None:
    """Write what a suite's runs came to: each warning once, one table, and how to read it.

    Of what differs it has what affects results beside what is compared: within a regime, where the table has two.
    `warehouse.compare` writes everything.
    """
    screen, names, found = _Screen(out, is_fitted=True), show.names(comparison), show.regimes(comparison)
    for line in show.merged(show.warnings(comparison), names):
        screen.say(line, "bold red")
    for rows in [regime.rows for regime in found] or [comparison.rows]:
        own = {row.run.run_id: row.run.manifest for row in rows}
        affecting = [d for d in differences(list(own.values())) if d.matter not in ("subject", "note")]
        for line in show.difference_lines(affecting, {run_id: names[run_id] for run_id in own}):
            screen.say(f"NOT ALIKE: {line}")
    if found:
        screen.regimes(found)
        return
    screen.brief(comparison)
    for line in show.legend(comparison, is_brief=True):
        screen.say(line)


def _write_table(comparison: Comparison, out: IO[str], is_brief: bool) -> None:
    screen, names, found = _Screen(out, is_fitted=is_brief), show.names(comparison), show.regimes(comparison)
    for line in show.warnings(comparison):
        screen.say(line, "bold red")
    screen.say("Compared:", "bold")
    for run_id, name in names.items():
        screen.say(f"  {name}: {run_id}")
    for line in show.baseline_lines(comparison):
        screen.say(line)
    screen.say("What differs:", "bold")
    for line in list(show.difference_lines(comparison.differences, names)) or ["nothing"]:
        screen.item(line)
    if not is_brief:
        screen.rows(show.HEADERS, [show.cells(row, names[row.run.run_id]) for row in comparison.rows])
    for regime in found if is_brief else ():
        screen.say(regime.heading, "bold")
        screen.brief(replace(comparison, rows=regime.rows))
    if is_brief and not found:
        screen.brief(comparison)
    for line in show.legend(comparison, is_brief=is_brief):
        screen.say(line)
    if is_brief and found:
        screen.say("")
        screen.regimes(found)


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for i, header in enumerate(headers):
        table.add_column(plain(header, keep="\n"), overflow="fold", min_width=None if i else _LEAST_NAME_WIDTH)
    for row in rows:
        table.add_row(*map(plain, row))
    return table


def _write_latex(comparison: Comparison, out: IO[str]) -> None:
    names = show.names(comparison)
    lines = [
        *show.warnings(comparison),
        *(f"{name}: {run_id}" for run_id, name in names.items()),
        *show.baseline_lines(comparison),
        *show.difference_lines(comparison.differences, names),
        *show.legend(comparison),
    ]
    out.write("".join(f"% {printable(line)}\n" for line in lines))
    table = [show.cells(row, names[row.run.run_id]) for row in comparison.rows]
    out.write(aligned(show.HEADERS, table, "latex") + "\n")


def _write_markdown(comparison: Comparison, out: IO[str]) -> None:
    names = show.names(comparison)
    table = [show.cells(row, names[row.run.run_id]) for row in comparison.rows]
    differing = list(show.difference_lines(comparison.differences, names)) or ["nothing"]
    out.write("".join(f"**{markdown(line)}**\n\n" for line in show.warnings(comparison)))
    out.write("Compared:\n\n" + "".join(f"- {markdown(f'{name}: {i}')}\n" for i, name in names.items()))
    out.write("".join(f"\n{markdown(line)}\n" for line in show.baseline_lines(comparison)))
    out.write("\nWhat differs:\n\n" + "".join(f"- {markdown(line)}\n" for line in differing))
    out.write("\n" + aligned(show.HEADERS, table, "markdown") + "\n\n")
    out.write("".join(f"{markdown(line)}\n" for line in show.legend(comparison)))
