"""What the planned runs of a published table take, and whether what is left of them is below a limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harness import hardware
from harness.launch_options import Launch
from jobs import costs
from jobs.preparation import PreparedLaunch
from warehouse.database import DatabaseError, WarehouseError, reader
from warehouse.measures import runs_like
from warehouse.papers import conditions, estimate, latency_sample, published
from warehouse.papers.entries import SuiteRun
from warehouse.papers.estimate import Estimate, Machine
from warehouse.papers.suite_runs import Reproduction


def machine_of(reproduction: Reproduction) -> Machine:
    """Return the machine that the estimates are for."""
    file = reproduction.hardware_file
    return Machine(hardware.read(file), is_papers=False) if file else estimate.papers_machine(reproduction.suite)


def estimated(reproduction: Reproduction, run: SuiteRun, machine: Machine) -> Estimate | None:
    """Estimate a planned run: from recorded runs of the same kind, otherwise from what the papers publish.

    Raises ValueError if the hardware file lacks a model.
    """
    if run.launch is None or run.paper is None:
        return None
    try:
        with reader(reproduction.database) as connection:
            for recorded in runs_like(connection, conditions.run_columns(run.launch)):
                if from_history := estimate.from_history(run.launch, recorded):
                    return from_history
    except (WarehouseError, DatabaseError):
        pass  # no history: the papers answer
    own, of_paper = (published.setting(reproduction.suite, run.plan, launch) for launch in (run.launch, run.paper))
    return estimate.estimate(run.launch, own, of_paper, published.everything(), machine)


def both_ways_of(
    reproduction: Reproduction, run: SuiteRun, machine: Machine, timed: int
) -> latency_sample.Hours | None:
    """Return what a run takes alone and with a latency sample; None where it is not there for a latency alone."""
    if run.launch is None or run.paper is None or not latency_sample.measures_latency(reproduction.suite, run.launch):
        return None
    own, of_paper = (published.setting(reproduction.suite, run.plan, launch) for launch in (run.launch, run.paper))

    def by_plan(launch: Launch) -> Estimate | None:
        return estimated(reproduction, replace(run, launch=launch), machine)

    def by_model(launch: Launch) -> Estimate | None:
        return estimate.modelled(launch, own, of_paper, published.everything(), machine)

    start_hours = machine.hardware.start_seconds / 3600 * machine.gpus(run.launch)
    return latency_sample.hours(run.launch, timed, start_hours, by_plan, by_model)


def check_budget(reproduction: Reproduction, runs: Sequence[SuiteRun], prepared: Sequence[PreparedLaunch]) -> None:
    """Raise costs.OverBudget where what is left takes more than the limit by the plan's estimates, or has none."""
    machine, limit = machine_of(reproduction), reproduction.max_gpu_hours or 0.0
    hours = 0.0
    for run, planned in zip(runs, prepared, strict=True):
        asked = planned.launch.latency_sample
        ways = both_ways_of(reproduction, run, machine, asked) if asked else None
        cost = None if ways else estimated(reproduction, run, machine)
        if ways is None and cost is None and planned.is_work_left:
            raise costs.without_estimate(planned, limit)
        whole = ways.batches if ways else cost.gpu_hours if cost else 0.0
        hours += whole * planned.num_left / planned.plan.spec.num_samples
        if ways and asked:
            hours += ways.timing * planned.num_to_time / asked
    if hours > limit:
        raise costs.OverBudget(
            f"--max-gpu-hours {limit:g} is below the estimate: {hours:,.1f} GPU-hours are left (see --dry-run)"
        )
