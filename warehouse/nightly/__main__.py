"""The nightly verdict, PASS, WARN, FAIL or INCONCLUSIVE: `python -m warehouse.nightly`.

It depends only on the database: the same data always give the same verdict. This module is the command; the verdict is
in `warehouse.nightly`.
"""

from __future__ import annotations

import sys
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


class _Commands(WarehouseCommand, click.Group):
    """A command that also has a subcommand."""


def _date(context: click.Context, parameter: click.Parameter, value: datetime | None) -> date | None:
    return None if value is None else value.date()


@click.group(cls=_Commands, invoke_without_command=True)
@database_option("Database of nightly runs.", "warehouse.duckdb in runs/nightly, in runs, or in the current folder")
@click.option(
    "--night",
    type=DATE,
    metavar="YYYY-MM-DD",
    callback=_date,
    help="Night to judge, given as the UTC date on which it started.  [default: the latest]",
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
@click.pass_context
def main(
    context: click.Context,
    database: Path | None,
    night: date | None,
    since: date | None,
    output_format: VerdictFormat | None,
    output: Path | None,
    grader: str | None,
    wait_seconds: float,
) -> int | None:
    """Judge the newest night's results against earlier nights.

    Exit code 0: PASS; 1: FAIL; 3: WARN; 4: INCONCLUSIVE; 2: no verdict was possible.
    """
    if context.invoked_subcommand is not None:
        return None
    from warehouse.nightly.verdict import judged, write

    chosen = choose_format(output_format, output, _BY_ENDING, "table")
    verdict = judged(database or default_nightly_database(), night, since, grader, wait_seconds)
    with complete_output(output) as out:
        write(verdict, out, chosen)
    return verdict.exit_code


@main.command(cls=WarehouseCommand)
@click.argument("file", metavar="FILE.csv", type=click.Path(path_type=Path, exists=True, dir_okay=False))
def replay(file: Path) -> None:
    """Judge your own recorded nights: each night of a CSV file against earlier nights.

    The columns are night (a date), cell (a setting that runs every night), measure, value and n. Names of cells and
    measures are arbitrary. n is the number of samples if the value is a share of samples, else empty. For a share, n
    may also be empty if the problems are the same every night, because the noise is then estimated from the nights. A
    second row with the same night, cell and measure is a rerun.

    \b
        night,cell,measure,value,n
        2026-01-01,my-cell,accuracy,0.62,1600
        2026-01-01,my-cell,seconds,3.4,
        2026-01-02,my-cell,accuracy,0.61,1600
    """
    from harness.cli.screen import Screen
    from warehouse.nightly.verdict import replayed

    Screen(sys.stdout, is_fitted=True).show(replayed(file))


if __name__ == "__main__":
    main(prog_name="python -m warehouse.nightly")
