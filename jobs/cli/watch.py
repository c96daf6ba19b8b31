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

    from rich.console import Console

    from harness.cli.screen import Screen
    from jobs.watch.status import Watch, page

    folders, console = _run_folders(runs), Console(highlight=False)
    watch = Watch(folders)
    while True:
        statuses = watch.read()
        if as_json:
            records = [found.record(run) for found, run in zip(statuses, folders, strict=True)]
            click.echo(json.dumps(records, indent=None if follow else 2, allow_nan=False))
        for number, found in enumerate(() if as_json else statuses):
            if number:
                console.print()
            Screen(console).show(page(found))
        if not (follow and any(found.may_progress for found in statuses)):
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

    from rich.console import Console

    from harness.cli.screen import Screen
    from jobs.run.folder import PLACES, RunFolder, run_paths
    from jobs.watch.status import listed, table_of

    chosen = folder or next(place for place in PLACES if place.is_dir())
    runs = listed(RunFolder(path) for path in run_paths(f"{chosen}/"))
    if as_json:
        click.echo(json.dumps([asdict(run) for run in runs], indent=2))
    elif runs:
        Screen(Console(highlight=False)).table(table_of(runs))
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
    from rich.console import Console

    from harness.cli.screen import Screen
    from jobs.watch.failures import local_logs, log_path, reason_in
    from jobs.watch.status import status as read_status

    folder, screen = run_folder(run), Screen(Console(highlight=False), is_whole=True)
    if shard is not None:
        check_shard(folder, shard)
    found = read_status(folder)
    chosen = [one for one in found.shards if (one.state == "stopped" if shard is None else one.shard == shard)]
    if not chosen:
        state = "Every sample is finished" if found.is_finished else "No shard has stopped"
        screen.say(f"{state}; name a shard to see its log.")
    of_tasks = [(f"shard {one.shard}", log_path(folder, one.task), one.last_error) for one in chosen if one.task]
    of_workers_here = [("worker on this machine", path, "") for path in (local_logs(folder) if chosen else ())]
    shown = [whose for whose in of_tasks or of_workers_here if whose[1].exists()]
    for whose, path, why in shown:
        text = path.read_text("utf-8", "replace")
        reason = why or reason_in(text)
        ending = [f"== {whose}: {reason}", f"== log: {path}"] if reason else []
        for line in (f"== {whose}: {path}", *text.splitlines()[-lines:], *ending):
            screen.say(line)
    if chosen and not shown:
        numbers = ", ".join(str(one.shard) for one in chosen)
        screen.say(f"No log of a worker of shard {numbers}; all logs are in {folder.logs_dir}.")
