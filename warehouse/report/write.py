"""Write a report on runs: an HTML page, or its tables as Markdown or LaTeX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from warehouse.comparison.contrasts import Settings
from warehouse.comparison.outcomes import resolve
from warehouse.database import WAIT_SECONDS
from warehouse.formats import ReportFormat
from warehouse.graders import reader_for_grader
from warehouse.report import text
from warehouse.report.charts.svg import Chart
from warehouse.report.differences import read_differences
from warehouse.report.distance import read_distances
from warehouse.report.facts import RunFacts, flips, report_facts
from warehouse.report.figures import all_figures, all_tables, sections
from warehouse.report.problem_sets import dataset_titles
from warehouse.report.regimes import within
from warehouse.report.tables import report_warnings

MAX_MEGABYTES = 19.0
"""Default size limit of the HTML page."""
_MEGABYTE = 1_000_000


@dataclass(frozen=True)
class Report:
    """A finished report."""

    content: str
    coverage: str
    """Which traces the page contains, or the number of tables, in one line."""
    charts: Mapping[str, Chart]
    """By the name of the chart's file without its ending."""

    def write(self, path: Path) -> str:
        """Write the report to a file and return one line that describes the file. Raises OSError."""
        path.write_text(self.content, encoding="utf-8")
        return f"{path}: {len(self.content.encode()) / _MEGABYTE:.1f} MB. {self.coverage}"


def make_report(
    runs: Sequence[str],
    database: Path,
    output_format: ReportFormat = "html",
    *,
    title: str | None = None,
    max_megabytes: float = MAX_MEGABYTES,
    settings: Settings | None = None,
    baseline: str | None = None,
    grader: str | None = None,
    absurd_nats: float | None = None,
    wait_seconds: float = WAIT_SECONDS,
) -> Report:
    """Make a report on runs of a database.

    runs: run ids, prefixes of run ids, or paths of run folders. max_megabytes: size limit of the HTML page, which
    leaves out traces that do not fit. settings, baseline: of the differences between runs, as for `compare_runs`.
    absurd_nats: from how many nats of a token on a step is absurd to the target; None: as the database has it. Raises
    WarehouseError and DatabaseError.
    """
    with reader_for_grader(database, grader, wait_seconds) as connection:
        run_ids = list(dict.fromkeys(resolve(connection, run) for run in runs))
        facts = report_facts(connection, run_ids)
        pair_flips, title = within(flips(facts), facts), title or _title(facts)
        baseline_id = resolve(connection, baseline) if baseline else None
        compared = read_differences(connection, run_ids, settings or Settings(), baseline_id)
        distances = read_distances(connection, run_ids, absurd_nats)
        contents = sections(facts, pair_flips, compared, distances)
        charts = {name: chart for figure in all_figures(contents) for name, chart in figure.charts.items()}
        if output_format != "html":
            tables = all_tables(contents)
            warnings = [*report_warnings(facts), *(line for section in contents for line in section.warnings)]
            content = text.write(title, warnings, tables, output_format)
            return Report(content, f"{len(tables)} tables", charts)
        from warehouse.report.html import coverage, page

        content, chunks = page(connection, facts, pair_flips, contents, title, int(max_megabytes * _MEGABYTE))
        return Report(content, coverage(chunks), charts)


def _title(facts: Sequence[RunFacts]) -> str:
    return f"Speculative reasoning on {', '.join(dataset_titles(facts))}"
