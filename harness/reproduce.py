"""`python -m harness.reproduce SUITE`: run a published table or figure, and compare with the published values.

SUITE may also be a custom suite file, as for `python -m jobs suite`; its table has the same layout.

Every run is launched with the suite's flags, overridden by those on the command line; finished runs are not repeated.
The table is then printed from the warehouse. The implementation is in `warehouse.suites.reproduction`.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import click

from harness.cli.command import FurtherOption
from harness.settings.launch_command import LaunchCommand

_SUITE_DECIDES = {
    "method", "dataset", "split", "columns", "preset", "config", "samples", "limit", "problems", "take_turns",
}  # fmt: skip
"""Launch flags that are set by the suite, or do not apply to every method."""
_COMMON = {"concurrency", "profile", "shards", "output"}
_EXAMPLES = """\b
Examples:
  python -m harness.reproduce --list
  python -m harness.reproduce --costs
  python -m harness.reproduce speccot-table2 --dry-run
  python -m harness.reproduce speccot-table2 --scale 30x2 --column gsm8k \\
    --cluster slurm --profile mycluster
  python -m harness.reproduce my-suite.toml --dry-run
  python -m harness.reproduce my-suite.toml --table -o table.tex
"""
_further = functools.partial(click.option, cls=FurtherOption)


@click.command(cls=LaunchCommand, without=_SUITE_DECIDES, common=_COMMON, epilog=_EXAMPLES)
@click.argument("name", metavar="SUITE", required=False)
@click.option("--list", "listing", is_flag=True, help="List the published suites, and exit.")
@click.option(
    "--costs",
    is_flag=True,
    help="Print the estimated GPU-hours of every published suite, with and without --every-sample-alone, and exit.",
)
@click.option("--dry-run", is_flag=True, help="Print the planned runs with their estimated costs, and exit.")
@click.option("--table", "only_table", is_flag=True, help="Only print the table from the warehouse.")
@click.option(
    "--scale",
    metavar="PROBLEMSxSAMPLES",
    help="Number of problems per dataset (the first ones) and of samples per problem, e.g. 30x2; `paper`: as "
    "published.  [default: paper]",
)
@click.option("--column", "columns", multiple=True, help="Use only this column (dataset), e.g. gsm8k; may be repeated.")
@_further(
    "--every-sample-alone",
    is_flag=True,
    help="For a published table: run samples one at a time, to measure latency.",
)
@_further("--aligned", help="SCoT's aligned draft model (see harness.train align), for the rows that use it.")
@_further(
    "-o",
    "output_file",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the table to FILE (.md, .tex, .csv or .txt).  [default: standard output]",
)
@_further(
    "--format",
    "output_format",
    type=click.Choice(("csv", "latex", "markdown", "table")),
    help="The table's format.  [default: by FILE's ending, else table]",
)
@_further(
    "--metric",
    "metrics",
    multiple=True,
    help="Metric in the table; may be repeated. Valid for a custom suite: pass@1, difference, tokens, spent-tokens, "
    "critical-path-tokens, latency, speed-up, latency-at-one, speed-up-at-one, fallback.  [default: for a published "
    "table, all of its metrics; for a custom suite, pass@1, tokens, latency, speed-up, and if latency-sample is set, "
    "latency-at-one, speed-up-at-one]",
)
@_further("--no-intervals", is_flag=True, help="Omit the 95 % intervals; CSV always has them.")
@_further("--database", type=click.Path(path_type=Path), help="Database to use.  [default: next to the run folders]")
@click.pass_context
def main(context: click.Context, /, **values: Any) -> None:
    """Run a suite and print its table next to the published values.

    SUITE is a published table (--list) or a custom TOML suite file, whose table has a row for each method and a column
    for each dataset. Flags of harness.launch override the suite's.
    """
    from warehouse.suites import reproduction

    assert isinstance(context.command, LaunchCommand)
    typed = context.command.flags_of(context)
    overrides = {**typed, **_scale(values["scale"])}
    reproduction.reproduce(values["name"], values, typed, overrides, context.params.get("max_gpu_hours"))


def _scale(text: str | None) -> dict[str, int]:
    if text in (None, "paper"):
        return {}
    numbers = re.fullmatch(r"([1-9]\d{0,5})x([1-9]\d{0,3})", str(text))
    if numbers is None:
        raise click.UsageError(f"--scale {text}: expected PROBLEMSxSAMPLES, e.g. 30x2, or the word paper")
    return {"limit": int(numbers[1]), "samples": int(numbers[2])}


if __name__ == "__main__":
    main(prog_name="python -m harness.reproduce")
