"""Plan a comparison: `python -m warehouse.plan [RUN…] --margin 2 --power 0.8`.

This module is the command. The plan is in `warehouse.comparison.plans`, the statistics are in
`warehouse.statistics.planning`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import click

from harness.cli.command import whole_numbers
from jobs.arguments import RunName
from warehouse.options import (
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
    wait_option,
)

_Shape = Literal["table", "json"]
_BY_ENDING: dict[str, _Shape] = {".json": "json", ".txt": "table"}
_MOST_SAMPLES = 4096


_SAMPLES = whole_numbers(f"integers from 1 to {_MOST_SAMPLES}, separated by commas, e.g. 4,16", most=_MOST_SAMPLES)


@click.command(cls=WarehouseCommand)
@click.argument("runs", metavar="[RUN…]", nargs=-1, type=RunName())
@baseline_option()
@margin_option()
@click.option(
    "--power",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.8,
    show_default=True,
    help="Probability that the comparison shows non-inferiority.",
)
@click.option(
    "--difference",
    "difference_points",
    type=click.FloatRange(-100, 100),
    default=0.0,
    show_default=True,
    help="Assumed true difference in accuracy, method minus baseline, in percentage points.",
)
@click.option(
    "--samples", "ks", metavar="K,K…", callback=_SAMPLES, help="Samples per problem.  [default: 1,2,4,8,16,32]"
)
@click.option(
    "--problems", type=click.IntRange(2, 100_000), help="Number of problems to use.  [default: all of the dataset]"
)
@click.option(
    "--correlation",
    type=click.FloatRange(-1, 1),
    default=0.75,
    show_default=True,
    help="With only one run: assumed correlation, over problems, of its accuracy with the other method's.",
)
@database_option()
@format_option(("table", "json"))
@output_option()
@grader_option()
@wait_option()
def main(
    runs: tuple[str, ...],
    baseline: str | None,
    margin_points: float,
    power: float,
    difference_points: float,
    ks: tuple[int, ...],
    problems: int | None,
    correlation: float,
    database: Path | None,
    output_format: _Shape | None,
    output: Path | None,
    grader: str | None,
    wait_seconds: float,
) -> None:
    """Plan the number of problems and samples of a comparison, from the variances of earlier runs.

    RUN: a run id, a unique prefix, or a run folder. A baseline and another run serve as the pilot of the comparison; a
    single run requires an assumption (--correlation). Without RUN, a comparison is planned for every setting (method,
    parameters and models) in the database. A plan is for the "not worse" decision of warehouse.compare; GPU-hours are
    estimated from the same runs.
    """
    from warehouse.comparison import plans
    from warehouse.database import reader

    if difference_points <= -margin_points:
        raise click.UsageError(
            f"--difference {difference_points:g}: must be greater than −{margin_points:g}: a method that is worse by "
            "the margin cannot be shown to be non-inferior"
        )
    shape = choose_format(output_format, output, _BY_ENDING, "table")
    question = plans.Question(margin_points / 100, power, difference_points / 100, correlation, num_problems=problems)
    question = replace(question, ks=ks) if ks else question
    named = runs[0] if runs else baseline
    with reader(database or default_database(named), wait_seconds, grader) as connection:
        found, left_out = plans.read(connection, runs, baseline)
    planned = [plans.plan(basis, question) for basis in found]
    with complete_output(output) as out:
        plans.write(planned, left_out, out, shape)


if __name__ == "__main__":
    main(prog_name="python -m warehouse.plan")
