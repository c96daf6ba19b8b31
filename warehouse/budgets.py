"""Print the accuracy of a run against token budgets: `python -m warehouse.budgets RUN`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from harness.cli.messages import counted
from harness.cli.number_format import fixed, number, percent, span
from harness.cli.screen import Column, Line, Screen, Table
from jobs.arguments import RunName
from warehouse.files import WarehouseError
from warehouse.options import WarehouseCommand, database_option, default_database, format_option, wait_option

if TYPE_CHECKING:
    from rich.console import Console

    from warehouse.database import Connection, Record

POINTS = """
SELECT curve.*, estimate AS pass_at_1, low_95, high_95, standard_error, interval_kind, missing, n
FROM budget_curve AS curve LEFT JOIN counted_estimate AS found ON found.run_id = curve.run_id
    AND metric = 'accuracy_at_budget' AND group_value = budget::VARCHAR
WHERE $run_id IN (curve.run_id, source_run_id) ORDER BY curve.run_id, budget
"""
"""Of a sweep, or of all sweeps of a run's chains."""
EXPLAINED = (
    "A chain that had ended within the budget keeps its own verdict. The others are cut there, their thought is "
    "closed, and their answer is asked for, beside the budget. Tokens are means: of the chain over all samples; over "
    "the cut ones, what the answer generated, and what it read that the prefix cache did not hold."
)
NOT_PLANNED = "The chains are cut at the ends of steps, not re-planned: with the budget known, a method may do better."


def swept(connection: Connection, run_id: str) -> dict[str, Any]:
    """Return accuracy and tokens by budget, as numbers for programs. Raises WarehouseError where there is none."""
    from warehouse.database import rows

    points = [dict(row) for row in rows(connection, POINTS, {"run_id": run_id})]
    if not points:
        raise WarehouseError(f"{run_id} is no sweep of budgets; one is made by: python -m jobs sweep-budget RUN")
    common = {name: points[0][name] for name in ("run_id", "source_run_id", "is_exact")}
    return common | {"points": [{k: v for k, v in point.items() if k not in common} for point in points]}


def print_swept(sweep: Record, out: IO[str] | Console) -> None:
    """Print a sweep's result for people."""
    points = sweep["points"]
    columns = [Column("", is_right=True), *(Column(name, is_right=True) for name in _COLUMNS)]
    table = Table(columns, [(f"{point['budget']}", *_cells(point)) for point in points])
    samples = counted(points[0]["num_samples"], "sample")
    missing = max(point["missing"] or 0 for point in points)
    below = [EXPLAINED, *([] if sweep["is_exact"] else [NOT_PLANNED])]
    below += [f"UNFINISHED: {counted(missing, 'sample has', 'samples have')} no verdict at some budget."] * bool(
        missing
    )
    title = Line(f"Token budgets of {sweep['source_run_id']}: {samples} at each.")
    Screen(out, is_fitted=True).show([title, table, *map(Line, below)])


_COLUMNS = ("pass@1 (95 %)", "cut", "chain", "answer", "prefilled")


def _cells(point: Record) -> tuple[str, ...]:
    ends = span(point["low_95"], point["high_95"], 0, 100).replace(" to ", "–")
    tokens = (number(point[f"{name}_tokens"]) for name in ("chain", "answer", "prefilled"))
    return f"{fixed(point['pass_at_1'], 1, 100)} ({ends})", percent(point["num_cut"] / point["num_samples"]), *tokens


@click.command(cls=WarehouseCommand)
@click.argument("run", metavar="RUN", type=RunName())
@database_option()
@format_option(("table", "json"), default="table")
@wait_option()
def main(run: str, database: Path | None, output_format: str | None, wait_seconds: float) -> None:
    """Print the accuracy of a run at token budgets, and the tokens that it takes.

    RUN is the run of the answers behind the cut chains, which python -m jobs sweep-budget makes.
    """
    from warehouse.comparison.outcomes import resolve
    from warehouse.database import reader

    with reader(database or default_database(run), wait_seconds) as connection:
        sweep = swept(connection, resolve(connection, run))
    if output_format == "json":
        json.dump(sweep, sys.stdout, indent=2)
        print()
    else:
        print_swept(sweep, sys.stdout)


if __name__ == "__main__":
    main(prog_name="python -m warehouse.budgets")
