"""The command that finds what accepted and refused drafts of a run were worth."""

from __future__ import annotations

from pathlib import Path

import click

from harness.cli.program import typed
from jobs.arguments import ACCEPT_CODE_CHANGE, MAX_GPU_HOURS, RUN, RunCommand, run_folder

_CLUSTERS = ("auto", "slurm", "local", "debug")


@click.command("probe", cls=RunCommand, short_help="Find what accepted and refused drafts were worth.")
@RUN
@click.option(
    "--points",
    type=click.IntRange(2),
    default=200,
    show_default=True,
    help="Decisions of the run to look at: at least one of each third of the chain, accepted and refused.",
)
@click.option(
    "--rollouts",
    type=click.IntRange(1),
    default=8,
    show_default=True,
    help="Continuations of each point, behind the draft's proposal and behind the target's own step.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the points and of the continuations.")
@click.option(
    "--concurrency", type=click.IntRange(1), default=64, show_default=True, help="Continuations in flight per worker."
)
@click.option("--cluster", type=click.Choice(_CLUSTERS), default="auto", show_default=True, help="Where to run.")
@click.option("--profile", help="Cluster profile: a file in slurm/clusters by name, or the path of a file.")
@click.option("--slurm", multiple=True, metavar="KEY=VALUE", help="Any other option for sbatch; may be repeated.")
@click.option("--shards", type=click.IntRange(1), default=1, show_default=True, help="Number of shards.")
@MAX_GPU_HOURS
@click.option("--dry-run", is_flag=True, help="Print what would be done, and exit.")
@click.option("--wait", is_flag=True, help="On Slurm, wait until the probe has ended and print its result.")
@ACCEPT_CODE_CHANGE
def probe(
    run: Path,
    points: int,
    rollouts: int,
    seed: int,
    concurrency: int,
    dry_run: bool,
    wait: bool,
    accept: bool,
    **flags: object,
) -> None:
    """Continue a run's chains with the target alone from a sample of its decisions, and grade where they end.

    At each point the target continues twice: behind the draft's proposal, and from where the proposal began, so that
    the step there is its own. The difference is what the proposal was worth, and together they give the rates at which
    the judge truly accepts wrong steps and refuses right ones. The probe is a run beside RUN; the same command again
    resumes it.
    """
    from rich.console import Console

    from jobs.command import launch_errors_in_one_line
    from jobs.drive import drive, preview
    from jobs.probe import ProbeSettings, plan
    from jobs.run.endings import num_unfinished

    console = Console(highlight=False)
    with launch_errors_in_one_line("the probe"):
        settings = ProbeSettings(points=points, rollouts=rollouts, seed=seed, concurrency=concurrency)
        planned = plan(run_folder(run), settings, {**flags, "accept_code_change": accept}, is_preview=dry_run)
        if dry_run:
            preview(planned, console)
            return
        [probed] = drive([[planned]], console, waits=wait)
        if num_unfinished(probed):
            name = probed.path.name
            console.print(f"Its result, once it has ended:  {typed('warehouse.probed')} {name}", soft_wrap=True)
