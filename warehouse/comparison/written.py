"""Write a comparison to a file or terminal as a table, CSV, JSON, Markdown or LaTeX."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import IO

from harness.cli.screen import Line, Screen, Table, exact, printable
from warehouse.comparison import show
from warehouse.comparison.contrasts import Comparison
from warehouse.comparison.manifests import differences
from warehouse.options import ComparisonFormat
from warehouse.report.tables import LATEX_NEEDS, latex, markdown, of_records, write_csv


def write(comparison: Comparison, out: IO[str], shape: ComparisonFormat, *, is_brief: bool = False) -> None:
    """Write a comparison. All formats except CSV, which has only the rows, start with the warnings.

    is_brief: a table has only the main columns and fits the width in COLUMNS; LaTeX has only the columns usually
    reported in papers. The other formats are always complete.
    """
    if shape == "table":
        screen = Screen(out, is_fitted=True)
        screen.show(_brief_page(comparison, screen) if is_brief else _complete_page(comparison))
    elif shape == "csv":
        write_csv(of_records(show.records(comparison)), out)
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
            "rows": show.records(comparison),
        }
        exact(out).write(json.dumps(document, indent=2, ensure_ascii=out.isatty(), allow_nan=False) + "\n")
    elif shape == "latex":
        out.write(_latex(comparison, is_brief=is_brief))
    else:
        out.write(markdown(_complete_page(comparison)))


def _brief(comparison: Comparison, screen: Screen) -> Table:
    """Return the brief table, without speed-up intervals if they do not fit."""
    full = show.brief_table(comparison)
    is_full = len(screen.fitting(full)) == len(full.columns)
    table = full if is_full else show.brief_table(comparison, has_speed_interval=False)
    return replace(table, notes=show.brief_notes(comparison, has_speed_interval=is_full))


def _brief_page(comparison: Comparison, screen: Screen) -> Iterator[Line | Table]:
    for line in show.merged(show.warnings(comparison), show.names(comparison)):
        yield Line(line, "bold red")
    yield _brief(comparison, screen)


def write_short(comparison: Comparison, out: IO[str]) -> None:
    """Write a suite's results; one row per setting if runs with one and several samples in flight have baselines."""
    screen, found, names = Screen(out, is_fitted=True), show.regimes(comparison), show.names(comparison)
    for line in show.merged(show.warnings(comparison), names):
        screen.say(line, "bold red")
    for rows in found.values():
        for dataset in dict.fromkeys(row.run.dataset for row in rows):
            own = {row.run.run_id: row.run.manifest for row in rows if row.run.dataset == dataset}
            affecting = [d for d in differences(list(own.values())) if d.matter not in ("subject", "note")]
            for line in show.difference_lines(affecting, {run_id: names[run_id] for run_id in own}):
                screen.say(f"DIFFERENT SETTINGS: {line}", "bold red")
    if not found:
        screen.table(_brief(comparison, screen))
        return
    full = show.regimes_table(found)
    is_full = len(screen.fitting(full)) == len(full.columns)
    screen.table(full if is_full else show.regimes_table(found, has_intervals=False))


def _complete_page(comparison: Comparison) -> Iterator[Line | Table]:
    yield from _head(comparison)
    yield from show.complete_tables(comparison)
    yield Line("")
    yield from map(Line, show.legend(comparison))


def _head(comparison: Comparison) -> Iterator[Line]:
    """Yield the warnings, the compared runs, and their differences."""
    names = show.names(comparison)
    yield from (Line(line, "bold red") for line in show.merged(show.warnings(comparison), names))
    yield Line("Compared:", "bold")
    yield from (Line(f"{name}: {run_id}", is_item=True) for run_id, name in names.items())
    yield from map(Line, show.baseline_lines(comparison))
    yield Line("What differs:", "bold")
    for line in list(show.difference_lines(comparison.differences, names)) or ["only the methods"]:
        yield Line(line, is_item=True)


def _latex(comparison: Comparison, *, is_brief: bool) -> str:
    comments = "".join(f"% {printable(line)}\n" for line in (LATEX_NEEDS, *(line.text for line in _head(comparison))))
    if is_brief:
        tables, caption = [show.paper_table(comparison)], show.paper_caption(comparison)
    else:
        tables, caption = show.complete_tables(comparison), " ".join(show.legend(comparison))
    return f"{comments}{latex(tables, caption, 'comparison')}\n"
