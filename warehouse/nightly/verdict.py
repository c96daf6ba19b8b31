"""The verdict on one night of a warehouse, and how it is written: as a table, JSON, Markdown or JUnit XML."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import IO, TYPE_CHECKING

from harness.cli.messages import counted
from harness.cli.number_format import NOTHING, fixed
from harness.cli.screen import Column, Line, Page, Screen, Table, printable
from warehouse.database import WAIT_SECONDS, WarehouseError, reader_for_grader
from warehouse.nightly.cells import CellNight
from warehouse.nightly.history import kept_nights, read_nights
from warehouse.nightly.judge import CellVerdict, NightVerdict, Verdict, about, replay
from warehouse.nightly.metrics import METRICS, detectable
from warehouse.options import VerdictFormat
from warehouse.tables import markdown

if TYPE_CHECKING:
    from junitparser import TestCase
    from junitparser.junitparser import FinalResult

_HEADERS = ("verdict", "cell", "%", "baseline %", "nights", "z", "detectable drop", "why")
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
    return ordered(replay(until(nights, night))[-1])


def ordered(verdict: NightVerdict) -> NightVerdict:
    """Return the verdict with failed cells first, then by the cells' names, which begin with dataset and method."""
    return replace(verdict, cells=sorted(verdict.cells, key=lambda cell: (cell.verdict != "FAIL", cell.cell)))


def write(verdict: NightVerdict, out: IO[str], output_format: VerdictFormat) -> None:
    """Write the verdict on one night as a table, JSON, Markdown or JUnit XML."""
    if output_format == "junit":
        out.write(junit(verdict) + "\n")
        return
    if output_format == "json":
        out.write(json.dumps(_record(verdict), indent=2, ensure_ascii=out.isatty(), allow_nan=False) + "\n")
        return
    opening = f"{verdict.verdict}: night of {verdict.night}, {counted(len(verdict.cells), 'cell')}"
    num_unjudged = sum(not cell.is_judged for cell in verdict.cells)
    opening += f", of which {num_unjudged} not judged" if num_unjudged else ""
    confirm = [f"run again with another seed: {cell.run_id} ({cell.cell})" for cell in verdict.to_confirm]
    columns = [Column(_HEADERS[0], styles=_STYLES), *map(Column, _HEADERS[1:])]
    page: Page = [
        Line(opening, style=_STYLES[verdict.verdict]),
        Table(columns, [_cells(cell) for cell in verdict.cells]),
        *(Line(line, is_item=output_format == "markdown") for line in (*confirm, *remarks(verdict))),
    ]
    if output_format == "markdown":
        out.write(markdown(page))
    else:
        Screen(out).show(page)


def remarks(verdict: NightVerdict) -> Iterator[str]:
    """Yield a line for each metric with the changes that would be found."""
    for metric in METRICS:
        found = [m for cell in verdict.cells for m in cell.metrics if m.metric is metric]
        if found:
            yield detectable(found, verdict.spreads)


def _cells(cell: CellVerdict) -> list[str]:
    accuracy = cell.accuracy
    return [
        cell.verdict,
        cell.cell,
        NOTHING if cell.score is None else f"{100 * cell.score:.2f}",
        *(
            (NOTHING, str(cell.num_baseline), NOTHING, NOTHING)
            if accuracy is None
            else (
                f"{100 * accuracy.look.usual:.2f}",
                str(cell.num_baseline),
                fixed(accuracy.look.tonight, 1),
                f"{100 * accuracy.detectable_change:.1f} points",
            )
        ),
        "; ".join(cell.reasons),
    ]


def _record(verdict: NightVerdict) -> dict[str, object]:
    return {
        "night": verdict.night.isoformat(),
        "verdict": verdict.verdict,
        "exit_code": verdict.exit_code,
        "cells": [_cell_record(cell) for cell in verdict.cells],
        "autocorrelations": {name: spread.autocorrelation for name, spread in verdict.spreads.items()},
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
        "metrics": [metric.as_record() for metric in cell.metrics[1:]],
    }


CELL = "verdict"
"""Name of the JUnit case that has the verdict on a whole cell."""


def junit(verdict: NightVerdict) -> str:
    """Return a verdict as JUnit XML: one case per cell, and one per metric of it.

    FAIL is a failure, INCONCLUSIVE is skipped, and WARN passes with its reasons as output.
    """
    cases = [case for cell in verdict.cells for case in _cases(cell)]
    return _document(verdict.night, verdict.verdict, verdict.exit_code, cases)


def junit_of_none(night: date, reason: str, exit_code: int) -> str:
    """Return JUnit XML with one case, which is an error, where no verdict was possible."""
    from junitparser import Error, TestCase

    case = TestCase(CELL, f"night of {night}")
    case.result = [_result(Error, [reason], "NO VERDICT")]
    return _document(night, "NO VERDICT", exit_code, [case])


def _document(night: date, verdict: str, exit_code: int, cases: Sequence[TestCase]) -> str:
    from junitparser import JUnitXml, TestSuite

    suite = TestSuite(f"night of {night}")
    for name, value in (("night", night), ("verdict", verdict), ("exit_code", exit_code)):
        suite.add_property(name, str(value))
    suite.add_testcases([*cases])
    document = JUnitXml("jobs nightly")
    document.add_testsuite(suite)
    document.update_statistics()  # type: ignore[no-untyped-call]
    content: bytes = document.tostring()  # type: ignore[no-untyped-call]
    return content.decode()


def _cases(cell: CellVerdict) -> Iterator[TestCase]:
    run = [f"run {cell.run_id}"] if cell.run_id else []
    numbers = [] if cell.score is None else [f"pass@1 {cell.score:.4f}"]
    numbers += [] if cell.accuracy is None else [f"baseline {cell.accuracy.look.usual:.4f}"]
    yield _case(cell.cell, CELL, cell.verdict, cell.reasons, [*run, *numbers])
    for metric in cell.metrics[1:]:
        said = about(metric)
        verdict: Verdict = said[0][0] if said else "PASS"
        record = metric.as_record()
        numbers = [f"tonight {record['tonight']:.6g}", f"baseline {record['baseline']:.6g}"]
        yield _case(cell.cell, metric.metric.name, verdict, [phrase for _, phrase in said], [*run, *numbers])


def _case(cell: str, name: str, verdict: Verdict, reasons: Sequence[str], numbers: Sequence[str]) -> TestCase:
    from junitparser import Failure, Skipped, TestCase

    case = TestCase(printable(name), printable(cell))
    if verdict == "FAIL":
        case.result = [_result(Failure, reasons, verdict)]
    elif verdict == "INCONCLUSIVE":
        case.result = [_result(Skipped, reasons, verdict)]
    shown = [", ".join(numbers), *(f"{verdict}: {reason}" for reason in reasons)]
    case.system_out = printable("\n".join(line for line in shown if line), keep="\n")
    return case


def _result(kind: type[FinalResult], reasons: Sequence[str], verdict: str) -> FinalResult:
    result = kind(printable("; ".join(reasons)), verdict)
    result.text = printable("\n".join(reasons), keep="\n")
    return result
