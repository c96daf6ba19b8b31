"""Fit the latency model to recorded calls: `python -m warehouse.latency --database DATABASE [RUN …]`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich import box
from rich.console import Console
from rich.table import Table

from jobs.arguments import RunName
from warehouse.display import plain, print_table
from warehouse.formatting import fixed, percent, signed
from warehouse.options import WarehouseCommand, database_option, default_database

if TYPE_CHECKING:
    from warehouse.latency_transfer import Transfer

_RUNS = "SELECT run_id FROM run WHERE run_id IN (SELECT run_id FROM timed_sample) ORDER BY run_id"


@click.command(cls=WarehouseCommand)
@click.argument("runs", metavar="[RUN]…", nargs=-1, type=RunName())
@database_option()
@click.option(
    "--splits", type=click.IntRange(1), default=50, show_default=True, help="Number of random splits into halves."
)
@click.option(
    "--across",
    is_flag=True,
    help="Also predict every run from runs that differ only in the number of samples in flight.",
)
@click.option("--speeds", is_flag=True, help="Also print the fitted coefficients, in seconds.")
def main(runs: tuple[str, ...], database: Path | None, splits: int, across: bool, speeds: bool) -> None:
    """Fit the latency model to each run (default: all runs) and measure how well it predicts the median latency."""
    from warehouse.comparison.outcomes import resolve
    from warehouse.database import reader, rows
    from warehouse.latency_fit import fit, timed_samples, validate
    from warehouse.latency_transfer import transfers

    console = Console(highlight=False)
    with reader(database or default_database(runs[0] if runs else None)) as connection:
        run_ids = [resolve(connection, run) for run in runs] or tuple(
            str(row["run_id"]) for row in rows(connection, _RUNS)
        )
        samples_by_run = {run_id: timed_samples(connection, run_id) for run_id in run_ids}
        found = transfers(connection, samples_by_run) if across else []
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("run", "samples", "median (s)", "fit", "halves: typical", "halves: worst"):
        is_name = name == "run"
        table.add_column(name, justify="left" if is_name else "right", min_width=None if is_name else 1)
    for run_id, samples in samples_by_run.items():
        validation = validate(samples, splits)
        table.add_row(
            plain(run_id),
            str(len(samples)),
            fixed(validation.observed_median_seconds, 1),
            f"{signed(100 * validation.fitted_error, 1)} %",
            percent(validation.typical),
            percent(validation.largest),
        )
    print_table(table, sys.stdout)
    console.print(
        "Relative errors of the predicted median latency. Fit: on the fitted samples. Halves: fitted on a random half, "
        "predicted on the other; median and maximum of the absolute errors over the splits.",
        soft_wrap=True,
    )
    if across:
        _print_transfers(console, found)
    for run_id, samples in samples_by_run.items() if speeds else ():
        model = fit(samples)
        overhead = f"{model.sample_overhead_seconds:.3g} s per sample outside its calls"
        console.print(plain(f"{run_id}: {overhead}"), soft_wrap=True)
        for role, speed in model.speeds.items():
            console.print(f"  {role}: " + ", ".join(f"{f.name} {getattr(speed, f.name):.3g}" for f in fields(speed)))


def _print_transfers(console: Console, found: Sequence[Transfer]) -> None:
    if not found:
        line = "Across concurrencies: no two of these runs differ only in the number of samples in flight."
        console.print(line, soft_wrap=True)
        return
    from warehouse.latency_transfer import transfer_table

    print_table(transfer_table(found), sys.stdout)
    console.print(
        "Relative errors of the median latency predicted from other runs. Error: with the requests in flight that the "
        "run recorded. In flight estimated: from the samples in flight, as harness.project does.",
        soft_wrap=True,
    )


if __name__ == "__main__":
    main(prog_name="python -m warehouse.latency")
