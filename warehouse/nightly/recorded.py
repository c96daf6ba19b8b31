"""Judge a recorded past: a CSV file of nights, by the rule that judges the nights of a warehouse."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path

from harness.cli.messages import counted
from warehouse.files import WarehouseError
from warehouse.statistics.night import FEWEST, MOST, WINDOW, Look, Series, Value, looks

COLUMNS = ("night", "cell", "measure", "value", "n")
Nights = Mapping[date, Mapping[str, Mapping[str, Sequence[Value]]]]
"""The runs of each night, by measure and cell, oldest night first."""


def read(file: Path) -> Nights:
    """Read a CSV file with COLUMNS. Raises WarehouseError with the line's number."""
    nights: dict[date, dict[str, dict[str, list[Value]]]] = {}
    with file.open(encoding="utf-8", newline="") as lines:
        table = csv.DictReader(lines)
        if missing := {*COLUMNS[:4]} - {*(table.fieldnames or ())}:
            raise WarehouseError(f"{file} lacks columns: {', '.join(sorted(missing))}; it needs {', '.join(COLUMNS)}")
        for row in table:
            try:
                if None in row.values() or not (row["cell"] and row["measure"]):
                    raise ValueError(f"a row needs {', '.join(table.fieldnames or ())}; only n may be empty")
                night, value = date.fromisoformat(row["night"]), float(row["value"])
                variance = _variance(value, row.get("n") or "")
            except (ValueError, TypeError) as error:
                raise WarehouseError(f"{file}, line {table.line_num}: {error}") from error
            of_measure = nights.setdefault(night, {}).setdefault(row["measure"], {})
            of_measure.setdefault(row["cell"], []).append(Value(night.toordinal(), value, variance))
    if not nights:
        raise WarehouseError(f"{file} has no nights")
    return dict(sorted(nights.items()))


def _variance(value: float, n: str) -> float:
    """Return the sampling variance of a share of n samples, each problem's own chance unknown; 0 without n."""
    if not math.isfinite(value):
        raise ValueError(f"{value} is no value of a night")
    if not n:
        return 0.0
    number = float(n)
    if not (0 <= value <= 1 and number >= 1):
        raise ValueError(f"n is for shares between 0 and 1, of at least 1 sample: not for {value} of {n}")
    return max(value * (1 - value), 1 / number) / number


def replay(nights: Nights) -> Iterator[str]:
    """Yield a line for each measure of a night that differs from the nights before, and last how many nights do.

    Without a re-run a night decides by itself.
    """
    past: dict[tuple[str, str], list[Value]] = {}
    recent: dict[tuple[str, str], list[Value]] = {}
    num_judged = num_differing = 0
    for night, measures in nights.items():
        is_judged = differs = False
        for measure, cells in measures.items():
            runs = {cell: past.setdefault((measure, cell), []) for cell in cells}
            old = {cell: earlier for cell, earlier in runs.items() if len(earlier) >= FEWEST}
            window = {cell: recent.setdefault((measure, cell), []) for cell in cells}
            series = [Series(old[c], cells[c][0], _mean(cells[c]), window[c][1 - WINDOW :]) for c in old]
            found = dict(zip(old, looks(series)[1], strict=True)) if old else {}
            is_judged = is_judged or bool(found)
            for cell, earlier in runs.items():
                window[cell].append(_mean(cells[cell]))
                if cell in found and found[cell].side(is_confirmed=True):
                    differs = True
                    yield f"{night} {cell}: {measure} {_described(found[cell], _mean(cells[cell]), len(earlier))}"
                elif cell not in found or not found[cell].is_suspicious:  # what differs must not become usual
                    earlier.append(_mean(cells[cell]))
        num_judged, num_differing = num_judged + is_judged, num_differing + differs
    young = f"{len(nights) - num_judged} had fewer than {FEWEST} nights before"
    yield f"{num_differing} of {counted(num_judged, 'judged night')} differ from the nights before; {young}"


def _described(look: Look, tonight: Value, num_earlier: int) -> str:
    window = f", {look.window_mean:.4g} over the last nights" if look.is_by_window else ""
    z = max(look.tonight, look.window, key=abs)
    before = counted(min(MOST, num_earlier), "night")
    return f"{look.usual:.4g} → {tonight.value:.4g}{window}, {z:.1f} standard errors, {before} before"


def _mean(runs: Sequence[Value]) -> Value:
    if len(runs) == 1:
        return runs[0]
    number = len(runs)
    return Value(runs[0].day, sum(r.value for r in runs) / number, sum(r.variance for r in runs) / number**2)
