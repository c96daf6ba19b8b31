"""The plan of a suite of one's own: what is done, what is left, and what that is likely to take."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from rich.console import Console

from harness import hardware
from harness.plural import counted
from jobs.engine_plan import planned_starts
from warehouse.database import DatabaseError, WarehouseError, reader
from warehouse.measures import runs_like
from warehouse.own_tables.planned import OwnRun, by_row, state_of
from warehouse.own_tables.recorded import recorded_ids, same_cost
from warehouse.papers import estimate
from warehouse.papers.estimate import Estimate, Machine


def print_plan(name: str, runs: list[OwnRun], database: Path, hardware_file: Path | None, console: Console) -> None:
    """Print for each row whether it is done, partly done or missing, and the GPU-hours that are left, with their sum.

    Raises ValueError where the hardware file cannot be read or lacks a model.
    """
    machine = Machine(hardware.read(hardware_file), is_papers=False) if hardware_file else None
    rows = by_row(runs)
    states = Counter(state_of(members) for members in rows.values())
    told = ", ".join(f"{states[state]} {state}" for state in ("done", "partly done", "missing") if states[state])
    console.print(
        f"{name}: {counted(len(rows), 'row')}, {counted(len(runs), 'run')}; rows: {told}",
        soft_wrap=not console.is_terminal,
    )
    recorded = _recorded(runs, database)
    costs: list[Estimate | None] = []
    for row, members in rows.items():
        console.print(f"  {row}: {state_of(members)}", markup=False, soft_wrap=not console.is_terminal)
        for run in members:
            line = f"    {run.dataset}: {run.state}, {run.finished} of {counted(run.num_samples, 'sample')}"
            if run.state != "done":
                costs.append(_estimated(run, database, machine))
                line += f", {_in_words(costs[-1])}"
                if recorded.get(run.run_id, run.run_id) != run.run_id:
                    line += f"; the database has {recorded[run.run_id]}, with the same models elsewhere"
            console.print(line, markup=False, soft_wrap=not console.is_terminal)
    console.print(_total(costs), soft_wrap=not console.is_terminal)
    if machine is not None:
        console.print(
            f"Speeds of the model: {machine.hardware.name}; {machine.hardware.source}",
            soft_wrap=not console.is_terminal,
        )
    elif any(cost is None for cost in costs):
        console.print(
            "Unknown: no run of these settings is in the database. With --hardware FILE the latency model estimates "
            "them from a machine's speeds.",
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


def _estimated(run: OwnRun, database: Path, machine: Machine | None) -> Estimate | None:
    """Estimate what is left of a run, from recorded runs of its settings, else by the latency model; None: unknown."""
    launch, left = run.prepared.launch, run.num_samples - run.finished
    try:
        with reader(database) as connection:
            for recorded in runs_like(connection, same_cost(run.prepared.plan.spec)):
                if found := estimate.from_history(launch, recorded, left):
                    return found
    except (WarehouseError, DatabaseError):
        pass  # no history
    return None if machine is None else estimate.guessed(launch, machine, left)


def _in_words(cost: Estimate | None) -> str:
    if cost is None:
        return "GPU-hours unknown"
    hours = f"{_hours(cost.gpu_hours)} GPU-hours" if cost.gpu_hours else f"{_hours(cost.worker_hours)} worker-hours"
    return f"{hours} left ({cost.source})"


def _hours(hours: float) -> str:
    return f"{hours:,.1f}" if hours >= 1 else f"{hours:.2g}"


def _total(costs: list[Estimate | None]) -> str:
    if not costs:
        return "Total: nothing is left to run."
    known = [cost for cost in costs if cost is not None]
    unknown = f"; unknown for {counted(len(costs) - len(known), 'run')}" if len(known) < len(costs) else ""
    if not known:
        return f"Total: GPU-hours unknown for {counted(len(costs), 'run')}."
    without_gpus = sum(cost.worker_hours for cost in known if not cost.gpu_hours)
    more = f" and {_hours(without_gpus)} worker-hours without a GPU" if without_gpus else ""
    return f"Total: {_hours(sum(cost.gpu_hours for cost in known))} GPU-hours{more} left{unknown}."
