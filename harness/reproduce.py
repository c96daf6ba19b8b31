"""`python -m harness.reproduce SUITE`: the runs behind a published table or figure, ours beside the published values.

A command front: every run is launched with the suite's flags and, on top, those typed here; what is finished is not run
again. Then the table is printed from the warehouse. The work is in `warehouse.papers.reproduction`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from harness.cli import options
from harness.cli.command import OneLineErrors

_SUITE_DECIDES = {
    "method", "dataset", "split", "columns", "preset", "config", "samples", "limit", "problems", "take_turns",
    "parameter",
}  # fmt: skip
"""Flags of the launcher that the suite decides, or that not every method takes."""
_EXAMPLES = """\b
Examples:
  python -m harness.reproduce --list
  python -m harness.reproduce speccot-table2 --dry-run
  python -m harness.reproduce speccot-table2 --scale 30x2 --column gsm8k \\
    --cluster slurm --profile mycluster
"""
_LAUNCH_OPTIONS = [option for option in options.launch_options() if option.name not in _SUITE_DECIDES]


@click.command(cls=OneLineErrors, headings=options.GROUPS.values(), help_without_arguments=True, epilog=_EXAMPLES)
@click.argument("name", metavar="SUITE", required=False)
@click.option("--list", "listing", is_flag=True, help="Print the suites, and exit.")
@click.option("--dry-run", is_flag=True, help="Print what would be run and what it would take, and exit.")
@click.option("--table", "only_table", is_flag=True, help="Run nothing; print the table from the warehouse.")
@click.option(
    "--scale",
    metavar="PROBLEMSxSAMPLES",
    help="The first problems of each dataset and samples of each, e.g. 30x2; `paper` is the paper's.  [default: paper]",
)
@click.option("--column", "columns", multiple=True, help="Only this column, e.g. gsm8k; may be repeated.")
@click.option("--aligned", help="SCoT's aligned draft (see harness.train align), for the rows that need it.")
@click.option(
    "--hardware",
    "hardware_file",
    type=click.Path(exists=True, path_type=Path),
    help="TOML file of a machine's speeds, for the estimate.  [default: the paper's machine]",
)
@click.option(
    "--database", type=click.Path(path_type=Path), help="Database to load and read.  [default: beside the run folders]"
)
@click.pass_context
def main(context: click.Context, /, **values: Any) -> None:
    """Run a suite and print its table, ours beside the published values.

    Flags of harness.launch override the suite's.
    """
    from jobs.command import launch_errors_in_one_line
    from warehouse.papers import reproduction, suite

    if values["listing"]:
        for name in suite.names():
            listed = suite.load(name)
            click.echo(f"{name:22} {len(list(suite.planned(listed))):3} runs  {listed.title} ({listed.place})")
        return
    if values["name"] is None:
        raise click.UsageError("SUITE is missing; python -m harness.reproduce --list names them")
    launch_flags = {option.name for option in _LAUNCH_OPTIONS}
    typed = {name: value for name, value in options.typed_flags(context).items() if name in launch_flags}
    with launch_errors_in_one_line():
        reproduction.reproduce(
            reproduction.Reproduction(
                suite=suite.load(values["name"]),
                overrides={**typed, **_scale(values["scale"])},
                exact_scale=values["scale"] not in (None, "paper"),
                columns=values["columns"],
                aligned=values["aligned"],
                hardware_file=values["hardware_file"],
                database=values["database"] or Path(typed.get("output", "runs")) / "warehouse.duckdb",
            ),
            dry_run=values["dry_run"],
            only_table=values["only_table"],
        )


def _scale(text: str | None) -> dict[str, int]:
    """Return the flags of a scale such as 30x2."""
    if text in (None, "paper"):
        return {}
    numbers = re.fullmatch(r"([1-9]\d{0,5})x([1-9]\d{0,3})", str(text))
    if numbers is None:
        raise click.UsageError(f"--scale {text}: expected PROBLEMSxSAMPLES, e.g. 30x2, or paper")
    return {"limit": int(numbers[1]), "samples": int(numbers[2])}


main.params += _LAUNCH_OPTIONS

if __name__ == "__main__":
    main(prog_name="python -m harness.reproduce")
