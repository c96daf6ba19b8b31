"""`python -m jobs`: what a person or a batch script does with a run folder after the launch."""

from __future__ import annotations

from pathlib import Path

import click

from jobs.store import RunFolder

_RUN = click.argument("run", type=click.Path(exists=True, file_okay=False, path_type=Path))


def _folder(path: Path) -> RunFolder:
    run = RunFolder(path)
    if not run.exists():
        raise click.UsageError(f"{path} is no run folder: it has no shards.json")
    return run


@click.group()
def main() -> None:
    """Work on a run folder."""


@main.command()
@_RUN
@click.argument("shard", type=int)
def worker(run: Path, shard: int) -> None:
    """Run what is left of one shard here and now."""
    from jobs.worker import run_shard

    click.echo(f"{run_shard(str(_folder(run).path), shard)} samples ended")


@main.command()
@_RUN
def status(run: Path) -> None:
    """Say how far a run is."""
    from jobs.state import pending_units, read_state

    folder = _folder(run)
    state = read_state(folder)
    pending = pending_units(folder, state)
    click.echo(
        f"{folder.path.name}: {len(state.finished)} samples finished, {pending} left, "
        f"{len(state.unfinished)} of them interrupted in the middle"
    )


@main.command()
@_RUN
@click.option("--database", type=click.Path(path_type=Path), help="The warehouse.  [default: beside the run folders]")
def finalize(run: Path, database: Path | None) -> None:
    """Compact journals, grade, load the warehouse and print the result."""
    from jobs.finish import finish
    from warehouse.load import load_run
    from warehouse.summary import render, summary

    folder = _folder(run)
    finish(folder)
    database = database or folder.path.parent / "warehouse.duckdb"
    load_run(folder, database)
    render(summary(database, [folder.path.name]))


if __name__ == "__main__":
    main(prog_name="python -m jobs")
