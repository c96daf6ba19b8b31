"""Output of a night's verdict: table, JSON, Markdown or JUnit XML."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import IO, get_args

from harness.cli.messages import counted
from harness.cli.number_format import NOTHING, fixed
from harness.cli.screen import Column, Line, Page, Screen, Table, exact, printable
from harness.engine import Role
from warehouse.database import WAIT_SECONDS, WarehouseError, reader
from warehouse.nightly.history import keep_nights, kept_nights, read_nights, recorded
from warehouse.nightly.judge import (
    JUDGED,
    PASS_AT_1,
    CellVerdict,
    Ledger,
    MetricVerdict,
    NightVerdict,
    Verdict,
    natural,
    replay,
    shown,
)
from warehouse.options import VerdictFormat
from warehouse.report.tables import markdown
from warehouse.statistics.night import FEWEST

NO_VERDICT = "NO VERDICT"
CELL = "verdict"
"""Name of the JUnit case with a whole cell's verdict."""
_Case = tuple[str, str, str, Sequence[str], Sequence[str]]
"""Class, name, verdict, reasons and values of a JUnit case."""
_STYLES = {"PASS": "green", "WARN": "yellow", "FAIL": "bold red", "INCONCLUSIVE": "magenta"}
_COLUMNS = [Column("verdict", styles=_STYLES), *map(Column, ("cell", "%", "before", "nights", "z"))]
_POWER = [*map(Column, ("detectable (80 % probability)", "change", "cells", "autocorrelation of nights"))]
_OF_PAST = [Column(name) for name in ("night", "cell", "measure", "before", "then", "nights", "z")]


def judged(
    database: Path,
    night: date | None = None,
    since: date | None = None,
    grader: str | None = None,
    wait_seconds: float = WAIT_SECONDS,
) -> NightVerdict:
    """Judge one night, by default the newest. Raises WarehouseError and DatabaseError.

    since: nights before this date are ignored. grader: grader version; default: each run's newest.
    """
    with reader(database, wait_seconds, grader) as connection:
        nights = read_nights(connection, since, kept_nights(database))
    dates = [cells[0].night for cells in nights]
    if not nights:
        raise WarehouseError(f"no night to judge: the database has no runs{f' from {since} on' if since else ''}")
    if night is not None and night not in dates:
        newest = ", ".join(map(str, dates[-5:]))
        raise WarehouseError(f"no runs on the night of {night}; latest nights: {newest}")
    return ordered(replay(nights[: dates.index(night) + 1] if night else nights)[-1])


@dataclass(frozen=True)
class Judged:
    """A night's verdict, in the forms that the nightly job needs."""

    verdict: Verdict
    exit_code: int
    to_confirm: frozenset[str]
    """Ids of the runs to rerun with another seed."""
    markdown: str
    record: dict[str, object]
    """Output of `--json`."""


def judge_and_keep(database: Path, night: date, since: date | None) -> Judged:
    """Judge a night and print the verdict. Raises WarehouseError, DatabaseError and OSError.

    The judged values are also saved next to the database, in case run folders are deleted.
    """
    keep_nights(database)
    found = judged(database, night, since)
    write(found, sys.stdout, "table")
    to_confirm = frozenset(cell.run_id for cell in found.to_confirm if cell.run_id)
    return Judged(found.verdict, found.exit_code, to_confirm, markdown(_page(found)), _record(found))


def ordered(verdict: NightVerdict) -> NightVerdict:
    """Return the verdict with failed cells first, then by cell name (dataset, method, …)."""
    return replace(verdict, cells=sorted(verdict.cells, key=lambda cell: (cell.verdict != "FAIL", cell.cell)))


def write(verdict: NightVerdict, out: IO[str], output_format: VerdictFormat) -> None:
    """Write a night's verdict as a table, JSON, Markdown or JUnit XML."""
    if output_format == "junit":
        out.write(junit(verdict) + "\n")
    elif output_format == "json":
        exact(out).write(json.dumps(_record(verdict), indent=2, ensure_ascii=out.isatty(), allow_nan=False) + "\n")
    elif output_format == "markdown":
        out.write(markdown(_page(verdict)))
    else:
        Screen(out, is_fitted=True).show(_page(verdict))


def _page(verdict: NightVerdict) -> Page:
    opening = f"{verdict.verdict}: night of {verdict.night}, {counted(len(verdict.cells), 'cell')}"
    num_unjudged = sum(not cell.is_judged for cell in verdict.cells)
    yield Line(opening + (f", {num_unjudged} not judged" if num_unjudged else ""), _STYLES[verdict.verdict])
    yield from (Line(warning, "bold red") for warning in verdict.warnings)
    # Commas separate the parts of a name, and the parameters within parentheses.
    parts = [re.split(r", (?![^(]*\))", cell.cell) for cell in verdict.cells]
    common = _common(parts) if len(parts) > 1 else []
    names = [", ".join(part for part in of_cell if part not in common) for of_cell in parts]
    yield Table(_COLUMNS, [_row(cell, name) for cell, name in zip(verdict.cells, names, strict=True)])
    if common:
        yield Line(f"all cells: {', '.join(common)}")
    for cell, name in zip(verdict.cells, names, strict=True):
        for reason in cell.reasons:
            yield Line(f"{name}: {reason}", is_item=True)
    for cell in verdict.to_confirm:
        yield Line(f"still to be rerun with another seed: {cell.run_id} ({cell.cell})", is_item=True)
    if found := powers(verdict):
        yield Table(_POWER, found)


def _common(parts: Sequence[Sequence[str]]) -> list[str]:
    """Return the name parts, except the first, that all cells share, and models that are the only ones in their role.

    parts: the parts of each cell's name.
    """
    number = Counter(part for of_cell in parts for part in of_cell[1:])
    models = Counter(part.split()[0] for part in number)
    return [
        part
        for part, times in number.items()
        if times == len(parts) or (part.split()[0] in get_args(Role) and models[part.split()[0]] == 1)
    ]


def _row(cell: CellVerdict, name: str) -> list[str]:
    look = cell.accuracy and cell.accuracy.look
    before, z = (f"{100 * look.usual:.2f}", fixed(look.tonight, 1)) if look else (NOTHING, NOTHING)
    tonight = NOTHING if cell.score is None else f"{100 * cell.score:.2f}"
    return [cell.verdict, name, tonight, before, str(cell.num_baseline), z]


def powers(verdict: NightVerdict) -> list[list[str]]:
    """Return one row per measure: name, detectable worsening, number of cells and autocorrelation."""
    rows = []
    for measure in JUDGED:
        if found := [m for cell in verdict.cells for m in cell.metrics if m.measure is measure]:
            ends = [f"{100 * of(m.detectable_change for m in found):.1f}" for of in (min, max)]
            size = f"{'+' if measure.better < 0 else '−'}{' to '.join(dict.fromkeys(ends))}"
            ks = {f"{m.night.first.num_samples / m.night.first.num_problems:g}" for m in found}
            of_k = f" (k {', '.join(sorted(ks))})" if measure is PASS_AT_1 else ""
            change = f"{size} {'points' if measure.is_percent else '%'}"
            wander = f"{verdict.spreads[measure.name].autocorrelation:.2f}"
            rows.append([measure.title + of_k, change, str(len(found)), wander])
    return rows


def replayed(file: Path) -> Page:
    """Yield a table of the changes found in the nights of a CSV file, and a line with the number of changed nights.

    Only the recorded values are judged; nothing is rerun. Raises WarehouseError.
    """
    nights, measures = recorded(file)
    verdicts = replay(nights, Ledger(measures, may_rerun=False))
    found = [(verdict.night, m) for verdict in verdicts for cell in verdict.cells for m in cell.metrics if m.side]
    if found:
        yield Table(_OF_PAST, [[str(night), *_of_past(metric)] for night, metric in found])
    num_judged = sum(any(cell.metrics for cell in verdict.cells) for verdict in verdicts)
    differ = f"{len({night for night, _ in found})} of {counted(num_judged, 'judged night')} differ"
    others = counted(len(nights) - num_judged, "other night")
    yield Line(f"{differ} from earlier nights; {others} not judged: fewer than {FEWEST} comparable earlier nights")


def _of_past(metric: MetricVerdict) -> list[str]:
    """Return a recorded measure's table row: the window's mean if its test found the change, else the night's value."""
    look = metric.look
    then, z = (look.window_mean, look.window) if look.is_by_window else (metric.tonight, look.tonight)
    values = [shown(metric.measure, value) for value in (look.usual, then)]
    return [metric.night.cell, metric.measure.title, *values, str(metric.num_baseline), fixed(z, 1)]


def _record(verdict: NightVerdict) -> dict[str, object]:
    return {
        "night": verdict.night.isoformat(),
        "verdict": verdict.verdict,
        "exit_code": verdict.exit_code,
        "warnings": verdict.warnings,
        "cells": [_cell_record(cell) for cell in verdict.cells],
        "autocorrelations": {
            m.title: verdict.spreads[m.name].autocorrelation for m in JUDGED if m.name in verdict.spreads
        },
        "confirm": [cell.run_id for cell in verdict.to_confirm],
    }


def _cell_record(cell: CellVerdict) -> dict[str, object]:
    accuracy = cell.accuracy
    return {
        "cell": cell.cell,
        "verdict": cell.verdict,
        "reasons": list(cell.reasons),
        "run_id": cell.run_id,
        "pass_at_1": cell.score,
        "baseline_pass_at_1": accuracy and accuracy.look.usual,
        "num_baseline_nights": cell.num_baseline,
        "z": accuracy and accuracy.look.tonight,
        "detectable_drop": accuracy and accuracy.detectable_change,
        "needs_rerun": cell.needs_rerun,
        "metrics": [_metric_record(metric) for metric in cell.metrics if metric is not accuracy],
    }


def _metric_record(metric: MetricVerdict) -> dict[str, object]:
    """Return a measure's result as a record: tokens and seconds unscaled, rates as shares."""
    return {
        "name": metric.measure.title,
        "tonight": natural(metric.measure, metric.tonight),
        "baseline": natural(metric.measure, metric.look.usual),
        "num_baseline_nights": metric.num_baseline,
        "z": metric.look.tonight,
        "detectable_change": metric.detectable_change,
        "is_suspicious": metric.is_suspicious,
        "verdict": metric.verdict,
    }


def junit(verdict: NightVerdict) -> str:
    """Return a verdict as JUnit XML: one case per cell, and one per measure.

    FAIL is a failure, INCONCLUSIVE is skipped, and WARN passes with its reasons as output.
    """
    cases = [case for cell in verdict.cells for case in _cases(cell)]
    return _document(verdict.night, verdict.verdict, verdict.exit_code, cases)


def junit_of_none(night: date, reason: str, exit_code: int) -> str:
    """Return JUnit XML with one error case if no verdict was possible."""
    return _document(night, NO_VERDICT, exit_code, [(f"night of {night}", CELL, NO_VERDICT, [reason], [])])


def _cases(cell: CellVerdict) -> Iterator[_Case]:
    run = [f"run {cell.run_id}"] if cell.run_id else []
    numbers = [] if cell.score is None else [f"pass@1 {cell.score:.4f}"]
    numbers += [f"baseline {cell.accuracy.look.usual:.4f}"] if cell.accuracy else []
    yield cell.cell, CELL, cell.verdict, cell.reasons, run + numbers
    for metric in cell.metrics:
        if metric is not cell.accuracy:
            tonight, usual = (natural(metric.measure, value) for value in (metric.tonight, metric.look.usual))
            numbers = [f"tonight {tonight:.6g}", f"baseline {usual:.6g}"]
            reasons = [phrase for _, phrase in metric.said()]
            yield cell.cell, metric.measure.title, metric.verdict, reasons, run + numbers


def _document(night: date, verdict: str, exit_code: int, cases: Sequence[_Case]) -> str:
    from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

    suite = TestSuite(f"night of {night}")
    for key, value in (("night", night), ("verdict", verdict), ("exit_code", exit_code)):
        suite.add_property(key, str(value))
    kinds = {"FAIL": Failure, "INCONCLUSIVE": Skipped, NO_VERDICT: Error}
    for of, name, found, reasons, numbers in cases:
        case = TestCase(printable(name), printable(of))
        if found in kinds:
            case.result = [kinds[found](printable("; ".join(reasons)), found)]
            case.result[0].text = printable("\n".join(reasons), keep="\n")
        lines = [", ".join(numbers)] * bool(numbers) + [f"{found}: {reason}" for reason in reasons]
        case.system_out = printable("\n".join(lines), keep="\n")
        suite.add_testcase(case)
    document = JUnitXml("jobs nightly")
    document.add_testsuite(suite)
    document.update_statistics()  # type: ignore[no-untyped-call]
    content: bytes = document.tostring()  # type: ignore[no-untyped-call]
    return content.decode()
