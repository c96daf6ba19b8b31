"""Report on runs: `python -m warehouse.report RUN… -o report.html`.

The page is one file without any reference to the network. A report only reads the warehouse.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import click

from harness.command import OneLineErrors
from warehouse.comparison.outcomes import resolve, warehouse_of
from warehouse.database import WAIT_SECONDS, Connection, DatabaseError, WarehouseError, one_line, reader
from warehouse.display import printable
from warehouse.query import choose_grader
from warehouse.report import text
from warehouse.report.facts import RunFacts, flips, report_facts
from warehouse.report.figures import all_tables
from warehouse.report.tables import loud

Format = Literal["html", "md", "latex"]
_SUFFIXES: dict[str, Format] = {".html": "html", ".htm": "html", ".md": "md", ".tex": "latex"}
_MEGABYTE = 1_000_000


def _shape(shape: Format | None, output: Path | None) -> Format:
    chosen = shape or _SUFFIXES.get(output.suffix.lower() if output else ".md")
    if chosen is None:
        raise click.UsageError(f"{output} ends in none of {', '.join(_SUFFIXES)}: rename it or give --format")
    if chosen == "html" and output is None:
        raise click.UsageError("--format html needs -o FILE")
    return chosen


def _title(facts: Sequence[RunFacts]) -> str:
    return f"Speculative reasoning on {', '.join(sorted({run.summary.dataset for run in facts}))}"


def _written(
    connection: Connection, runs: Sequence[str], title: str | None, shape: Format, max_megabytes: float
) -> tuple[str, str]:
    """The report, and a line on what is in it."""
    facts = report_facts(connection, list(dict.fromkeys(resolve(connection, run) for run in runs)))
    found, title = flips(facts), title or _title(facts)
    if shape != "html":
        tables = all_tables(facts, found)
        return text.write(title, loud(facts), tables, shape), f"{len(tables)} tables"
    from warehouse.report.html import coverage, page

    content, chunks = page(connection, facts, found, title, int(max_megabytes * _MEGABYTE))
    return content, coverage(chunks)


@click.command(cls=OneLineErrors)
@click.argument("runs", metavar="RUN…", nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write to FILE.  [default: stdout]",
)
@click.option(
    "--format",
    "shape",
    type=click.Choice(["html", "md", "latex"]),
    help="[default: by FILE's ending (.html, .md, .tex), else md]",
)
@click.option(
    "--database",
    type=click.Path(path_type=Path),
    help="The warehouse.  [default: warehouse.duckdb beside the first run folder, else here]",
)
@click.option("--title", help="The report's title.")
@click.option(
    "--max-megabytes",
    type=click.FloatRange(min=1),
    default=19.0,
    show_default=True,
    help="Size of the page; traces that do not fit are left out, and it says so.",
)
@click.option("--grader", metavar="VERSION", help="Count this grader version's grades.  [default: each run's newest]")
@click.option("--wait", "wait_seconds", default=WAIT_SECONDS, show_default=True, help="Seconds to wait if it is busy.")
def main(
    runs: tuple[str, ...],
    output: Path | None,
    shape: Format | None,
    database: Path | None,
    title: str | None,
    max_megabytes: float,
    grader: str | None,
    wait_seconds: float,
) -> None:
    """Write a report on runs that are in the warehouse. RUN: a run id, the beginning of one, or a run folder.

    HTML: one page with charts, tables and a trace viewer, that needs no network. Markdown, LaTeX: its tables.
    """
    try:
        shape = _shape(shape, output)
        with reader(database or warehouse_of(runs), wait_seconds) as connection:
            if grader is not None:
                choose_grader(connection, grader)
            content, said = _written(connection, runs, title, shape, max_megabytes)
        if output is None:
            click.echo(content, nl=False)
            return
        output.write_text(content, encoding="utf-8")
        click.echo(printable(f"{output}: {len(content.encode()) / _MEGABYTE:.1f} MB. {said}"))
    except (DatabaseError, WarehouseError, OSError) as error:
        click.echo(printable(f"error: {one_line(error)}"), err=True)
        sys.exit(2)


if __name__ == "__main__":
    main(prog_name="python -m warehouse.report")
