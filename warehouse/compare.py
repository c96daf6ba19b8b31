"""Compare runs with a baseline: `python -m warehouse.compare RUN RUN…`.

The output consists of warnings, the differences between the manifests, and accuracy and latency, paired by problem.
This module is the command; the comparison is in `warehouse.comparison`.
"""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import click

from harness.cli.command import whole_numbers
from warehouse.options import (
    ComparisonFormat,
    WarehouseCommand,
    baseline_option,
    choose_format,
    complete_output,
    database_option,
    default_database,
    format_option,
    grader_option,
    margin_option,
    output_option,
    runs_argument,
    wait_option,
)

_BY_ENDING: dict[str, ComparisonFormat] = {
    ".csv": "csv", ".json": "json", ".md": "markdown", ".tex": "latex", ".txt": "table",
}  # fmt: skip


_KS = whole_numbers("positive integers separated by commas, e.g. 4,16")


@click.command(cls=WarehouseCommand)
@runs_argument("RUN RUN…")
@baseline_option()
@margin_option()
@click.option("--k", "ks", metavar="K,K…", callback=_KS, help="Add pass@K, and maj@K with --maj.")
@click.option(
    "--maj", "majority", is_flag=True, help="Add the majority vote, maj@k.  [default k: fewest samples per problem]"
)
@click.option(
    "--all",
    "is_complete",
    is_flag=True,
    help="Print all columns (including p, re-run SE and fallback) and all differences.",
)
@click.option("--force", is_flag=True, help="Compare latency even if hardware or settings differ.")
@database_option()
@format_option(get_args(ComparisonFormat))
@output_option()
@grader_option()
@wait_option()
def main(
    runs: tuple[str, ...],
    baseline: str | None,
    margin_points: float,
    ks: tuple[int, ...],
    majority: bool,
    is_complete: bool,
    force: bool,
    database: Path | None,
    output_format: ComparisonFormat | None,
    output: Path | None,
    grader: str | None,
    wait_seconds: float,
) -> None:
    """Compare runs, paired by problem. RUN: a run id, a unique prefix, or a run folder.

    A table on standard output has only the main columns: accuracy, difference, non-inferiority and speed-up. LaTeX has
    the columns that papers usually report. --all adds the other columns. Other formats are always complete.
    """
    from warehouse.comparison.contrasts import Settings, compare_runs
    from warehouse.comparison.written import write

    shape = choose_format(output_format, output, _BY_ENDING, "table")
    settings = Settings(margin_points / 100, ks, majority, force)
    comparison = compare_runs(
        runs,
        database or default_database(runs[0]),
        settings,
        baseline=baseline,
        grader=grader,
        wait_seconds=wait_seconds,
    )
    with complete_output(output) as out:
        write(comparison, out, shape, is_brief=not is_complete and (output is None or shape == "latex"))


if __name__ == "__main__":
    main(prog_name="python -m warehouse.compare")
