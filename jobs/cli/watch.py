"""The commands that watch a run: status and logs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from jobs.arguments import RUN, RunCommand, RunPath, check_shard, run_folder

if TYPE_CHECKING:
    from jobs.run.folder import RunFolder

FOLLOW_SECONDS = 30.0
"""Time between two looks of `status --follow`."""


@click.command(cls=RunCommand, short_help="Print the status of a run.")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=RunPath())
@click.option("--follow", is_flag=True, help="Print the status every 30 seconds until nothing is running or queued.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; with --follow, one line at each look.")
def status(runs: tuple[Path, ...], follow: bool, as_json: bool) -> None:
    """Print the status of runs: their shards, their pace, what failed and why.

    Of several paths, such as runs/*, those that are not run folders are skipped.
    """
    import json
    import time

    from harness.cli.screen import terminal
    from jobs import outcome
    from jobs.watch import status_screen
    from jobs.watch.status import Watch

    folders, console = _run_folders(runs), terminal()
    watch = Watch(folders)
    while True:
        statuses = watch.read()
        if as_json:
            records = [outcome.of_status(*pair) for pair in zip(statuses, folders, strict=True)]
            click.echo(json.dumps(records, indent=None if follow else 2, allow_nan=False))
        for number, run_status in enumerate(() if as_json else statuses):
            if number:
                console.print()
            status_screen.print_status(run_status, console)
        if not (follow and any(run_status.may_progress for run_status in statuses)):
            return
        time.sleep(FOLLOW_SECONDS)


@click.command("list", cls=RunCommand, short_help="List the runs of a folder.")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path), required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def list_runs(folder: Path | None, as_json: bool) -> None:
    """List the runs of FOLDER, by default of `runs` or else of this folder, the newest first.

    The numbers of samples are from the files of the runs; `status` also says what works on a run now.
    """
    import json
    from dataclasses import asdict

    from harness.cli.screen import terminal
    from jobs.run.folder import PLACES, RunFolder, run_paths
    from jobs.watch import listing

    chosen = folder or next(place for place in PLACES if place.is_dir())
    runs = listing.listed(RunFolder(path) for path in run_paths(f"{chosen}/"))
    if as_json:
        click.echo(json.dumps([asdict(run) for run in runs], indent=2))
    elif runs:
        listing.print_runs(runs, terminal())
    else:
        click.echo(f"no run in {chosen.resolve() if chosen == Path() else chosen}")


def _run_folders(paths: tuple[Path, ...]) -> list[RunFolder]:
    from jobs.run.folder import RunFolder, is_readable_run

    if len(paths) == 1:
        return [run_folder(paths[0])]
    readable = {path for path in paths if is_readable_run(path)}
    if not readable:
        raise click.UsageError(f"none of the {len(paths)} paths is a run folder that you may read")
    if skipped := [str(path) for path in paths if path not in readable]:
        click.echo(f"skipped, not a run folder: {', '.join(skipped)}", err=True)
    return [RunFolder(path) for path in paths if path in readable]


@click.command(cls=RunCommand, short_help="Print the end of a worker's log.")
@RUN
@click.argument("shard", type=int, required=False)
@click.option("--lines", type=click.IntRange(1), default=40, show_default=True, help="Number of lines of each log.")
def logs(run: Path, shard: int | None, lines: int) -> None:
    """Print the end of the log of a shard's latest worker, or of every shard that has stopped.

    Of workers on this machine it prints the logs of all that failed, because shards have no workers of their own there.
    """
    from jobs.watch.failures import error_in, local_logs, log_path
    from jobs.watch.status import status as read_status

    folder = run_folder(run)
    if shard is not None:
        check_shard(folder, shard)
    run_status = read_status(folder)
    chosen = [s for s in run_status.shards if (s.state == "stopped" if shard is None else s.shard == shard)]
    if not chosen:
        state = "Every sample is finished" if run_status.is_finished else "No shard has stopped"
        click.echo(f"{state}; name a shard to see its log.")
    if chosen and not any(shard_status.task for shard_status in chosen):
        of_workers_here = local_logs(folder)
        for log in of_workers_here:
            text = log.read_text("utf-8", "replace")
            _print_end("worker on this machine", log, text, lines, error_in(text))
        if of_workers_here:
            return
    for shard_status in chosen:
        path = log_path(folder, shard_status.task) if shard_status.task else None
        if path is not None and path.exists():
            text = path.read_text("utf-8", "replace")
            _print_end(f"shard {shard_status.shard}", path, text, lines, shard_status.last_error)
        else:
            click.echo(f"No log of a worker of shard {shard_status.shard}; all logs are in {folder.logs_dir}.")


def _print_end(whose: str, log: Path, text: str, lines: int, error: str) -> None:
    """Print the end of a log, and after it why the worker stopped, with the log's path."""
    click.echo(f"== {whose}: {log}")
    click.echo("\n".join(text.splitlines()[-lines:]))
    if error:
        click.echo(f"== {whose}: {error}\n== log: {log}")
