"""What the planned runs of a published table take, and whether what is left of them is below a limit."""

from __future__ import annotations

from collections.abc import Sequence

from harness.launch_options import Launch
from jobs import costs
from jobs.preparation import PreparedLaunch
from warehouse.database import DatabaseError, WarehouseError, reader
from warehouse.measures import runs_like
from warehouse.papers import conditions, estimate, published
from warehouse.papers.entries import SuiteRun
from warehouse.papers.estimate import Estimate
from warehouse.papers.latency_sample import Hours
from warehouse.papers.published import num_gpus
from warehouse.papers.suite import Planned
from warehouse.papers.suite_runs import Reproduction
from warehouse.papers.vocabulary import OF_LATENCIES


def estimated(reproduction: Reproduction, launch: Launch | None, plan: Planned) -> Estimate | None:
    """Estimate a launch of a planned run: from recorded runs of the same kind, else from what the papers publish."""
    if launch is None:
        return None
    try:
        with reader(reproduction.database) as connection:
            for recorded in runs_like(connection, conditions.run_columns(launch)):
                if from_history := estimate.from_history(launch, recorded):
                    return from_history
    except (WarehouseError, DatabaseError):
        pass  # no history: the papers answer
    own = published.setting(reproduction.suite, plan, launch)
    return estimate.from_published(launch, own, published.everything())


def every_alone(launch: Launch) -> Launch:
    """Return the launch of a run with every sample alone."""
    return launch.changed(concurrency=1, latency_sample=None)


def both_ways_of(reproduction: Reproduction, run: SuiteRun) -> Hours | None:
    """Return what a run takes alone and with the latency sample that it asks for.

    None: it asks for none or is not there for a latency alone, or the GPU-hours of one of the two are unknown.
    """
    launch, metrics = run.launch, reproduction.suite.metrics.values()
    if launch is None or launch.latency_sample is None or not {metric.measure for metric in metrics} & OF_LATENCIES:
        return None
    alone = estimated(reproduction, every_alone(launch), run.plan)
    batches = estimated(reproduction, launch, run.plan)
    if alone is None or batches is None or not alone.gpu_hours:
        return None
    samples_alone = max(0.0, alone.gpu_hours - estimate.START_SECONDS / 3600 * num_gpus(launch))
    share = min(1.0, launch.latency_sample / (conditions.num_problems(launch) * launch.samples))
    return Hours(alone.gpu_hours, batches.gpu_hours, samples_alone * share)


def check_budget(reproduction: Reproduction, runs: Sequence[SuiteRun], prepared: Sequence[PreparedLaunch]) -> None:
    """Raise costs.OverBudget where what is left takes more than the limit by the plan's estimates, or has none."""
    limit, hours = reproduction.max_gpu_hours or 0.0, 0.0
    for run, planned in zip(runs, prepared, strict=True):
        asked = planned.launch.latency_sample
        ways = both_ways_of(reproduction, run)
        cost = None if ways else estimated(reproduction, run.launch, run.plan)
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
