"""The plan of a suite of one's own: what is done, what is left, and what that is likely to take."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from rich.console import Console

from harness.plural import counted
from jobs import costs
from jobs.engine_plan import planned_starts
from jobs.run.forecast import Forecast
from warehouse.database import DatabaseError, WarehouseError, reader
from warehouse.own_tables.planned import OwnRun, by_row, state_of
from warehouse.own_tables.recorded import recorded_ids
from warehouse.papers.latency_sample import Hours
from warehouse.run_cost import alone, forecast


def print_plan(name: str, runs: list[OwnRun], database: Path, console: Console) -> None:
    """Print for each row whether it is done, partly done or missing, and the GPU-hours that are left, in sum too."""
    of_rows = by_row(runs)
    states = Counter(state_of(members) for members in of_rows.values())
    told = ", ".join(f"{states[state]} {state}" for state in ("done", "partly done", "missing") if states[state])
    console.print(
        f"{name}: {counted(len(of_rows), 'row')}, {counted(len(runs), 'run')}; rows: {told}",
        soft_wrap=not console.is_terminal,
    )
    recorded = _recorded(runs, database)
    left: list[Forecast | None] = []
    both_ways = Hours()
    for row, members in of_rows.items():
        console.print(f"  {row}: {state_of(members)}", markup=False, soft_wrap=not console.is_terminal)
        for run in members:
            line = f"    {run.dataset}: {run.state}, {run.finished} of {counted(run.num_samples, 'sample')}"
            both_ways += _both_ways(run, database) or Hours()
            if run.to_time:
                line += f", {run.to_time} to be timed alone"
            if run.state != "done":
                left.append(_left(run, database))
                line += f", {_in_words(left[-1])}"
                if recorded.get(run.run_id, run.run_id) != run.run_id:
                    line += f"; the database has {recorded[run.run_id]}, with the same models elsewhere"
            console.print(line, markup=False, soft_wrap=not console.is_terminal)
    total = costs.total_of(left) if left else "Total: nothing is left to run."
    console.print(total, soft_wrap=not console.is_terminal)
    if both_ways.alone:
        console.print(both_ways.as_asked(), soft_wrap=not console.is_terminal)
    if any(cost is None for cost in left):
        console.print(
            "Unknown: no run of these settings is in the database; run a few problems first (--scale 5x1).",
            soft_wrap=not console.is_terminal,
        )
    alone, together = planned_starts([run.prepared.launch for run in runs if run.state != "done"])
    if together < alone:
        console.print(f"Starts of engines on each worker: {together}; {alone} if every run started its own.")


def _recorded(runs: list[OwnRun], database: Path) -> dict[str, str]:
    """Return the ids of the runs in the database, by their ids here; empty where it cannot be read."""
    try:
        with reader(database) as connection:
            return recorded_ids(connection, runs)
    except (WarehouseError, DatabaseError):
        return {}


def _left(run: OwnRun, database: Path) -> Forecast | None:
    """Estimate what is left of a run, with the samples that are timed one at a time; None: unknown."""
    number, prepared = run.num_samples - run.finished, run.prepared
    return forecast(prepared.launch, prepared.plan.spec, number, database, to_time=run.to_time)


def _both_ways(run: OwnRun, database: Path) -> Hours | None:
    """Return the GPU-hours of a whole run with its latency sample, and with every sample alone.

    None: it has no latency sample, or the GPU-hours are unknown.
    """
    launch, spec = run.prepared.launch, run.prepared.plan.spec
    if launch.latency_sample is None:
        return None
    every, timing = (alone(launch, spec, number, database) for number in (run.num_samples, launch.latency_sample))
    batches = forecast(launch, spec, run.num_samples, database)
    if every is None or timing is None or batches is None:
        return None
    return Hours(_gpu_hours(every), _gpu_hours(batches), _gpu_hours(timing))


def _gpu_hours(cost: Forecast) -> float:
    return cost.hours if cost.has_gpu else 0.0


def _in_words(cost: Forecast | None) -> str:
    return "GPU-hours unknown" if cost is None else costs.in_words(cost)
