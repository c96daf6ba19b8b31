"""Commands on existing runs: status, logs, results, scores, and token comparisons."""

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
from jobs.cli.run_command import RUN, check_shard, integer, main, run_folder, trusted_run

if TYPE_CHECKING:
    from jobs.run.folder import RunFolder

FOLLOW_SECONDS = 30.0
"""Polling interval of `status --follow`."""


@main.command(short_help="Print the status of runs.")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=RunPath())
@click.option("--follow", is_flag=True, help="Print the status every 30 seconds until nothing is running or queued.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; with --follow, one line per poll.")
def status(runs: tuple[Path, ...], follow: bool, as_json: bool) -> None:
    """Print the status of runs: shards, throughput and failures with their reasons.

    If several paths are given, such as runs/*, paths that are not readable run folders are skipped.
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


@main.command("list", short_help="List the runs in a folder.")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path), required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def list_runs(folder: Path | None, as_json: bool) -> None:
    """List the runs in FOLDER (default: `runs` or else the working directory), newest first.

    Sample counts are read from the run folders; `status` also shows what is working on a run.
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
        click.echo(f"no runs in {chosen.resolve() if chosen == Path() else chosen}")


def _run_folders(paths: tuple[Path, ...]) -> list[RunFolder]:
    from jobs.run.folder import RunFolder, is_readable_run

    if len(paths) == 1:
        return [run_folder(paths[0])]
    readable = {path for path in paths if is_readable_run(path)}
    if not readable:
        raise click.UsageError(f"none of the {len(paths)} paths is a run folder that you may read")
    if skipped := [str(path) for path in paths if path not in readable]:
        click.echo(f"skipped (not readable run folders): {', '.join(skipped)}", err=True)
    return [RunFolder(path) for path in paths if path in readable]


@main.command(short_help="Print the end of a worker's log.")
@RUN
@click.argument("shard", type=int, required=False)
@integer("--lines", 40, "Number of lines per log.")
def logs(run: Path, shard: int | None, lines: int) -> None:
    """Print the end of the log of a shard's latest worker; without SHARD, of all stopped shards.

    For workers on this machine, print the logs of all failed workers, because logs are not tied to shards.
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
        state = "All samples are finished" if found.is_finished else "No shard has stopped"
        screen.say(f"{state}; specify a shard to see its log.")
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
        screen.say(f"No worker log for shard {numbers}; all logs are in {folder.logs_dir}.")
        sys.exit(1)


_DATABASE = click.option(
    "--database", type=click.Path(path_type=Path), help="Database of the run.  [default: next to the run folder]"
)


@main.command(short_help="Print all metrics of a run.")
@RUN
@_DATABASE
def show(run: Path, database: Path | None) -> None:
    """Print all metrics of a graded and loaded run from the database; for a probe, its result."""
    from harness.cli.screen import terminal
    from jobs import after

    after.show(run_folder(run), terminal(), database)


@main.command(short_help="Grade a run, load it into the database and print the result.")
@RUN
@_DATABASE
@GRADER
@TRUST
def finalize(run: Path, database: Path | None, grader: str | None, trust: bool) -> None:
    """Compact journals, grade, load into the database and print the result."""
    from jobs import after, graders

    folder = run_folder(run)
    graders.settle(folder, grader, accept=trust)
    after.conclude(str(folder.path), str(database) if database else None)


@main.command(short_help="Score steps with a reward model.")
@RUN
@click.option(
    "--model", required=True, help="Process reward model in Math-Shepherd format: a Hugging Face id, or a folder."
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
    help="Maximum prompt length of a judgment, in tokens.  [default: as needed, up to the model's context]",
)
@integer("--concurrency", 64, "Maximum number of judgments in flight.")
def score(run: Path, model: str, kind: str, max_context: int | None, concurrency: int) -> None:
    """Score a run's stored steps and candidates with a process reward model.

    Judgments that the model cannot make have no score; repeating the command retries them. The last line of the output
    is the command that loads the scores into the database.
    """
    from harness.weights import models
    from jobs.finished import scoring

    source = scoring.source(models.resolve(model))
    judged, missing = scoring.score_run(run_folder(run), source, kind, max_context, concurrency, click.echo)
    without = f"; {missing} without a score" if missing else ""
    click.echo(f"{counted(judged, 'judgment')} by {source.name}{without}")
    click.echo(f"  {typed('warehouse.load')} {quote(str(run))}")


@main.command("target-logprobs", short_help="Score steps with the run's target.")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=RunPath())
@click.option(
    "--target-of",
    metavar="RUN",
    type=RunPath(),
    help="Run whose target scores the chains of runs without a target (draft-only runs).",
)
@TRUST
def target_logprob(runs: tuple[Path, ...], target_of: Path | None, trust: bool) -> None:
    """Store the target's log-probability of each accepted step in finished samples.

    The target reads every chain once, at temperature 1, with the target's prompt. Samples that already have
    log-probabilities are skipped. The last line of the output is the command that loads the log-probabilities into the
    database.
    """
    from jobs.finished import scoring

    folders = [trusted_run(run, accept=trust, runs_method=False) for run in runs]
    other = trusted_run(target_of, accept=trust, runs_method=False) if target_of else None
    scored = scoring.score_each(folders, other, click.echo)
    for folder, one in zip(folders, scored, strict=True):
        if isinstance(one, Exception):
            raise one
        if not one.num_samples:
            click.echo(f"{folder.path.name}: all finished samples are already scored")
    click.echo(f"  {typed('warehouse.load')} {' '.join(quote(str(run)) for run in runs)}")


@main.command(short_help="Check that two runs emitted the same tokens.")
@RUN
@click.argument("baseline", metavar="BASELINE", type=RunPath())
def lossless(run: Path, baseline: Path) -> None:
    """Compare the emitted tokens of two greedy runs, e.g. specdecode and vanilla.

    Also compares two runs of the same method, one with models on servers and one with models in process. Exit code 1 if
    tokens differ, or no sample is in both runs.
    """
    from jobs.finished.lossless import compare, has_served_target

    folders = run_folder(run), run_folder(baseline)
    pairs = compare(*folders)
    if served := [folder.path.name for folder in folders if has_served_target(folder.spec())]:
        click.echo(f"not compared: the target's weights, because a server runs the target of {' and '.join(served)}")
    differing = [pair for pair in pairs if pair.first_divergence is not None]
    click.echo(f"{counted(len(pairs), 'sample')} in both runs: {len(pairs) - len(differing)} with identical tokens")
    for folder in folders:
        if len(pairs) < (planned := folder.num_planned()):
            rest = "the others failed, or are not in the trace files of both runs"
            click.echo(f"{folder.path.name}: {len(pairs)} of its {counted(planned, 'sample')} compared; {rest}")
    for pair in differing:
        lengths = f"{pair.lengths[0]} and {counted(pair.lengths[1], 'token')}"
        click.echo(f"  {pair.problem_id} {pair.sample_index}: differ at token {pair.first_divergence} ({lengths})")
    sys.exit(bool(differing) or not pairs)
