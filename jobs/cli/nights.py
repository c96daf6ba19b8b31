"""The command that launches a suite for a night and judges it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli import exit_codes
from harness.cli.command import DATE, OutputFile
from harness.plural import counted
from jobs.arguments import ACCEPT_CODE_CHANGE, JSON_OUTCOME, MAX_GPU_HOURS, RunCommand, given

if TYPE_CHECKING:
    from jobs.outcome import NightOutcome
    from jobs.run.folder import RunFolder


@click.command(cls=RunCommand, prints_outcome=True, short_help="Launch a suite for a night and judge it.")
@click.option(
    "--suite",
    type=click.Path(path_type=Path),
    required=True,
    help="TOML file of launches; an example: python -m jobs example suite.",
)
@click.option("--date", "night", type=DATE, metavar="YYYY-MM-DD", help="Date of the night.  [default: today, UTC]")
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

    evening = night.date() if night else nights.tonight()
    with outcome.printed(outcome.NightOutcome(evening), as_json=as_json) as known:
        if dry_run:
            known.runs = _preview_night(suite, evening, given(cost), accept=accept)
            return
        _launch_night(known, suite, given(cost), wait=wait, junit=junit, accept=accept, as_json=as_json)
    sys.exit(known.exit_code)


def _preview_night(suite: Path, evening: date, cost: Mapping[str, Any], *, accept: bool) -> list[RunFolder]:
    from jobs import nightly as nights
    from jobs.command import launch_errors_in_one_line

    with launch_errors_in_one_line():
        return nights.preview(suite, evening, cost, accept_code_change=accept)


def _launch_night(
    known: NightOutcome,
    suite: Path,
    cost: Mapping[str, Any],
    *,
    wait: bool,
    junit: Path | None,
    accept: bool,
    as_json: bool,
) -> None:
    from jobs import nightly as nights
    from jobs import suite as suites
    from jobs.command import launch_errors_in_one_line
    from jobs.nights import awaited

    evening = known.night
    with launch_errors_in_one_line():
        launched = nights.launch(suite, evening, accept_code_change=accept, overrides=cost)
        chosen = suites.read(suite, suites.NIGHTLY_OUTPUT)
    known.runs, known.verdict_job = list(launched.runs.values()), launched.verdict_job
    if launched.verdict_job:
        num_runs = counted(len(launched.runs), "run")
        click.echo(f"night of {evening}: {num_runs}; the verdict is job {launched.verdict_job}{launched.notice}")
        if not wait and junit is None:
            return
        known.exit_code = awaited.wait(chosen, evening)
    else:
        with launch_errors_in_one_line():
            try:
                known.exit_code = nights.conclude(str(suite), evening.isoformat())
            except nights.NightFailed:
                known.exit_code = exit_codes.TROUBLE
    if as_json:
        known.verdict = awaited.record(chosen, evening, known.exit_code)
    if (page := chosen.output.resolve() / "nights" / f"{evening}.md").exists():
        known.page = page
    if junit is not None:
        awaited.write_junit(chosen, evening, junit, known.exit_code)
