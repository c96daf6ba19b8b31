"""`python -m jobs`: the commands for a run folder after its launch, for suites and for nights."""

from __future__ import annotations

import re
import sys
from datetime import datetime
from pathlib import Path

import click

from harness.cli.command import Date
from harness.engines.settings import Kind
from harness.plural import counted
from jobs.arguments import RunCommands, check_shard, run_folder
from jobs.run.folder import RunFolder, is_readable_run

_FOLLOW_SECONDS = 30.0
_ANY_PATH = click.Path(exists=True, readable=False, path_type=Path)
# Not `readable`: what a user may not read is explained where it is read.
_RUN = click.argument("run", type=click.Path(exists=True, file_okay=False, readable=False, path_type=Path))


_ACCEPT = click.option(
    "--accept-code-change",
    "accept",
    is_flag=True,
    help="Go on with a run that other code began; its results then say that two codes made them.",
)


def _submit_unfinished(run: RunFolder, *, accept: bool) -> None:
    from rich.console import Console

    from jobs.command import launch_errors_in_one_line
    from jobs.launching import print_dispatched
    from jobs.run import submissions
    from jobs.submission.dispatch import dispatch

    last = submissions.read(run)[-1]
    with launch_errors_in_one_line():
        _check_code(run, accept=accept)
        per_task = last.shards_per_task, last.workers_per_task
        dispatched = dispatch(run, last.options, *per_task, accept_code_change=accept)
    print_dispatched(dispatched, run, Console(highlight=False))


def _check_code(run: RunFolder, *, accept: bool, goes_on: bool = False) -> None:
    """Say what is to be said of the code that worked on a run. Raises CodeChanged, a ValueError."""
    from jobs.run import codes

    if notice := codes.check(run, accept=accept, goes_on=goes_on):
        click.echo(notice, err=True)
    if goes_on:
        codes.claim(run, accept=accept)


@click.group(cls=RunCommands)
def main() -> None:
    """Watch, resume, cancel and finish runs; launch suites and nights."""


@main.command(short_help="Run one shard in this process.")
@_RUN
@click.argument("shard", type=int)
@_ACCEPT
def worker(run: Path, shard: int, accept: bool) -> None:
    """Run the unfinished samples of one shard in this process."""
    from jobs.run import codes
    from jobs.run.wording import OtherPrompts
    from jobs.work.worker import run_shard

    folder = run_folder(run)
    check_shard(folder, shard)
    try:
        if accept:
            _check_code(folder, accept=True, goes_on=True)
        num_ended = run_shard(str(folder.path), shard)
    except (OtherPrompts, codes.CodeChanged) as error:
        raise click.UsageError(str(error)) from error
    click.echo(f"{counted(num_ended, 'sample')} ended")


@main.command(short_help="Print the status of a run.")
@click.argument(
    "runs", metavar="RUN...", nargs=-1, required=True, type=click.Path(exists=True, readable=False, path_type=Path)
)
@click.option("--follow", is_flag=True, help="Print the status every 30 seconds until nothing is running or queued.")
def status(runs: tuple[Path, ...], follow: bool) -> None:
    """Print the status of runs: their shards, their pace, what failed and why.

    Of several paths, such as runs/*, those that are not run folders are skipped.
    """
    import time

    from rich.console import Console

    from jobs.watch import show
    from jobs.watch.status import Watch

    folders, console = _run_folders(runs), Console(highlight=False)
    watch = Watch(folders)
    while True:
        statuses = watch.read()
        for number, run_status in enumerate(statuses):
            if number:
                console.print()
            show.print_status(run_status, console)
        if not (follow and any(run_status.may_progress for run_status in statuses)):
            return
        if any(run_status.slurm_error for run_status in statuses):
            console.print(f"The runs are still followed; the next look is in {_FOLLOW_SECONDS:g} s.")
        time.sleep(_FOLLOW_SECONDS)


def _run_folders(paths: tuple[Path, ...]) -> list[RunFolder]:
    if len(paths) == 1:
        return [run_folder(paths[0])]
    readable = {path for path in paths if is_readable_run(path)}
    if not readable:
        raise click.UsageError(f"none of the {len(paths)} paths is a run folder that you may read")
    if skipped := [str(path) for path in paths if path not in readable]:
        click.echo(f"skipped, not a run folder: {', '.join(skipped)}", err=True)
    return [RunFolder(path) for path in paths if path in readable]


@main.command(short_help="Print the end of a worker's log.")
@_RUN
@click.argument("shard", type=int, required=False)
@click.option("--lines", type=click.IntRange(1), default=40, show_default=True, help="Number of lines of each log.")
def logs(run: Path, shard: int | None, lines: int) -> None:
    """Print the end of the log of a shard's latest worker, or of every shard that has stopped."""
    from jobs.submission import old_logs
    from jobs.watch.reasons import log_path
    from jobs.watch.status import status as read_status

    folder = run_folder(run)
    if shard is not None:
        check_shard(folder, shard)
    chosen = [s for s in read_status(folder).shards if (s.state == "stopped" if shard is None else s.shard == shard)]
    if not chosen:
        click.echo("No shard has stopped; name a shard to see its log.")
    for shard_status in chosen:
        path = log_path(folder, shard_status.task) if shard_status.task else None
        text = (
            "" if path is None else path.read_text("utf-8", "replace") if path.exists() else old_logs.merged_log(path)
        )
        if path is not None and (text or path.exists()):
            click.echo(f"== shard {shard_status.shard}: {path}")
            click.echo("\n".join(text.splitlines()[-lines:]))
        else:
            click.echo(f"No log of a Slurm job for shard {shard_status.shard}; all logs are in {folder.logs_dir}.")


@main.command(short_help="Cancel a run's Slurm jobs.")
@_RUN
def cancel(run: Path) -> None:
    """Cancel all Slurm jobs of a run. Nothing recorded is lost, and `resume` continues it.

    A job that it shares with other runs of its suite goes on with those, and passes over this one.
    """
    from jobs.slurm import client
    from jobs.submission import canceling

    folder = run_folder(run)
    try:
        others = canceling.cancel(folder)
    except canceling.Finished as finished:
        click.echo(str(finished))
        return
    except (canceling.NotSubmitted, canceling.NotPermitted) as error:
        raise click.UsageError(str(error)) from error
    except client.SlurmError as error:
        raise click.ClickException(f"the run was not canceled, because Slurm failed: {error}") from error
    if others:
        click.echo(f"the jobs that it shared go on with {', '.join(others)}")
    click.echo(f"canceled; to resume:  python -m jobs resume {run}")


@main.command(short_help="Submit the shards that are left.")
@_RUN
@_ACCEPT
def resume(run: Path, accept: bool) -> None:
    """Submit the shards that are neither finished nor running or queued, with the options of the last submission."""
    from jobs.run import submissions

    folder = run_folder(run)
    if not submissions.read(folder):
        raise click.UsageError(f"{run} was not submitted to Slurm; to resume it, run its launch command again")
    _submit_unfinished(folder, accept=accept)


@main.command("retry-failed", short_help="Retry samples that ended in an error.")
@_RUN
@click.option(
    "--at-most", type=click.IntRange(1), default=2, show_default=True, help="Most retries of a sample, over all rounds."
)
@_ACCEPT
def retry_failed(run: Path, at_most: int, accept: bool) -> None:
    """Retry samples that ended in an error; a sample that is out of retries stays as data."""
    from jobs.command import launch_errors_in_one_line
    from jobs.run import retries, submissions

    folder = run_folder(run)
    if submissions.read(folder):
        with launch_errors_in_one_line():
            _check_code(folder, accept=accept, goes_on=True)
    granted = retries.grant(folder, at_most)
    exhausted = counted(granted.num_exhausted, "is", "are") + f" out of retries (--at-most {at_most})"
    retried = counted(len(granted.retried), "failed sample")
    click.echo(f"retrying {retried}" + (f"; {exhausted}" if granted.num_exhausted else ""))
    if submissions.read(folder):
        _submit_unfinished(folder, accept=accept)
    elif granted.retried:
        click.echo("to run them, run the launch command of the run again")


@main.command(short_help="Launch a suite for a night and judge it.")
@click.option(
    "--suite",
    type=click.Path(path_type=Path),
    required=True,
    help="TOML file of launches, such as slurm/suites/nightly.toml.",
)
@click.option("--date", "night", type=Date(), help="Date of the night.  [default: today, UTC]")
@_ACCEPT
def nightly(suite: Path, night: datetime | None, accept: bool) -> None:
    """Launch a suite for a night, and after it a job that compares the night with those before it.

    Exit code of that job, or of this command where the runs are on this machine, 0: PASS; 1: FAIL; 3: WARN;
    4: INCONCLUSIVE; 2: no verdict was possible. On Slurm the command itself ends with 0 once everything is submitted.
    """
    from jobs import nightly as nights
    from jobs.command import launch_errors_in_one_line

    evening = night.date() if night else nights.tonight()
    with launch_errors_in_one_line():
        launched = nights.launch(suite, evening, accept_code_change=accept)
    if launched.verdict_job:
        num_runs = counted(len(launched.runs), "run")
        click.echo(f"night of {evening}: {num_runs}; the verdict is job {launched.verdict_job}{launched.notice}")
        return
    with launch_errors_in_one_line():
        try:
            code = nights.conclude(str(suite), evening.isoformat())
        except nights.NightFailed:
            code = 1
    sys.exit(code)


@main.command(short_help="Archive the runs of old nights.")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--keep-nights",
    type=click.IntRange(1),
    default=90,
    show_default=True,
    help="Number of nights, the newest, whose runs stay as they are.",
)
@click.option("--archive", type=click.Path(path_type=Path), help="Folder of the archives.  [default: FOLDER/archive]")
@click.option("--yes", is_flag=True, help="Do it; without this it only says what it would do.")
@click.option(
    "--restore", metavar="RUN", multiple=True, help="Unpack this run's archive again instead; may be repeated."
)
def prune(folder: Path, keep_nights: int, archive: Path | None, yes: bool, restore: tuple[str, ...]) -> None:
    """Archive the run folders of old nights; the database beside them keeps the results.

    FOLDER is the output of the nightly suite. Only finished, graded and loaded runs of nights are archived. The
    database forgets their steps, candidates, calls and prompts; no verdict of a night changes.
    """
    from jobs.nights import show_pruning

    archives = archive or folder / "archive"
    with show_pruning.errors_in_one_line():
        if restore:
            show_pruning.restore(restore, archives, folder)
        else:
            show_pruning.prune(folder, keep_nights, archives, is_agreed=yes)


@main.command("suite", short_help="Launch the runs of a file.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--tag", help="Tag of every run; with another tag they are new runs with new samples.")
@_ACCEPT
def launch_suite(file: Path, tag: str | None, accept: bool) -> None:
    """Launch the runs of a file one after the other; if they run on this machine, compare them and write a report."""
    from jobs import suite as suites
    from jobs.after.warehouse import compare_and_report
    from jobs.command import launch_errors_in_one_line
    from jobs.run import submissions

    if tag and re.match(r"\d{4}-\d{2}-\d{2}", tag):
        raise click.UsageError(
            f"--tag {tag}: tags that begin with a date are those of nights; choose another, or launch a night with: "
            f"python -m jobs nightly --suite {file} --date {tag[:10]}"
        )
    with launch_errors_in_one_line():
        chosen = suites.begun_earlier(suites.read(file), tag)
        runs = suites.launch(chosen, tag, accept_code_change=accept)
    page = chosen.output / f"{chosen.name}.html"
    if any(submissions.read(run) for run in runs):
        folders = " ".join(str(run.path) for run in runs)
        click.echo(f"Once their jobs have ended:\n  python -m warehouse.compare {folders}")
        click.echo(f"  python -m warehouse.report {folders} -o {page}")
        return
    with launch_errors_in_one_line():
        compare_and_report(runs, page)
    click.echo(f"Report, with a viewer of every trace: {page}")


@main.command(short_help="Check that two runs emitted the same tokens.")
@_RUN
@click.argument("baseline", type=click.Path(exists=True, file_okay=False, path_type=Path))
def lossless(run: Path, baseline: Path) -> None:
    """Compare the emitted tokens of two greedy runs, e.g. specdecode and vanilla; exit code 1 if any differ."""
    from jobs.after.lossless import compare

    try:
        pairs = compare(run_folder(run), run_folder(baseline))
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    differing = [pair for pair in pairs if pair.first_divergence is not None]
    click.echo(f"{counted(len(pairs), 'sample')} in both runs: {len(pairs) - len(differing)} identical, token by token")
    for pair in differing:
        lengths = f"{pair.lengths[0]} and {counted(pair.lengths[1], 'token')}"
        click.echo(f"  {pair.problem_id} {pair.sample_index}: differ from token {pair.first_divergence} ({lengths})")
    sys.exit(bool(differing) or not pairs)


@main.command(short_help="Score steps with a reward model.")
@_RUN
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
    "--max-context", type=click.IntRange(16), default=4096, show_default=True, help="Longest judgment, in tokens."
)
@click.option("--concurrency", type=click.IntRange(1), default=64, show_default=True, help="Judgments in flight.")
def score(run: Path, model: str, kind: Kind, max_context: int, concurrency: int) -> None:
    """Score a run's stored steps and candidates with a process reward model, for the warehouse to load."""
    from harness.weights import models
    from jobs.after import score as scoring

    try:
        source = scoring.source(models.resolve(model))
        judged, refused = scoring.score_run(run_folder(run), source, kind, max_context, concurrency, click.echo)
    except (ValueError, models.ModelUnavailable) as error:
        raise click.UsageError(str(error)) from error
    too_long = f"; {counted(refused, 'was', 'were')} too long for the model" if refused else ""
    click.echo(f"{counted(judged, 'judgment')} by {source.scorer}{too_long}\n  python -m warehouse.load {run}")


@main.command(short_help="Grade, load and print the result.")
@_RUN
@click.option(
    "--database",
    type=click.Path(path_type=Path),
    help="Database to load the run into.  [default: beside the run folder]",
)
def finalize(run: Path, database: Path | None) -> None:
    """Compact journals, grade, load the warehouse and print the result."""
    from jobs.after.conclude import conclude
    from jobs.command import launch_errors_in_one_line

    with launch_errors_in_one_line():
        conclude(str(run_folder(run).path), str(database) if database else None)


if __name__ == "__main__":
    main(prog_name="python -m jobs")
