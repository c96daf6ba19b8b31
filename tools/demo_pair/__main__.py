"""`python -m tools.demo_pair`: train the demo's toy draft and target from random weights."""

from __future__ import annotations

import time
from pathlib import Path

import click

from harness.cli.command import OneLineErrors


@click.command(cls=OneLineErrors)
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Training configuration.  [default: the configuration of the bundled pair]",
)
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), default=Path("runs/demo-pair"), show_default=True,
    help="Output folder: models, and checkpoints that the same command resumes from.",
)  # fmt: skip
@click.option(
    "--pair",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder with a trained draft/ and target/; only a reward model is trained for them, in about five minutes.",
)
@click.option(
    "--former",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder with the draft/ and target/ from which training starts, if the configuration has [former].",
)
@click.option("--threads", type=click.IntRange(1), help="Number of CPU threads.  [default: torch decides]")
def main(config: Path | None, out: Path, pair: Path | None, former: Path | None, threads: int | None) -> None:
    """Train the demo's draft, target and reward model: under two hours on one CPU core, less on a GPU.

    After an interruption, the same command resumes from the last checkpoint.
    """
    import torch

    from tools.demo_pair import config as configuration
    from tools.demo_pair.pipeline import Training, TrainingRefused

    if threads:
        torch.set_num_threads(threads)
    try:
        training_config = configuration.read(config or configuration.DEFAULT)
    except configuration.BadConfig as error:
        raise click.UsageError(str(error)) from error
    device = "cuda" if torch.cuda.is_available() else "cpu"
    started = time.monotonic()

    def report(line: str) -> None:
        click.echo(f"{(time.monotonic() - started) / 60:5.1f} min  {line}")

    try:
        Training(training_config, out, device, report, pair, former).run()
    except TrainingRefused as refused:
        raise click.UsageError(str(refused)) from refused


if __name__ == "__main__":
    main(prog_name="python -m tools.demo_pair")
