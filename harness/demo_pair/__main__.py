"""`python -m harness.demo_pair`: train the demo's draft and target from nothing."""

from __future__ import annotations

import time
from pathlib import Path

import click

from harness.command import OneLineErrors


@click.command(cls=OneLineErrors)
@click.option("--config", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Another configuration.")
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), default=Path("runs/demo-pair"), show_default=True,
    help="Folder of the models and of the state that the same command resumes from.",
)  # fmt: skip
@click.option("--threads", type=click.IntRange(1), help="Processor threads; torch's own choice without.")
def main(config: Path | None, out: Path, threads: int | None) -> None:
    """Train the demo's draft and target: about an hour and a half on two processor cores, less on a GPU.

    Interrupted, the same command goes on from its last state.
    """
    import torch

    from harness.demo_pair import config as configuration
    from harness.demo_pair.pipeline import OtherTraining, Training

    if threads:
        torch.set_num_threads(threads)
    try:
        read = configuration.read(config or configuration.DEFAULT)
    except configuration.BadConfig as wrong:
        raise click.UsageError(str(wrong)) from wrong
    device = "cuda" if torch.cuda.is_available() else "cpu"
    started = time.monotonic()

    def tell(line: str) -> None:
        click.echo(f"{(time.monotonic() - started) / 60:5.1f} min  {line}")

    try:
        Training(read, out, device, tell).run()
    except OtherTraining as other:
        raise click.UsageError(str(other)) from other


if __name__ == "__main__":
    main(prog_name="python -m harness.demo_pair")
