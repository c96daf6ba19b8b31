"""Judge a recorded past: a CSV file of nights, by the rule that judges the nights of a warehouse."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from harness.plural import counted
from warehouse.files import WarehouseError
from warehouse.statistics.night import FEWEST, MOST, WINDOW, Look, Series, Value, looks

COLUMNS = ("night", "cell", "measure", "value", "n")
Nights = Mapping[date, Mapping[str, Mapping[str, Sequence[Value]]]]
"""The runs of each night, by measure and cell, oldest night first."""


@dataclass(frozen=True)
class Found:
    """What is seen of one measure of one cell in one night."""

    night: date
    measure: str
    cell: str
    tonight: float
    look: Look
    num_baseline: int

    @property
    def side(self) -> int:
        """1 for a rise, −1 for a fall, 0 for neither; without a re-run a night decides by itself."""
        return self.look.side(is_confirmed=True)

    def __str__(self) -> str:
        """Return a line with the value tonight, the usual one, and the difference in standard errors."""
        window = f", {self.look.window_mean:.4g} over the last nights" if self.look.is_by_window else ""
        found = f"{self.measure} {self.look.usual:.4g} → {self.tonight:.4g}{window}"
        z = max(self.look.tonight, self.look.window, key=abs)
        return (
            f"{self.night} {self.cell}: {found}, {z:.1f} standard errors, {counted(self.num_baseline, 'night')} before"
        )


def read(file: Path) -> Nights:
    """Read a CSV file with COLUMNS. Raises WarehouseError with the line's number."""
    nights: dict[date, dict[str, dict[str, list[Value]]]] = {}
    with file.open(encoding="utf-8", newline="") as lines:
        table = csv.DictReader(lines)
        if missing := {*COLUMNS[:4]} - {*(table.fieldnames or ())}:
            raise WarehouseError(f"{file} lacks columns: {', '.join(sorted(missing))}; it needs {', '.join(COLUMNS)}")
        for row in table:
            try:
                night, value = date.fromisoformat(row["night"]), float(row["value"])
                variance = _variance(value, row.get("n") or "")
            except (ValueError, TypeError) as error:
                raise WarehouseError(f"{file}, line {table.line_num}: {error}") from error
            of_measure = nights.setdefault(night, {}).setdefault(row["measure"], {})
            of_measure.setdefault(row["cell"], []).append(Value(night.toordinal(), value, variance))
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


def replay(nights: Nights) -> Iterator[list[Found]]:
    """Yield what is seen of the measures of each night, without those that have too few nights before."""
    past: dict[tuple[str, str], list[Value]] = {}
    usual: dict[tuple[str, str], list[Value]] = {}
    for night, measures in nights.items():
        found = []
        for measure, cells in measures.items():
            old = {cell: runs for cell, runs in cells.items() if len(usual.get((measure, cell), ())) >= FEWEST}
            series = [
                Series(usual[measure, cell], runs[0], _mean(runs), past[measure, cell][1 - WINDOW :])
                for cell, runs in old.items()
            ]
            for cell, one, look in zip(old, series, looks(series)[1] if series else [], strict=True):
                num_baseline = min(MOST, len(one.earlier))
                found.append(Found(night, measure, cell, one.together.value, look, num_baseline))
        differing = {(one.measure, one.cell) for one in found if one.side}
        for measure, cells in measures.items():
            for cell, runs in cells.items():
                if (measure, cell) not in differing:  # what differs must not become usual
                    usual.setdefault((measure, cell), []).append(_mean(runs))
                    past.setdefault((measure, cell), []).append(_mean(runs))
        yield found


def _mean(runs: Sequence[Value]) -> Value:
    if len(runs) == 1:
        return runs[0]
    number = len(runs)
    return Value(runs[0].day, sum(r.value for r in runs) / number, sum(r.variance for r in runs) / number**2)


def lines(nights: Nights) -> Iterator[str]:
    """Yield a line for each change that is found, and last how many nights have one."""
    num_nights = num_judged = num_changed = 0
    for found in replay(nights):
        changed = [one for one in found if one.side]
        num_nights, num_judged = num_nights + 1, num_judged + bool(found)
        num_changed += bool(changed)
        yield from map(str, changed)
    if num_nights:
        of_all = f"{num_changed} of {counted(num_judged, 'judged night')} differ from the nights before"
        yield f"{of_all}; {num_nights - num_judged} had fewer than {FEWEST} nights before"
