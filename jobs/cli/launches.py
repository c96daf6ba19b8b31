"""The command that launches the runs of a suite, probes and compares them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from harness.cli.program import typed
from jobs.arguments import ACCEPT_CODE_CHANGE, JSON_OUTCOME, MAX_GPU_HOURS, RunCommand, given
from jobs.cli.examples import suite_file

if TYPE_CHECKING:
    from jobs.outcome import SuiteOutcome
    from jobs.preparation import PreparedLaunch
    from jobs.suite import Suite


@dataclass(frozen=True)
class _How:
    """How a suite is launched."""

    cost: Mapping[str, Any]
    """The limit on GPU-hours and the file for the estimate, as far as they were given."""
    is_dry: bool
    is_waiting: bool
    accept: bool


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

    with outcome.printed(outcome.SuiteOutcome(file.stem), as_json=as_json) as known:
        how = _How(given(cost), is_dry=dry_run, is_waiting=wait, accept=accept)
        _launch_suite(known, file, tag, how)


def _launch_suite(known: SuiteOutcome, file: Path, tag: str | None, how: _How) -> None:
    from rich.console import Console

    from jobs import suite as suites
    from jobs import waiting
    from jobs.after.warehouse import compare_and_report
    from jobs.command import launch_errors_in_one_line
    from jobs.probing import of_suite
    from jobs.run import submissions

    if tag and re.match(r"\d{4}-\d{2}-\d{2}", tag):
        raise click.UsageError(
            f"--tag {tag}: tags that begin with a date are those of nights; choose another, or launch a night with: "
            f"python -m jobs nightly --suite {quote(str(file))} --date {tag[:10]}"
        )
    with launch_errors_in_one_line():
        chosen = suites.read(suite_file(file), overrides=how.cost)
        launches = suites.prepare(chosen, tag, accept_code_change=how.accept)
        known.runs = [prepared.run for prepared in launches]
        if how.is_dry:
            suites.preview(launches, Console(highlight=False))
            if chosen.probe is not None:
                click.echo(of_suite.in_words(launches, chosen.probe))
            return
        runs = suites.start(launches)
        if how.is_waiting:
            waiting.wait(runs, Console(highlight=False))
    page = chosen.output / f"{chosen.name}.html"
    if not how.is_waiting and any(submissions.read(run) for run in runs):
        with launch_errors_in_one_line():
            _probe(chosen, launches, is_waiting=False)
        folders = " ".join(quote(str(run.path)) for run in runs)
        click.echo(f"Once their jobs have ended:\n  {typed('warehouse.compare')} {folders}")
        click.echo(f"  {typed('warehouse.report')} {folders} -o {quote(str(page))}")
        return

    def compare() -> None:
        compare_and_report(runs, page)
        known.report = page

    with launch_errors_in_one_line():
        _probe_and_compare(chosen, launches, compare, is_waiting=how.is_waiting)


def _probe_and_compare(
    chosen: Suite, launches: Sequence[PreparedLaunch], compare: Callable[[], None], *, is_waiting: bool
) -> None:
    """Probe runs where the suite asks for it, and compare them, also where a probe fails; an interrupt ends both.

    Raises what a probe raised.
    """
    try:
        _probe(chosen, launches, is_waiting=is_waiting)
    except Exception:
        compare()
        raise
    compare()


def _probe(chosen: Suite, launches: Sequence[PreparedLaunch], *, is_waiting: bool) -> None:
    """Probe the runs of a suite that asks for it, once they are finished."""
    from rich.console import Console

    from jobs import waiting
    from jobs.probing import of_suite

    console = Console(highlight=False)
    probes = of_suite.follow(launches, chosen.probe, console)
    if is_waiting:
        waiting.wait(probes, console)
