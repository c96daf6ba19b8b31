"""Print the table of error rates: `python -m tools.simulate --repetitions 4000`."""

from __future__ import annotations

import click

from tools.simulate import error_rates, nights


@click.command()
@click.option(
    "--repetitions", default=4000, show_default=True, help="Number of data sets per cell; slow lines use fewer."
)
@click.option("--only", default="", help="Only lines whose interval or population contains this string.")
def main(repetitions: int, only: str) -> None:
    """Simulate all intervals and print one Markdown table; the seeds are fixed."""
    chosen = [line for line in error_rates.lines() if only in f"{line.what}, {line.population}"]
    for row in error_rates.table(chosen, repetitions):
        click.echo(row)
    click.echo(f"\n{error_rates.half_lengths(repetitions)}")
    click.echo(f"365 nights × {nights.CELLS} cells: {nights.seconds(365, 1):.1f} s of processor time.")


if __name__ == "__main__":
    main(prog_name="python -m tools.simulate")
