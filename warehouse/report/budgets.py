"""The accuracy of a run against token budgets, as a sweep over its chains found it (jobs sweep-budget)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from harness.cli.messages import counted
from harness.cli.number_format import fixed, number, percent, span
from harness.cli.screen import Column, Line, Screen, Table
from warehouse.files import WarehouseError

if TYPE_CHECKING:
    from warehouse.database import Connection, Record

POINTS = """
SELECT curve.*, estimate AS pass_at_1, low_95, high_95, standard_error, interval_kind, missing,
    json_extract_string(params, '$.model') AS answered_by,
    (SELECT count(*) FROM sample WHERE sample.run_id = source_run_id) AS planned
FROM budget_curve AS curve JOIN run USING (run_id) LEFT JOIN counted_estimate AS found ON found.run_id = curve.run_id
    AND metric = 'accuracy_at_budget' AND group_value = budget::VARCHAR
WHERE $run_id IN (curve.run_id, source_run_id) ORDER BY created_at, curve.run_id, budget
"""
"""Of a sweep, or of all sweeps of a run's chains, in their order."""
EXPLAINED = (
    "A chain that had ended within the budget keeps its own verdict. The others are cut there, their thought is "
    "closed, and their answer is asked for: it is beside the budget, where a chain that had ended has its own within. "
    "Tokens are means: of the chain over all samples; over the cut ones, what the answer generated, and what it read "
    "that the prefix cache did not hold."
)
NOT_PLANNED = "The chains are cut at the ends of steps, not re-planned: with the budget known, a method may do better."
_COLUMNS = ("budget", "pass@1 (95 %)", "cut", "chain", "answer", "prefilled")


def print_sweep(connection: Connection, run_id: str, out: Console) -> None:
    """Print accuracy and tokens by budget, of the run of a sweep."""
    from warehouse.database import rows

    if not (points := rows(connection, POINTS, {"run_id": run_id})):
        raise WarehouseError(f"{run_id} has no cuts that can be read: repeat its python -m jobs sweep-budget")
    table = Table([Column(name, is_right=True) for name in _COLUMNS], list(map(_cells, points)))
    source, samples = points[0]["source_run_id"], points[0]["num_samples"]
    missing, planned = max(point["missing"] or 0 for point in points), points[0]["planned"]
    below = [EXPLAINED, *([] if all(point["is_exact"] for point in points) else [NOT_PLANNED])]
    if missing:
        lacking = counted(missing, "sample has", "samples have")
        below.append(
            f"UNFINISHED: {lacking} no verdict at some budget by this run's grader; {source} has to be loaded."
        )
    if planned > samples:
        below.append(f"PARTIAL: {samples} of the {planned} samples of {source}; the others had not ended.")
    title = Line(
        f"Token budgets of {source}: {counted(samples, 'sample')} at each, answers by the {points[0]['answered_by']}."
    )
    Screen(out, is_fitted=True).show([title, table, *map(Line, below)])


def _cells(point: Record) -> tuple[str, ...]:
    right, ends = point["pass_at_1"], span(point["low_95"], point["high_95"], 0, 100).replace(" to ", "–")
    tokens = (number(point[f"{name}_tokens"]) for name in ("chain", "answer", "prefilled"))
    share = percent(point["num_cut"] / point["num_samples"])
    return f"{point['budget']:,}", f"{fixed(right, 1, 100)} ({ends})", share, *tokens
