"""The commands on runs that are there: how they stand, their logs and results, scores, and comparisons of tokens."""

from __future__ import annotations

import sys
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import click

from harness.cli.command import GRADER, TRUST
from harness.cli.messages import counted
from harness.cli.program import typed
from jobs.arguments import RunPath
from jobs.cli.run_command import RUN, RunCommand, check_shard, run_folder, trusted_run

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

    from harness.cli.screen import Screen, terminal
    from jobs.watch.status import Watch, page

    folders, console = _run_folders(runs), terminal()
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

    from harness.cli.screen import Screen, terminal
    from jobs.run.folder import PLACES, RunFolder, run_paths
    from jobs.watch.status import listed, table_of

    chosen = folder or next(place for place in PLACES if place.is_dir())
    runs = listed(RunFolder(path) for path in run_paths(f"{chosen}/"))
    if as_json:
        click.echo(json.dumps([asdict(run) for run in runs], indent=2))
    elif runs:
        Screen(terminal()).table(table_of(runs))
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
    from harness.cli.screen import Screen, terminal
    from jobs.watch.exit_reasons import local_logs, log_path, reason_in
    from jobs.watch.status import status as read_status

    folder, screen = run_folder(run), Screen(terminal(), is_whole=True)
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
        sys.exit(1)


_DATABASE = click.option(
    "--database", type=click.Path(path_type=Path), help="Database of the run.  [default: beside the run folder]"
)


@click.command(cls=RunCommand, short_help="Print all numbers of a run.")
@RUN
@_DATABASE
def show(run: Path, database: Path | None) -> None:
    """Print all numbers of a run that was graded and loaded, from the warehouse; of a probe, what it found."""
    from harness.cli.screen import terminal
    from jobs import after

    after.show(run_folder(run), terminal(), database)


@click.command(cls=RunCommand, short_help="Grade, load and print the result.")
@RUN
@_DATABASE
@GRADER
@TRUST
def finalize(run: Path, database: Path | None, grader: str | None, trust: bool) -> None:
    """Compact journals, grade, load the warehouse and print the result."""
    from jobs import after, graders

    folder = run_folder(run)
    graders.settle(folder, grader, accept=trust)
    after.conclude(str(folder.path), str(database) if database else None)


@click.command(cls=RunCommand, short_help="Score steps with a reward model.")
@RUN
@click.option(
    "--model", required=True, help="Process reward model in the form of Math-Shepherd: a Hugging Face id, or a folder."
)
@click.option(
    "--engine",
    "kind",
    type=click.Choice(["vllm", "transformers"]),
    default="vllm",
    show_default=True,
    help="Engine of the reward model.",
)
@click.option(
    "--max-context",
    type=click.IntRange(16),
    help="Longest judgment, in tokens.  [default: the run's longest, as far as the model's own context allows]",
)
@click.option("--concurrency", type=click.IntRange(1), default=64, show_default=True, help="Judgments in flight.")
def score(run: Path, model: str, kind: str, max_context: int | None, concurrency: int) -> None:
    """Score a run's stored steps and candidates with a process reward model, for the warehouse to load.

    A judgment that the model cannot give has no score; the next call asks for it again.
    """
    from harness.weights import models
    from jobs.finished import scoring

    source = scoring.source(models.resolve(model))
    judged, missing = scoring.score_run(run_folder(run), source, kind, max_context, concurrency, click.echo)
    without = f"; {missing} without a score" if missing else ""
    click.echo(f"{counted(judged, 'judgment')} by {source.name}{without}")
    click.echo(f"  {typed('warehouse.load')} {quote(str(run))}")


@click.command("target-logprobs", cls=RunCommand, short_help="Score steps with the run's own target.")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=RunPath())
@click.option(
    "--target-of",
    metavar="RUN",
    type=RunPath(),
    help="Run whose target reads the chains of runs without a target of their own (the draft alone).",
)
@TRUST
def target_logprob(runs: tuple[Path, ...], target_of: Path | None, trust: bool) -> None:
    """Store the target's log-probability of each accepted step of finished samples, for the warehouse to load.

    The target reads every chain once, at temperature 1, in its own prompt. Samples that are scored stay as they are.
    """
    from jobs.finished import scoring

    folders = [trusted_run(run, accept=trust, runs_method=False) for run in runs]
    other = trusted_run(target_of, accept=trust, runs_method=False) if target_of else None
    scored = scoring.score_each(folders, other, click.echo)
    for folder, one in zip(folders, scored, strict=True):
        if isinstance(one, Exception):
            raise one
        if not one.num_samples:
            click.echo(f"{folder.path.name}: every finished sample is scored already")
    click.echo(f"  {typed('warehouse.load')} {' '.join(quote(str(run)) for run in runs)}")


@click.command(cls=RunCommand, short_help="Check that two runs emitted the same tokens.")
@RUN
@click.argument("baseline", metavar="BASELINE", type=RunPath())
def lossless(run: Path, baseline: Path) -> None:
    """Compare the emitted tokens of two greedy runs, e.g. specdecode and vanilla; exit code 1 if any differ.

    Or one method with models on servers and in process.
    """
    from jobs.finished.lossless import compare, has_served_target

    folders = run_folder(run), run_folder(baseline)
    pairs = compare(*folders)
    if served := [folder.path.name for folder in folders if has_served_target(folder.spec())]:
        click.echo(f"not compared: the weights of the target of {' and '.join(served)}, which a server runs")
    differing = [pair for pair in pairs if pair.first_divergence is not None]
    click.echo(f"{counted(len(pairs), 'sample')} in both runs: {len(pairs) - len(differing)} identical, token by token")
    for folder in folders:
        if len(pairs) < (planned := folder.num_planned()):
            rest = "of the others a run has no finished sample, unless a killed worker left it for its successor"
            click.echo(f"{folder.path.name}: {len(pairs)} of its {counted(planned, 'sample')} compared; {rest}")
    for pair in differing:
        lengths = f"{pair.lengths[0]} and {counted(pair.lengths[1], 'token')}"
        click.echo(f"  {pair.problem_id} {pair.sample_index}: differ from token {pair.first_divergence} ({lengths})")
    sys.exit(bool(differing) or not pairs)
