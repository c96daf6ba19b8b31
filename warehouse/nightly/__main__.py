"""The nightly verdict, PASS, WARN, FAIL or INCONCLUSIVE: `python -m warehouse.nightly`.

It depends on the warehouse alone: the same data give the same verdict at any time. A command front: the verdict is in
`warehouse.nightly`.
"""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from typing import get_args

import click

from harness.cli.command import DATE
from warehouse.options import (
    VerdictFormat,
    WarehouseCommand,
    choose_format,
    complete_output,
    database_option,
    default_nightly_database,
    format_option,
    grader_option,
    output_option,
    wait_option,
)

_BY_ENDING: dict[str, VerdictFormat] = {".json": "json", ".md": "markdown", ".xml": "junit"}


def _date(context: click.Context, parameter: click.Parameter, value: datetime | None) -> date | None:
    return None if value is None else value.date()


@click.command(cls=WarehouseCommand)
@database_option("Database of nightly runs.", "warehouse.duckdb in runs/nightly, in runs, or here")
@click.option(
    "--night",
    type=DATE,
    metavar="YYYY-MM-DD",
    callback=_date,
    help="Date of the evening (UTC) of the night to judge.  [default: the newest]",
)
@click.option(
    "--since",
    type=DATE,
    metavar="YYYY-MM-DD",
    callback=_date,
    help="Ignore nights before this date, for example after an intended change.",
)
@format_option(get_args(VerdictFormat))
@output_option()
@grader_option()
@wait_option()
def main(
    database: Path | None,
    night: date | None,
    since: date | None,
    output_format: VerdictFormat | None,
    output: Path | None,
    grader: str | None,
    wait_seconds: float,
) -> int:
    """Judge the newest night against the nights before it.

    Exit code 0: PASS; 1: FAIL; 3: WARN; 4: INCONCLUSIVE; 2: no verdict was possible.
    """
    from warehouse.nightly.verdict import judged, write

    chosen = choose_format(output_format, output, _BY_ENDING, "table")
    verdict = judged(database or default_nightly_database(), night, since, grader, wait_seconds)
    with complete_output(output) as out:
        write(verdict, out, chosen)
    return verdict.exit_code


if __name__ == "__main__":
    main(prog_name="python -m warehouse.nightly")
