"""`python -m harness.reproduce SUITE`: the runs behind a published table or figure, ours beside the published values.

SUITE may also be a file of launches of one's own, as `python -m jobs suite` takes it: its table is laid out likewise.

A command front: every run is launched with the suite's flags and, on top, those typed here; what is finished is not run
again. Then the table is printed from the warehouse. The work is in `warehouse.suites.reproduction`.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import click

from harness.cli.command import FurtherOption
from harness.settings.declaration import Flags, flag
from harness.settings.launch_command import LaunchCommand

_SUITE_DECIDES = {
    "method", "dataset", "split", "columns", "preset", "config", "samples", "limit", "problems", "take_turns",
}  # fmt: skip
"""Flags of the launcher that the suite decides, or that not every method takes."""
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
_FORMATS: Mapping[str, Literal["table", "csv", "markdown", "latex"]] = {
    ".md": "markdown", ".tex": "latex", ".csv": "csv", ".txt": "table"
}  # fmt: skip


_further = functools.partial(click.option, cls=FurtherOption)


@click.command(cls=LaunchCommand, without=_SUITE_DECIDES, common=_COMMON, epilog=_EXAMPLES)
@click.argument("name", metavar="SUITE", required=False)
@click.option("--list", "listing", is_flag=True, help="Print the suites, and exit.")
@click.option("--costs", is_flag=True, help="Print the GPU-hours of every suite, also of every sample alone, and exit.")
@click.option("--dry-run", is_flag=True, help="Print what would be run and what it would take, and exit.")
@click.option("--table", "only_table", is_flag=True, help="Run nothing; print the table from the warehouse.")
@click.option(
    "--scale",
    metavar="PROBLEMSxSAMPLES",
    help="The first problems of each dataset and samples of each, e.g. 30x2; `paper` is the paper's.  [default: paper]",
)
@click.option("--column", "columns", multiple=True, help="Only this column (dataset), e.g. gsm8k; may be repeated.")
@_further("--every-sample-alone", is_flag=True, help="Published table: run every sample alone for its latencies.")
@_further("--aligned", help="SCoT's aligned draft (see harness.train align), for the rows that need it.")
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
    type=click.Choice(sorted(_FORMATS.values())),
    help="The table's format.  [default: by FILE's ending, else table]",
)
@_further(
    "--metric",
    "metrics",
    multiple=True,
    help="A number of every cell; may be repeated. Own suite: pass@1, difference, tokens, spent-tokens, "
    "critical-path-tokens, latency, speed-up, latency-at-one, speed-up-at-one, fallback.  [default: pass@1, tokens, "
    "latency, speed-up, and with latency-sample the two at one; all of a published table]",
)
@_further("--no-intervals", is_flag=True, help="Leave out the 95 % intervals; CSV always has them.")
@_further("--database", type=click.Path(path_type=Path), help="Database to use.  [default: beside the run folders]")
@click.pass_context
def main(context: click.Context, /, **values: Any) -> None:
    """Run a suite and print its table, ours beside the published values.

    SUITE is a published table (--list), or a TOML file of launches of your own: its table has a row for each
    method and a column for each dataset. Flags of harness.launch override the suite's.
    """
    from harness.cli.screen import Column, Line, Screen, Table, terminal
    from harness.settings.layers import flags_of_profile
    from jobs.cli.launches import SUITES
    from jobs.outcome import launch_errors_in_one_line
    from warehouse.options import check_output_folder, choose_format
    from warehouse.suites import published, reproduction

    if values["listing"]:
        suites = {known: published.load(known) for known in published.names()}
        numbers = {known: len(list(published.planned(suite))) for known, suite in suites.items()}
        rows = [(known, f"{numbers[known]} runs", f"{one.title} ({one.place})") for known, one in suites.items()]
        rest = Line(f"or a TOML file of launches, also a bundled one: {', '.join(SUITES)}")
        Screen(sys.stdout).show([Table([Column("")] * 3, rows), rest])
        return
    assert isinstance(context.command, LaunchCommand)
    typed, name = context.command.flags_of(context), values["name"]
    overrides = {**typed, **_scale(values["scale"])}
    profile = flags_of_profile(None if typed.get("profile") is None else str(typed["profile"]))
    output = {"output": "runs", **profile, **typed}["output"]
    database = values["database"] or Path(str(output)) / "warehouse.duckdb"
    path = Path(name or "")
    is_file = path.suffix or path.is_file() or len(path.parts) > 1
    file = None if name in published.names() else path if is_file else SUITES.get(name)
    _refuse(values, typed, is_own=file is not None)
    with launch_errors_in_one_line():
        if values["costs"]:
            reproduction.print_costs(overrides, values["aligned"], database, terminal())
            return
        check_output_folder("-o", values["output_file"])
        printed = reproduction.Printed(
            metrics=tuple(dict.fromkeys(values["metrics"])),
            shape=choose_format(values["output_format"], values["output_file"], _FORMATS, "table"),
            output=values["output_file"],
            has_intervals=not values["no_intervals"],
        )
        how = {"dry_run": values["dry_run"], "only_table": values["only_table"]}
        if file is not None:
            reproduction.reproduce_own(file, overrides, values["columns"], values["database"], printed, **how)
            return
        asked = published.Reproduction(
            suite=published.load(name),
            overrides={key: value for key, value in overrides.items() if key != "max_gpu_hours"},
            max_gpu_hours=context.params.get("max_gpu_hours"),
            every_sample_alone=values["every_sample_alone"],
            exact_scale=values["scale"] not in (None, "paper"),
            columns=values["columns"],
            aligned=values["aligned"],
            database=database,
        )
        reproduction.reproduce_published(asked, printed, **how)


def _refuse(values: Mapping[str, Any], typed: Flags, *, is_own: bool) -> None:
    """Raise UsageError for options that do not go together."""
    name, alone = values["name"], values["every_sample_alone"]
    refused = {
        f"--costs is of all published suites: leave out {name}, or use --dry-run": values["costs"] and name is not None,
        "SUITE is missing; python -m harness.reproduce --list names them, or name a TOML file": name is None
        and not values["costs"],
        "--dry-run prints the plan and --table the table, and neither runs anything: choose one": values["dry_run"]
        and values["only_table"],
        f"--every-sample-alone is for published tables; {name} has latency-sample or not": is_own and alone,
        f"--aligned is for published tables; {name} names its drafts itself": is_own and values["aligned"],
        **{
            f"--every-sample-alone has one sample in flight: leave out {flag(other)}": alone
            and typed.get(other, 1) != 1
            for other in ("latency_sample", "concurrency")
        },
    }
    for message, is_wrong in refused.items():
        if is_wrong:
            raise click.UsageError(message)


def _scale(text: str | None) -> dict[str, int]:
    """Return the flags of a scale such as 30x2."""
    if text in (None, "paper"):
        return {}
    numbers = re.fullmatch(r"([1-9]\d{0,5})x([1-9]\d{0,3})", str(text))
    if numbers is None:
        raise click.UsageError(f"--scale {text}: expected PROBLEMSxSAMPLES, e.g. 30x2, or paper")
    return {"limit": int(numbers[1]), "samples": int(numbers[2])}


if __name__ == "__main__":
    main(prog_name="python -m harness.reproduce")
