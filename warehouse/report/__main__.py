"""Report on runs: `python -m warehouse.report RUN… -o report.html`.

The page is one self-contained file. Creating a report does not change the database.
"""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import click

from harness.cli.messages import counted
from warehouse.options import (
    ReportFormat,
    WarehouseCommand,
    baseline_option,
    choose_format,
    database_option,
    default_database,
    format_option,
    grader_option,
    margin_option,
    output_option,
    runs_argument,
    wait_option,
)

_BY_ENDING: dict[str, ReportFormat] = {".html": "html", ".htm": "html", ".md": "md", ".tex": "latex"}


@click.command(cls=WarehouseCommand)
@runs_argument()
@output_option()
@format_option(get_args(ReportFormat), "by FILE's extension (.html, .md, .tex), otherwise md")
@database_option()
@click.option("--title", help="Title of the report.")
@click.option(
    "--max-megabytes",
    type=click.FloatRange(min=1),
    default=19.0,
    show_default=True,
    help="Maximum size of the page. Traces that do not fit are omitted, and the page reports their number.",
)
@click.option(
    "--figures",
    "figures_folder",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write all figures to DIR as SVG and PDF, one paper column wide. Without -o and --format: only figures.",
)
@baseline_option("Baseline for the differences.  [default: as in warehouse.compare]")
@margin_option('Margin of "not worse", in percentage points.')
@grader_option()
@wait_option()
def main(
    runs: tuple[str, ...],
    output: Path | None,
    output_format: ReportFormat | None,
    database: Path | None,
    title: str | None,
    max_megabytes: float,
    figures_folder: Path | None,
    baseline: str | None,
    margin_points: float,
    grader: str | None,
    wait_seconds: float,
) -> None:
    """Write a report on loaded runs. RUN: a run id, a unique prefix, or a run folder.

    HTML: one page with charts, tables and a trace viewer; it works offline. Markdown and LaTeX: only the tables.
    """
    from harness.cli.screen import printable
    from warehouse.comparison.contrasts import Settings
    from warehouse.report.page import make_report
    from warehouse.report.paper_charts import check_installed, write_charts

    if figures_folder is not None:
        check_installed()
    report = make_report(
        runs,
        database or default_database(runs[0]),
        choose_format(output_format, output, _BY_ENDING, "md", file_only=["html"], is_ending_required=True),
        title=title,
        max_megabytes=max_megabytes,
        settings=Settings(margin=margin_points / 100),
        baseline=baseline,
        grader=grader,
        wait_seconds=wait_seconds,
    )
    if output is not None:
        click.echo(printable(report.write(output)))
    elif figures_folder is None or output_format is not None:
        click.echo(report.content, nl=False)
    if figures_folder is not None:
        files = write_charts(report.charts, figures_folder)
        click.echo(
            printable(f"{figures_folder}: {counted(len(report.charts), 'figure')} in {counted(len(files), 'file')}")
        )


if __name__ == "__main__":
    main(prog_name="python -m warehouse.report")
