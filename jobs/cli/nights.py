"""The command that launches a suite for a night and judges it."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from harness.cli.command import Date, OutputFile
from jobs.arguments import ACCEPT_CODE_CHANGE, JSON_OUTCOME, MAX_GPU_HOURS, RunCommand, given


@click.command(cls=RunCommand, prints_outcome=True, short_help="Launch a suite for a night and judge it.")
@click.option(
    "--suite",
    type=click.Path(path_type=Path),
    required=True,
    help="TOML file of launches; an example: python -m jobs example suite.",
)
@click.option("--date", "night", type=Date(), help="Date of the night.  [default: today, UTC]")
@click.option("--wait", is_flag=True, help="On Slurm, wait for the verdict and end with its exit code.")
@click.option(
    "--junit",
    metavar="FILE",
    type=OutputFile(".xml"),
    help="Write the verdict to FILE as JUnit XML, a case per cell and metric; waits for the verdict.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be done, and exit.")
@MAX_GPU_HOURS
@JSON_OUTCOME
@ACCEPT_CODE_CHANGE
def nightly(
    suite: Path,
    night: datetime | None,
    wait: bool,
    junit: Path | None,
    dry_run: bool,
    as_json: bool,
    accept: bool,
    **cost: Any,
) -> None:
    """Launch a suite for a night, and after it a job that compares the night with those before it.

    Exit code of that job, or of this command where the runs are on this machine or with --wait, 0: PASS; 1: FAIL;
    3: WARN; 4: INCONCLUSIVE; 2: no verdict was possible. On Slurm the command otherwise ends with 0 once everything is
    submitted.
    """
    from jobs import nightly as nights
    from jobs import outcome
    from jobs.command import launch_errors_in_one_line

    evening = night.date() if night else nights.tonight()
    with outcome.printed(outcome.NightOutcome(evening), as_json=as_json) as known, launch_errors_in_one_line():
        nights.carry_out(
            known,
            suite,
            given(cost),
            is_dry=dry_run,
            waits=wait,
            junit=junit,
            as_json=as_json,
            accept_code_change=accept,
        )
    sys.exit(known.exit_code)
