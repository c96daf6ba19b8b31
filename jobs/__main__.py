"""`python -m jobs`: the commands for a run folder after its launch, for suites and for nights."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path

import click

from harness.command import OneLineGroup
from harness.engines.settings import Kind
from harness.plural import counted
from jobs.run.folder import RunFolder

_FOLLOW_SECONDS = 30.0
_RUN = click.argument("run", type=click.Path(exists=True, file_okay=False, path_type=Path))


def _folder(path: Path) -> RunFolder:
    run = RunFolder(path)
    if not run.exists():
        raise click.UsageError(f"{path} is not a run folder: it has no shards.parquet")
    return run


def _submit_unfinished(run: RunFolder) -> None:
    from rich.console import Console

    from jobs.command import launch_errors_in_one_line
    from jobs.launching import print_dispatched
    from jobs.run import submissions
    from jobs.submission.dispatch import dispatch

    last = submissions.read(run)[-1]
    with launch_errors_in_one_line():
        dispatched = dispatch(run, last.options, last.shards_per_task)
    print_dispatched(dispatched, run, Console(highlight=False))


@click.group(cls=OneLineGroup)
def main() -> None:
    """Watch, resume, cancel and finish runs; launch suites and nights."""


@main.command()
@_RUN
@click.argument("shard", type=int)
def worker(run: Path, shard: int) -> None:
    """Run the unfinished samples of one shard in this process."""
    from jobs.work.worker import run_shard

    click.echo(f"{counted(run_shard(str(_folder(run).path), shard), 'sample')} ended")


@main.command()
@_RUN
@click.option("--follow", is_flag=True, help="Print the status every 30 seconds until nothing is running or queued.")
def status(run: Path, follow: bool) -> None:
    """Print how a run stands: its shards, its pace, what failed and why."""
    import time

    from rich.console import Console

    from jobs.watch import show
    from jobs.watch.status import status as read_status

    folder, console = _folder(run), Console(highlight=False)
    now = read_status(folder)
    show.print_status(now, console)
    while follow and now.may_progress:
        time.sleep(_FOLLOW_SECONDS)
        now = read_status(folder)
        show.print_status(now, console)


@main.command()
@_RUN
@click.argument("shard", type=int, required=False)
@click.option("--lines", type=click.IntRange(1), default=40, show_default=True, help="Number of lines of each log.")
def logs(run: Path, shard: int | None, lines: int) -> None:
    """Print the end of the log of a shard's latest worker, or of every shard that has stopped."""
    from jobs.watch.status import log_path
    from jobs.watch.status import status as read_status

    folder = _folder(run)
    for shard_status in read_status(folder).shards:
        is_chosen = shard_status.state == "stopped" if shard is None else shard_status.shard == shard
        task = shard_status.task if is_chosen else None
        if task is not None and (path := log_path(folder, task.job_id)).exists():
            click.echo(f"== shard {shard_status.shard}: {path}")
            click.echo("\n".join(path.read_text("utf-8", "replace").splitlines()[-lines:]))


@main.command()
@_RUN
def cancel(run: Path) -> None:
    """Cancel all Slurm jobs of a run. Nothing recorded is lost, and `resume` continues it."""
    from jobs.run import submissions
    from jobs.slurm import client

    names = [submission.name for submission in submissions.read(_folder(run))]
    if not names:
        raise click.UsageError(f"{run} was not submitted to Slurm; a local run ends with the command that started it")
    try:
        client.cancel([*names, submissions.finalizer_name(names[-1])])
    except client.SlurmError as error:
        raise click.ClickException(f"the run was not cancelled, because Slurm failed: {error}") from error
    click.echo(f"cancelled; to resume:  python -m jobs resume {run}")


@main.command()
@_RUN
def resume(run: Path) -> None:
    """Submit the shards that are neither finished nor running or queued, with the options of the last submission."""
    from jobs.run import submissions

    folder = _folder(run)
    if not submissions.read(folder):
        raise click.UsageError(f"{run} was not submitted to Slurm; to resume it, run its launch command again")
    _submit_unfinished(folder)


@main.command("retry-failed")
@_RUN
@click.option(
    "--at-most", type=click.IntRange(1), default=2, show_default=True, help="Most retries of a sample, over all rounds."
)
def retry_failed(run: Path, at_most: int) -> None:
    """Retry samples that ended in an error; a sample that is out of retries stays as data."""
    from jobs.run import retries, submissions

    folder = _folder(run)
    granted = retries.grant(folder, at_most)
    exhausted = f"; {granted.num_exhausted} are out of retries (--at-most {at_most})" if granted.num_exhausted else ""
    click.echo(f"retrying {len(granted.retried)} failed samples{exhausted}")
    if submissions.read(folder):
        _submit_unfinished(folder)
    elif granted.retried:
        click.echo("to run them, run the launch command of the run again")


@main.command()
@click.option(
    "--suite",
    type=click.Path(path_type=Path),
    required=True,
    help="TOML file of launches, such as slurm/suites/nightly.toml.",
)
@click.option(
    "--date", "night", type=click.DateTime(formats=["%Y-%m-%d"]), help="Date of the night.  [default: today, UTC]"
)
def nightly(suite: Path, night: datetime | None) -> None:
    """Launch a suite for a night, and after it a job that compares the night with those before it."""
    from jobs import nightly as nights
    from jobs.command import launch_errors_in_one_line

    evening = night.date() if night else nights.tonight()
    with launch_errors_in_one_line():
        launched = nights.launch(suite, evening)
    if launched.verdict_job:
        click.echo(
            f"night of {evening}: {counted(len(launched.runs), 'run')}; the verdict is job {launched.verdict_job}"
        )
        return
    try:
        nights.conclude(str(suite), evening.isoformat())
    except nights.NightFailed:
        sys.exit(1)


@main.command("suite")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--tag", help="Tag of every run; with another tag they are new runs with new samples.")
def launch_suite(file: Path, tag: str | None) -> None:
    """Launch the runs of a file one after the other; if they run on this machine, compare them and write a report."""
    from jobs import suite as suites
    from jobs.after.warehouse import compare_and_report
    from jobs.command import launch_errors_in_one_line
    from jobs.run import submissions

    with launch_errors_in_one_line():
        chosen = suites.read(file)
        runs = suites.launch(chosen, tag)
    page = chosen.output / f"{chosen.name}.html"
    if any(submissions.read(run) for run in runs):
        folders = " ".join(str(run.path) for run in runs)
        click.echo(f"Once their jobs have ended:\n  python -m warehouse.compare {folders}")
        click.echo(f"  python -m warehouse.report {folders} -o {page}")
        return
    with launch_errors_in_one_line():
        compare_and_report(runs, page)
    click.echo(f"Report, with a viewer of every trace: {page}")


@main.command()
@_RUN
@click.argument("baseline", type=click.Path(exists=True, file_okay=False, path_type=Path))
def lossless(run: Path, baseline: Path) -> None:
    """Compare the emitted tokens of two greedy runs, e.g. specdecode and vanilla; exit code 1 if any differ."""
    from jobs.after.lossless import compare

    try:
        pairs = compare(_folder(run), _folder(baseline))
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    differing = [pair for pair in pairs if pair.first_divergence is not None]
    click.echo(f"{counted(len(pairs), 'sample')} in both runs: {len(pairs) - len(differing)} identical, token by token")
    for pair in differing:
        lengths = f"{pair.lengths[0]} and {pair.lengths[1]} tokens"
        click.echo(f"  {pair.problem_id} {pair.sample_index}: differ from token {pair.first_divergence} ({lengths})")
    sys.exit(bool(differing) or not pairs)


@main.command()
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
    "--max-context", type=click.IntRange(16), default=4096, show_default=True, help="Longest judgement, in tokens."
)
@click.option("--concurrency", type=click.IntRange(1), default=64, show_default=True, help="Judgements in flight.")
def score(run: Path, model: str, kind: Kind, max_context: int, concurrency: int) -> None:
    """Score a run's stored steps and candidates with a process reward model, for the warehouse to load."""
    from harness import models
    from jobs.after import score as scoring

    try:
        source = scoring.source(models.resolve(model))
        judged, refused = scoring.score_run(_folder(run), source, kind, max_context, concurrency, click.echo)
    except (ValueError, models.ModelUnavailable) as error:
        raise click.UsageError(str(error)) from error
    too_long = f"; {refused} were too long for the model" if refused else ""
    click.echo(f"{judged} judgements by {source.scorer}{too_long}\n  python -m warehouse.load {run}")


@main.command()
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
        conclude(str(_folder(run).path), str(database) if database else None)


if __name__ == "__main__":
    main(prog_name="python -m jobs")
