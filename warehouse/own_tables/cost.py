"""The plan of a suite of one's own: what is done, what is left, and what that is likely to take."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from harness import hardware
from harness.plural import counted
from jobs.engine_plan import planned_starts
from jobs.run.spec import RunSpec
from warehouse.database import DatabaseError, WarehouseError, reader, rows
from warehouse.measures import runs_like
from warehouse.own_tables.planned import OwnRun, by_row, state_of
from warehouse.own_tables.recorded import recorded_ids, same_cost
from warehouse.papers import estimate
from warehouse.papers.estimate import Estimate, Machine
from warehouse.papers.latency_sample import Hours

_ALONE = "SELECT run_id, mean_seconds FROM latency_at_one"


def print_plan(name: str, runs: list[OwnRun], database: Path, hardware_file: Path | None, console: Console) -> None:
    """Print for each row whether it is done, partly done or missing, and the GPU-hours that are left, with their sum.

    Raises ValueError where the hardware file cannot be read or lacks a model.
    """
    machine = Machine(hardware.read(hardware_file), is_papers=False) if hardware_file else None
    of_rows = by_row(runs)
    states = Counter(state_of(members) for members in of_rows.values())
    told = ", ".join(f"{states[state]} {state}" for state in ("done", "partly done", "missing") if states[state])
    console.print(
        f"{name}: {counted(len(of_rows), 'row')}, {counted(len(runs), 'run')}; rows: {told}",
        soft_wrap=not console.is_terminal,
    )
    recorded = _recorded(runs, database)
    costs: list[Estimate | None] = []
    both_ways = Hours()
    for row, members in of_rows.items():
        console.print(f"  {row}: {state_of(members)}", markup=False, soft_wrap=not console.is_terminal)
        for run in members:
            line = f"    {run.dataset}: {run.state}, {run.finished} of {counted(run.num_samples, 'sample')}"
            both_ways += _both_ways(run, database, machine) or Hours()
            if run.to_time:
                line += f", {run.to_time} to be timed alone"
            if run.state != "done":
                costs.append(_left(run, database, machine))
                line += f", {_in_words(costs[-1])}"
                if recorded.get(run.run_id, run.run_id) != run.run_id:
                    line += f"; the database has {recorded[run.run_id]}, with the same models elsewhere"
            console.print(line, markup=False, soft_wrap=not console.is_terminal)
    console.print(_total(costs), soft_wrap=not console.is_terminal)
    if both_ways.alone:
        console.print(both_ways.as_asked(), soft_wrap=not console.is_terminal)
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


def _left(run: OwnRun, database: Path, machine: Machine | None) -> Estimate | None:
    """Estimate what is left of a run, with the samples that are timed one at a time; None: unknown."""
    number = run.num_samples - run.finished
    parts = [_in_batches(run, number, database, machine)] if number else []
    if run.to_time:
        parts.append(_alone(run, run.to_time, database, machine))
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    source = "; one at a time: ".join(dict.fromkeys(part.source for part in known))
    return Estimate(sum(part.worker_hours for part in known), sum(part.gpu_hours for part in known), source)


def _both_ways(run: OwnRun, database: Path, machine: Machine | None) -> Hours | None:
    """Return the GPU-hours of a whole run with its latency sample, and with every sample alone.

    None: it has no latency sample, or the GPU-hours are unknown.
    """
    asked = run.prepared.launch.latency_sample
    if asked is None:
        return None
    alone, timing = (_alone(run, number, database, machine) for number in (run.num_samples, asked))
    batches = _in_batches(run, run.num_samples, database, machine)
    return Hours(alone.gpu_hours, batches.gpu_hours, timing.gpu_hours) if alone and timing and batches else None


def _in_batches(run: OwnRun, number: int, database: Path, machine: Machine | None) -> Estimate | None:
    """Estimate samples of a run, from recorded runs of its settings, else by the latency model; None: unknown."""
    launch = run.prepared.launch
    for recorded in _like(run.prepared.plan.spec, database):
        if found := estimate.from_history(launch, recorded, number):
            return found
    return None if machine is None else estimate.guessed(launch, machine, number)


def _alone(run: OwnRun, number: int, database: Path, machine: Machine | None) -> Estimate | None:
    """Estimate samples of a run that run one at a time over engines that are up; None: unknown.

    Recorded runs with one sample in flight come first, then the latency that those in batches have from timing samples.
    """
    launch = run.prepared.launch.changed(concurrency=1, latency_sample=None)
    for recorded in _like(replace(run.prepared.plan.spec, concurrency=1), database):
        if found := estimate.from_history(launch, recorded, number):
            return found
    for recorded in _like(run.prepared.plan.spec, database):
        if seconds := recorded["seconds_alone"]:
            hours = float(str(seconds)) * number / 3600
            source = f"history: timing samples of {recorded['run_id']} on {recorded['devices']}"
            return Estimate(hours, hours * int(str(recorded["num_gpus"] or 0)), source)
    if machine is None:
        return None
    up = machine.hardware.model_copy(update={"start_seconds": 0.0})
    return estimate.guessed(launch, replace(machine, hardware=up), number)


def _like(spec: RunSpec, database: Path) -> list[dict[str, object]]:
    """Return the recorded runs of the same cost, `seconds_alone` by their timing samples; none without a history."""
    try:
        with reader(database) as connection:
            alone = {row["run_id"]: row["mean_seconds"] for row in rows(connection, _ALONE)}
            return [run | {"seconds_alone": alone.get(run["run_id"])} for run in runs_like(connection, same_cost(spec))]
    except (WarehouseError, DatabaseError):
        return []


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
