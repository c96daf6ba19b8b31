"""Write a report on runs: an HTML page, or its tables as Markdown or LaTeX."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from warehouse.comparison.outcomes import check_details, resolve
from warehouse.database import WAIT_SECONDS
from warehouse.graders import reader_for_grader
from warehouse.report import text
from warehouse.report.facts import RunFacts, flips, report_facts
from warehouse.report.figures import all_tables
from warehouse.report.tables import report_warnings

Format = Literal["html", "md", "latex"]
MAX_MEGABYTES = 19.0
"""Default size limit of the HTML page."""
_MEGABYTE = 1_000_000


@dataclass(frozen=True)
class Report:
    """A finished report."""

    content: str
    coverage: str
    """Which traces the page contains, or the number of tables, in one line."""

    def write(self, path: Path) -> str:
        """Write the report to a file and return one line that describes the file. Raises OSError."""
        path.write_text(self.content, encoding="utf-8")
        return f"{path}: {len(self.content.encode()) / _MEGABYTE:.1f} MB. {self.coverage}"


def make_report(
    runs: Sequence[str],
    database: Path,
    output_format: Format = "html",
    *,
    title: str | None = None,
    max_megabytes: float = MAX_MEGABYTES,
    grader: str | None = None,
    wait_seconds: float = WAIT_SECONDS,
) -> Report:
    """Make a report on runs of a database.

    runs: run ids, prefixes of run ids, or paths of run folders. max_megabytes: size limit of the HTML page, which
    leaves out traces that do not fit. Raises WarehouseError and DatabaseError.
    """
    with reader_for_grader(database, grader, wait_seconds) as connection:
        run_ids = list(dict.fromkeys(resolve(connection, run) for run in runs))
        check_details(connection, run_ids)
        facts = report_facts(connection, run_ids)
        pair_flips, title = flips(facts), title or _title(facts)
        if output_format != "html":
            tables = all_tables(facts, pair_flips)
            content = text.write(title, report_warnings(facts), tables, output_format)
            return Report(content, f"{len(tables)} tables")
        from warehouse.report.html import coverage, page

        content, chunks = page(connection, facts, pair_flips, title, int(max_megabytes * _MEGABYTE))
        return Report(content, coverage(chunks))


def _title(facts: Sequence[RunFacts]) -> str:
    return f"Speculative reasoning on {', '.join(sorted({run.summary.dataset for run in facts}))}"
