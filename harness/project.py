"""`python -m harness.project RUN --hardware FILE`: project a run's duration onto another machine.

The latency model is applied to the recorded calls of the run with the speeds of the hardware file; fitting the same
model to the run itself shows how accurate it is.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness import hardware
from harness.cli.command import OneLineErrors
from harness.plural import counted

if TYPE_CHECKING:
    from warehouse.latency_fit import TimedSample, Validation


@click.command(cls=OneLineErrors)
@click.argument("run", metavar="RUN")
@click.option(
    "--hardware",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    required=True,
    help="TOML file of the machine's speeds; example: harness/papers/hardware/a100x4.toml.",
)
@click.option(
    "--database",
    type=click.Path(path_type=Path),
    help="Database to read.  [default: warehouse.duckdb beside the runs: beside RUN, in runs, or here]",
)
@click.option("--concurrency", type=click.IntRange(1), help="Samples in flight per worker.  [default: the file's]")
@click.option("--workers", type=click.IntRange(1), help="Workers.  [default: the file's]")
def main(run: str, file: Path, database: Path | None, concurrency: int | None, workers: int | None) -> None:
    """Project the duration of RUN (a run folder, a run id or its beginning) onto other hardware."""
    from warehouse.options import usage_errors

    overrides = {"concurrency": concurrency, "workers": workers}
    try:
        machine = hardware.read(file).model_copy(update={k: v for k, v in overrides.items() if v is not None})
        with usage_errors():
            run_id, samples, planned, checked = _recorded(run, database)
        projection = hardware.project([sample.work for sample in samples], machine, planned)
    except ValueError as wrong:
        raise click.UsageError(str(wrong)) from wrong
    _print(run_id, samples, planned, checked, machine, projection)


def _recorded(run: str, database: Path | None) -> tuple[str, list[TimedSample], int, Validation]:
    """Return the run id, the timed samples, the number of planned ones, and how well the latency model fits."""
    from warehouse.comparison.outcomes import resolve
    from warehouse.database import reader, rows
    from warehouse.latency_fit import timed_samples, validate
    from warehouse.options import default_database

    with reader(database or default_database(run)) as connection:
        run_id = resolve(connection, run)
        samples = timed_samples(connection, run_id)
        [planned] = rows(connection, "SELECT count(*) AS n FROM sample WHERE run_id = $run_id", {"run_id": run_id})
    return run_id, samples, int(str(planned["n"])), validate(samples)


def _print(
    name: str,
    samples: list[TimedSample],
    planned: int,
    checked: Validation,
    machine: hardware.Hardware,
    projection: hardware.Projection,
) -> None:
    from jobs.watch.show import duration

    measured = [sample.latency_seconds for sample in samples]
    click.echo(f"{name}: {len(samples)} of {counted(planned, 'sample')} timed")
    click.echo(
        f"  projected onto: {machine.name}; {machine.concurrency} in flight, {counted(machine.workers, 'worker')}"
    )
    click.echo(f"  speeds: {machine.source}")
    for label, seconds in (("measured", measured), ("projected", projection.latency_seconds)):
        mean, median = statistics.fmean(seconds), statistics.median(seconds)
        click.echo(f"  latency, {label:9}  mean {mean:.3g} s, median {median:.3g} s per sample")
    if machine.concurrency > 1:
        crowd = ", ".join(f"{role} {number:.1f}" for role, number in projection.in_flight.items())
        click.echo(f"  projected requests in flight, on average: {crowd}")
    click.echo(
        f"  whole run, projected  {duration(projection.wall_seconds)} of wall time, "
        f"{projection.gpu_hours:.3g} GPU-hours ({planned} samples, including the start of the engines)"
    )
    typical = "too few samples to cross-validate"
    if checked.typical is not None:
        typical = f"typically {100 * checked.typical:.1f} % in split-half cross-validation"
    fitted = f"{100 * abs(checked.fitted_error):.1f} % in-sample"
    click.echo(f"  model error on this run (median latency): {fitted}, {typical}")
    click.echo("  not modeled: different output lengths, and idle workers at the end of the run")


if __name__ == "__main__":
    main(prog_name="python -m harness.project")
