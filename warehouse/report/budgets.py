"""Accuracy of a run by token budget, from a sweep over its chains (jobs sweep-budget)."""

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
"""Query for the points of a sweep, or of all sweeps over a run's chains, in the order of creation."""
EXPLAINED = (
    "pass@1: of the run's chains at each budget. A chain within the budget keeps its verdict. A longer chain is "
    "truncated, and an answer is generated; the answer does not count toward the budget. Cut: share of truncated "
    "chains. Chain: mean tokens per chain, after truncation. Answer and prefilled: mean generated tokens and uncached "
    "prompt tokens of the generated answers."
)
NOT_PLANNED = "Chains are cut at step boundaries, not re-planned: a method that plans by its budget may do better."
_COLUMNS = ("budget", "pass@1 (95 %)", "cut", "chain", "answer", "prefilled")


def print_sweep(connection: Connection, run_id: str, out: Console) -> None:
    """Print accuracy and tokens by budget for the run of a sweep."""
    from warehouse.database import rows

    if not (points := rows(connection, POINTS, {"run_id": run_id})):
        raise WarehouseError(f"{run_id} has no readable truncated chains: run python -m jobs sweep-budget again")
    table = Table([Column(name, is_right=True) for name in _COLUMNS], list(map(_cells, points)))
    source, samples = points[0]["source_run_id"], points[0]["num_samples"]
    missing, planned = max(point["missing"] or 0 for point in points), points[0]["planned"]
    below = [EXPLAINED, *([] if all(point["is_exact"] for point in points) else [NOT_PLANNED])]
    if missing:
        told = f"no verdict on {counted(missing, 'sample')} at some budget, counted as incorrect"
        below.append(f"UNFINISHED: {told}; finish {run_id} or load {source}.")
    if planned > samples:
        below.append(f"PARTIAL: {samples} of {planned} samples of {source}; the other samples were not finished.")
    title = Line(
        f"Token budgets of {source}: {counted(samples, 'sample')} per budget; the {points[0]['answered_by']} writes "
        "the answers."
    )
    Screen(out, is_fitted=True).show([title, table, *map(Line, below)])


def _cells(point: Record) -> tuple[str, ...]:
    right, ends = point["pass_at_1"], span(point["low_95"], point["high_95"], 0, 100).replace(" to ", "–")
    tokens = (number(point[f"{name}_tokens"]) for name in ("chain", "answer", "prefilled"))
    share = percent(point["num_cut"] / point["num_samples"])
    return f"{point['budget']:,}", f"{fixed(right, 1, 100)} ({ends})", share, *tokens
