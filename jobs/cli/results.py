"""The commands after a run: its result, scores of its steps, and the comparison of tokens with another run."""

from __future__ import annotations

import sys
from pathlib import Path
from shlex import quote

import click

from harness.cli.messages import counted
from harness.cli.program import typed
from jobs.arguments import RUN, TRUST, RunCommand, RunPath, run_folder, trusted_run


@click.command(cls=RunCommand, short_help="Grade, load and print the result.")
@RUN
@click.option(
    "--database",
    type=click.Path(path_type=Path),
    help="Database to load the run into.  [default: beside the run folder]",
)
def finalize(run: Path, database: Path | None) -> None:
    """Compact journals, grade, load the warehouse and print the result."""
    from jobs import after
    from jobs.outcome import launch_errors_in_one_line

    with launch_errors_in_one_line():
        after.conclude(str(run_folder(run).path), str(database) if database else None)


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
    from jobs.finished import score as scoring
    from jobs.outcome import launch_errors_in_one_line

    with launch_errors_in_one_line():
        source = scoring.source(models.resolve(model))
        judged, missing = scoring.score_run(run_folder(run), source, kind, max_context, concurrency, click.echo)
    without = f"; {missing} without a score" if missing else ""
    click.echo(f"{counted(judged, 'judgment')} by {source.scorer}{without}")
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
    from jobs.finished import target_logprobs
    from jobs.outcome import launch_errors_in_one_line

    folders = [trusted_run(run, accept=trust) for run in runs]
    other = run_folder(target_of) if target_of else None
    with launch_errors_in_one_line():
        specs = target_logprobs.check(folders, other)
        scored = target_logprobs.score_runs(folders, specs, click.echo)
    for folder, one in zip(folders, scored, strict=True):
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
    try:
        pairs = compare(*folders)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
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
