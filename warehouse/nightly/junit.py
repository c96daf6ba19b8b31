"""The verdict on a night as JUnit XML, which continuous integration shows: one case per cell, and one per metric of it.

The only module that imports junitparser.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite
from junitparser.junitparser import FinalResult

from warehouse.display import printable
from warehouse.nightly.judge import CellVerdict, NightVerdict
from warehouse.nightly.reasons import Verdict, about_metric
from warehouse.nightly.words import as_record

CELL = "verdict"
"""Name of the case that has the verdict on a whole cell."""


def of_verdict(verdict: NightVerdict) -> str:
    """Return a document: FAIL is a failure, INCONCLUSIVE is skipped, and WARN passes with its reasons as output."""
    cases = [case for cell in verdict.cells for case in _cases(cell)]
    return _document(verdict.night, verdict.verdict, verdict.exit_code, cases)


def of_no_verdict(night: date, reason: str, exit_code: int) -> str:
    """Return a document with one case, which is an error, where no verdict was possible."""
    case = TestCase(CELL, f"night of {night}")
    case.result = [_result(Error, [reason], "NO VERDICT")]
    return _document(night, "NO VERDICT", exit_code, [case])


def _document(night: date, verdict: str, exit_code: int, cases: Sequence[TestCase]) -> str:
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
    numbers = [] if cell.score is None else [f"pass@1 {cell.score:.4f}"]
    numbers += [] if cell.baseline_score is None else [f"baseline {cell.baseline_score:.4f}"]
    run = [f"run {cell.run_id}"] if cell.run_id else []
    yield _case(cell.cell, CELL, cell.verdict, cell.reasons, [*run, *numbers])
    for metric in cell.metrics:
        said = about_metric(metric)
        verdict: Verdict = said[0][0] if said else "PASS"
        record = as_record(metric)
        numbers = [f"tonight {record['tonight']:.6g}", f"baseline {record['baseline']:.6g}"]
        yield _case(cell.cell, metric.metric.name, verdict, [phrase for _, phrase in said], [*run, *numbers])


def _case(cell: str, name: str, verdict: Verdict, reasons: Sequence[str], numbers: Sequence[str]) -> TestCase:
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
