"""The command that launches the runs of a suite, probes and compares them."""

from __future__ import annotations

import re
from pathlib import Path
from shlex import quote
from typing import Any

import click

from jobs.arguments import ACCEPT_CODE_CHANGE, JSON_OUTCOME, MAX_GPU_HOURS, RunCommand, given
from jobs.cli.examples import suite_file


@click.command("suite", cls=RunCommand, prints_outcome=True, short_help="Launch the runs of a file.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--tag", help="Tag of every run; with another tag they are new runs with new samples.")
@click.option("--dry-run", is_flag=True, help="Print what would be done, and exit.")
@click.option("--wait", is_flag=True, help="On Slurm, wait until the runs have ended, then compare them too.")
@MAX_GPU_HOURS
@JSON_OUTCOME
@ACCEPT_CODE_CHANGE
def launch_suite(
    file: Path,
    tag: str | None,
    dry_run: bool,
    wait: bool,
    as_json: bool,
    accept: bool,
    **cost: Any,
) -> None:
    """Launch the runs of a file one after the other; if they run on this machine, compare them and write a report.

    FILE is a TOML file of launches (python -m jobs example suite), or a bundled one: demo
    has four methods with the bundled toy models, demo-methods has five others, and specreason-probe has SpecReason's
    pair on a GPU and what its judge truly lets through.
    """
    from jobs import outcome
    from jobs import suite as suites
    from jobs.command import launch_errors_in_one_line

    if tag and re.match(r"\d{4}-\d{2}-\d{2}", tag):
        raise click.UsageError(
            f"--tag {tag}: tags that begin with a date are those of nights; choose another, or launch a night with: "
            f"python -m jobs nightly --suite {quote(str(file))} --date {tag[:10]}"
        )
    with outcome.printed(outcome.SuiteOutcome(file.stem), as_json=as_json) as known, launch_errors_in_one_line():
        chosen = suites.read(suite_file(file), overrides=given(cost))
        suites.carry_out(known, chosen, tag, is_dry=dry_run, waits=wait, accept_code_change=accept)
