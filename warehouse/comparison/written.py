"""A comparison as a file or on a terminal: table, CSV, JSON, Markdown or LaTeX."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import IO

from rich import box
from rich.console import Console
from rich.table import Table

from warehouse.comparison import show, show_brief, show_regimes, show_warnings
from warehouse.comparison.contrasts import Comparison
from warehouse.comparison.manifests import differences
from warehouse.comparison.show_regimes import Regime
from warehouse.display import aligned, asks_for_width, fits, markdown, plain, print_item, print_table, printable
from warehouse.options import ComparisonFormat

_LEAST_NAME_WIDTH = 8
"""Characters to which the names of runs are wrapped so that their numbers fit on a terminal."""


def write(comparison: Comparison, out: IO[str], shape: ComparisonFormat, *, is_brief: bool = False) -> None:
    """Write a comparison; every format but CSV, which has only the rows, starts with the warnings.

    is_brief: a table has only the columns that a person reads first, and fits the width that COLUMNS asks for; the
    other formats are always complete.
    """
    warnings = list(show_warnings.warnings(comparison))
    if shape == "table":
        _write_table(comparison, warnings, out, is_brief)
    elif shape == "csv":
        text = io.StringIO()
        records = [show.record(row) for row in comparison.rows]
        writer = csv.DictWriter(text, list(records[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)
        out.write(printable(text.getvalue(), keep="\n") if out.isatty() else text.getvalue())
    elif shape == "json":
        differing = [{"name": d.name, "matter": d.matter, "values": dict(d.values)} for d in comparison.differences]
        records = [show.record(row) for row in comparison.rows]
        baselines = [
            {"dataset": b.dataset, "run_id": b.run.run_id, "why": b.why, "regimes": b.regimes}
            for b in comparison.baselines
        ]
        document = {"warnings": warnings, "baselines": baselines, "differences": differing, "rows": records}
        out.write(json.dumps(document, indent=2, ensure_ascii=out.isatty(), allow_nan=False) + "\n")
    else:
        _write_document(comparison, warnings, out, shape)


def write_short(comparison: Comparison, out: IO[str]) -> None:
    """Write what a suite's runs came to: each warning once, one table, and how to read it.

    Of what differs it has what affects results beside what is compared: within a regime, where the table has two.
    `warehouse.compare` writes everything.
    """
    console = Console(file=out)
    is_fitted = console.is_terminal or asks_for_width()
    names, found = show.names(comparison), show_regimes.regimes(comparison)
    for line in show_warnings.merged(show_warnings.warnings(comparison), names):
        console.print(plain(line, style="bold red"), soft_wrap=not is_fitted)
    groups = [regime.rows for regime in found] or [comparison.rows]
    for rows in groups:
        own = {row.run.run_id: row.run.manifest for row in rows}
        affecting = [d for d in differences(list(own.values())) if d.matter not in ("subject", "note")]
        for line in show.difference_lines(affecting, {run_id: names[run_id] for run_id in own}):
            console.print(plain(f"NOT ALIKE: {line}"), soft_wrap=not is_fitted)
    if found:
        _write_regimes_table(found, console, is_fitted=is_fitted)
        console.print(plain(show_regimes.short_legend(found)), soft_wrap=not is_fitted)
        return
    _write_what_fits(comparison, names, console, is_fitted=is_fitted)
    for line in show_brief.legend(comparison, is_short=True):
        console.print(plain(line), soft_wrap=not is_fitted)


def _write_table(comparison: Comparison, warnings: Sequence[str], out: IO[str], is_brief: bool) -> None:
    console = Console(file=out)
    is_fitted = console.is_terminal or (is_brief and asks_for_width())
    for line in warnings:
        console.print(plain(line, style="bold red"), soft_wrap=not is_fitted)
    names = show.names(comparison)
    console.print(plain("Compared:", style="bold"))
    for run_id, name in names.items():
        console.print(plain(f"  {name}: {run_id}"), soft_wrap=True)
    for line in show.baseline_lines(comparison):
        console.print(plain(line), soft_wrap=not is_fitted)
    console.print(plain("What differs:", style="bold"))
    for line in list(show.difference_lines(comparison.differences, names)) or ["nothing"]:
        print_item(line, console, is_fitted=is_fitted)
    found = show_regimes.regimes(comparison)
    if not is_brief:
        print_table(_table(show.HEADERS, [show.cells(row, names[row.run.run_id]) for row in comparison.rows]), out)
    elif not found:
        _write_brief_table(comparison, names, console, is_fitted=is_fitted)
    else:
        for regime in found:
            console.print(plain(regime.heading, style="bold"), soft_wrap=not is_fitted)
            _write_brief_table(replace(comparison, rows=regime.rows), regime.names, console, is_fitted=is_fitted)
    for line in (show_brief if is_brief else show).legend(comparison):
        console.print(plain(line), soft_wrap=not is_fitted)
    if is_brief and found:
        _write_regimes(found, console, is_fitted=is_fitted)


def _write_brief_table(comparison: Comparison, names: Mapping[str, str], console: Console, *, is_fitted: bool) -> None:
    if not _write_what_fits(comparison, names, console, is_fitted=is_fitted):
        console.print("Intervals of the speed-ups do not fit this width: --all.", soft_wrap=not is_fitted)


def _write_what_fits(comparison: Comparison, names: Mapping[str, str], console: Console, *, is_fitted: bool) -> bool:
    """Write the table for a person; returns whether there was room for the intervals of the speed-ups."""
    out = console.file
    has_speed_interval = fits(_brief_table(comparison, names, has_speed_interval=True), out, is_fitted=is_fitted)
    print_table(_brief_table(comparison, names, has_speed_interval=has_speed_interval), out, is_fitted=is_fitted)
    return has_speed_interval or not any(row.speed and row.speed.ratio for row in comparison.rows)


def _write_regimes(found: Sequence[Regime], console: Console, *, is_fitted: bool) -> None:
    """Write what both regimes come to, last and short enough for a small screen."""
    console.print()
    for regime in found:
        console.print(plain(regime.heading), soft_wrap=not is_fitted)
    _write_regimes_table(found, console, is_fitted=is_fitted)
    console.print(plain(show_regimes.legend(found)), soft_wrap=not is_fitted)


def _write_regimes_table(found: Sequence[Regime], console: Console, *, is_fitted: bool) -> None:
    headers = show_regimes.headers(found)
    with_intervals = ((show_regimes.LATENCY, show_regimes.THROUGHPUT), (show_regimes.LATENCY,), ())
    tables = [_table(headers, show_regimes.cells(found, regimes)) for regimes in with_intervals]
    narrow = _table(headers, show_regimes.cells(found, ()), wrapped_name_width=_LEAST_NAME_WIDTH)
    chosen = next((table for table in tables if fits(table, console.file, is_fitted=is_fitted)), narrow)
    print_table(chosen, console.file, is_fitted=is_fitted)


def _brief_table(comparison: Comparison, names: Mapping[str, str], *, has_speed_interval: bool) -> Table:
    """Return the table for a person."""
    headers = show_brief.headers(comparison)
    if not has_speed_interval:
        headers[-1] = "speed-up"
    rows = show_brief.cells(comparison, names, has_speed_interval=has_speed_interval)
    return _table(headers, rows, wrapped_name_width=_LEAST_NAME_WIDTH)


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]], wrapped_name_width: int | None = None) -> Table:
    """Return a table for `print_table`. wrapped_name_width: the least width to which the first column is wrapped."""
    table = Table(box=box.SIMPLE_HEAD)
    for i, header in enumerate(headers):
        table.add_column(plain(header, keep="\n"), overflow="fold", min_width=None if i else wrapped_name_width)
    for row in rows:
        table.add_row(*map(plain, row))
    return table


def _write_document(comparison: Comparison, warnings: Sequence[str], out: IO[str], shape: ComparisonFormat) -> None:
    names = show.names(comparison)
    table = [show.cells(row, names[row.run.run_id]) for row in comparison.rows]
    runs = [f"{name}: {run_id}" for run_id, name in names.items()]
    if shape == "latex":
        lines = [
            *warnings,
            *runs,
            *show.baseline_lines(comparison),
            *show.difference_lines(comparison.differences, names),
            *show.legend(comparison),
        ]
        out.write("".join(f"% {printable(line)}\n" for line in lines))
        out.write(aligned(show.HEADERS, table, "latex") + "\n")
        return
    out.write("".join(f"**{markdown(line)}**\n\n" for line in warnings))
    out.write("Compared:\n\n" + "".join(f"- {markdown(line)}\n" for line in runs))
    out.write("".join(f"\n{markdown(line)}\n" for line in show.baseline_lines(comparison)) + "\nWhat differs:\n\n")
    differing = show.difference_lines(comparison.differences, names)
    out.write("".join(f"- {markdown(line)}\n" for line in differing) or "- nothing\n")
    out.write("\n" + aligned(show.HEADERS, table, "markdown") + "\n\n")
    out.write("".join(f"{markdown(line)}\n" for line in show.legend(comparison)))
