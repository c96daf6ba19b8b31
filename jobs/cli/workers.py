"""Commands that start, cancel and resume the workers of a run."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import click

from harness.cli.command import TRUST
from harness.cli.messages import counted
from harness.cli.program import typed
from jobs.cli.run_command import ACCEPT_CODE_CHANGE, RUN, check_shard, integer, main, run_folder, trusted_run

if TYPE_CHECKING:
    from jobs.run.folder import RunFolder


@main.command(short_help="Run one shard in this process.")
@RUN
@click.argument("shard", type=int)
@ACCEPT_CODE_CHANGE
@TRUST
def worker(run: Path, shard: int, accept: bool, trust: bool) -> None:
    """Run the unfinished samples of one shard in this process."""
    from jobs.work.worker import ShardBusyError, run_shard

    folder = trusted_run(run, accept=trust)
    check_shard(folder, shard)
    try:
        if accept:
            _check_code(folder, accept=True, goes_on=True)
        num_ended = run_shard(str(folder.path), shard)
    except ShardBusyError as error:
        raise click.ClickException(f"{error}; wait until it has finished, or cancel its job") from error
    click.echo(f"{counted(num_ended, 'sample')} finished")


@main.command(short_help="Cancel a run's Slurm jobs.")
@RUN
def cancel(run: Path) -> None:
    """Cancel all Slurm jobs of a run. Recorded samples and steps are kept, and `resume` continues the run.

    Jobs shared with other runs of a suite skip the canceled run and continue with the others.
    """
    from jobs.submission import canceling

    folder = run_folder(run)
    others = canceling.cancel(folder)
    if others is None:
        click.echo(f"{folder.path.name} is finished; nothing to cancel")
        return
    if others:
        click.echo(f"the shared jobs keep working on {', '.join(others)}")
    click.echo(f"canceled; to resume:  {typed('jobs resume')} {quote(str(run))}")


@main.command(short_help="Submit the unfinished shards.")
@RUN
@ACCEPT_CODE_CHANGE
@TRUST
def resume(run: Path, accept: bool, trust: bool) -> None:
    """Submit the unfinished shards that are not running or queued, with the options of the last submission.

    If a finished run was not graded or loaded because its last job died, a new job grades and loads it; for a local
    run, this command does so.
    """
    from jobs import after
    from jobs.finished import grading
    from jobs.run import submissions
    from jobs.run.endings import by_shard, read_endings

    folder = trusted_run(run, accept=trust, submits=True)
    if not submissions.read(folder):
        if missing := grading.missing(folder, read_endings(folder)):
            click.echo(f"All samples are finished, but the run is {missing}; grading and loading it now.")
            after.conclude(str(folder.path))
            return
        if not by_shard(folder, read_endings(folder)).num_left:
            click.echo("All samples are finished; nothing to resume.")
            return
        raise click.UsageError(f"{run} was not submitted to Slurm; to resume it, run its launch command again")
    _submit_unfinished(folder, accept=accept)


@main.command("retry-failed", short_help="Retry samples that ended in an error.")
@RUN
@integer("--at-most", 2, "Maximum number of retries per sample, counted over all uses of this command.")
@ACCEPT_CODE_CHANGE
@TRUST
def retry_failed(run: Path, at_most: int, accept: bool, trust: bool) -> None:
    """Retry samples that ended in an error; samples that are out of retries keep the error as their result."""
    from jobs.run import retries, submissions
    from jobs.run.endings import read_endings

    folder = trusted_run(run, accept=trust, submits=True)
    if submissions.read(folder):
        _check_code(folder, accept=accept, goes_on=True)
    with folder.lock("submission"):
        failed = read_endings(folder).failed.to_pylist()
        retried = retries.grant(folder, failed, at_most)
    num_exhausted = len(failed) - len(retried)
    exhausted = counted(num_exhausted, "is", "are") + f" out of retries (--at-most {at_most})"
    again = counted(len(retried), "failed sample")
    click.echo(f"retrying {again}" + (f"; {exhausted}" if num_exhausted else ""))
    if submissions.read(folder):
        _submit_unfinished(folder, accept=accept)
    elif retried:
        click.echo("to run them, repeat the run's launch command")


def _submit_unfinished(run: RunFolder, *, accept: bool) -> None:
    from harness.cli.screen import terminal
    from jobs.drive import print_dispatched, print_how_to_watch
    from jobs.run import submissions
    from jobs.submission.dispatch import Request, conclude_again, dispatch_together

    last = submissions.read(run)[-1]
    _check_code(run, accept=accept)
    per_task = last.shards_per_task, last.workers_per_task
    [dispatched] = dispatch_together([Request(run, last.options, *per_task, accept)])
    is_idle = not (dispatched.submitted or dispatched.num_active_shards)
    if is_idle and (concluding := conclude_again(run)):
        click.echo(f"All samples are finished; {concluding}")
        return
    print_dispatched(dispatched, terminal())
    print_how_to_watch([run], terminal())


def _check_code(run: RunFolder, *, accept: bool, goes_on: bool = False) -> None:
    """Print a notice if work on the run has begun, but this code is not among its recorded code versions.

    Raises CodeChanged and BadMethod, both ValueErrors.
    """
    from jobs.run import codes

    codes.method_of(run)  # a submission needs the method even before any work
    if notice := codes.check(run, accept=accept, goes_on=goes_on):
        click.echo(notice, err=True)
    if goes_on:
        codes.claim(run, accept=accept)
