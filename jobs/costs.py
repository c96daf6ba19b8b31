"""What the rest of a run is likely to take, in words and added up over several runs; and the refusal above a budget.

Where an estimate comes from is the warehouse's matter (warehouse.run_cost).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harness.plural import counted
from jobs.preparation import PreparedLaunch
from jobs.run.budget import Budget, Forecast, Meter, Stop, Used, hours, shared_by, stopped, unit
from jobs.run.endings import num_left
from jobs.run.folder import RunFolder

UNKNOWN = (
    "GPU-hours: unknown, because no finished run of these settings is in the database; --hardware FILE estimates them "
    "from a machine's speeds"
)


class OverBudget(ValueError):
    """A launch whose budget is used up, or below what the launch is estimated to take; the message is one line."""


def is_said(prepared: PreparedLaunch) -> bool:
    """Return whether a launch that begins says what is left: where that is known, or where it has a budget."""
    return prepared.budget is not None or (prepared.is_work_left and prepared.forecast is not None)


def line(prepared: PreparedLaunch) -> str:
    """Return one line on what is left of a run."""
    if not prepared.is_work_left:
        return "GPU-hours: none, because every sample is finished"
    if prepared.forecast is None and prepared.plan.spec.engine.kind == "scripted":
        return "GPU-hours: none are estimated, because scripted engines run no model"
    return UNKNOWN if prepared.forecast is None else f"estimate: {in_words(prepared.forecast)}"


def in_words(forecast: Forecast) -> str:
    """Return an estimate with its unit, its range and its source."""
    low, high = hours(forecast.low), hours(forecast.high)
    between = f"; {low} to {high}" if low != high else ""
    more = f"; the timing of {counted(forecast.not_timed, 'sample')} comes on top" if forecast.not_timed else ""
    return f"{hours(forecast.hours)} {unit(has_gpu=forecast.has_gpu)} left ({forecast.source}{between}{more})"


def total(launches: Sequence[PreparedLaunch], of: str = "Total") -> str:
    """Return one line on what is left of several runs together. `of`: what it begins with, before a colon."""
    left = [prepared for prepared in _distinct(launches) if prepared.is_work_left]
    if not left:
        return f"{of}: nothing is left to run."
    return total_of([prepared.forecast for prepared in left], of)


def total_of(forecasts: Sequence[Forecast | None], of: str = "Total") -> str:
    """Return the sums of estimates, GPUs and workers without GPUs apart, and how many are unknown; `of` as above."""
    known = [forecast for forecast in forecasts if forecast is not None]
    if not known:
        return f"{of}: GPU-hours unknown for {counted(len(forecasts), 'run')}."
    sums = []
    for has_gpu in (True, False):
        if members := [forecast for forecast in known if forecast.has_gpu == has_gpu]:
            low, high = (hours(sum(ends)) for ends in zip(*((m.low, m.high) for m in members), strict=True))
            between = f" ({low} to {high})" if low != high else ""
            sums.append(f"{hours(sum(member.hours for member in members))} {unit(has_gpu=has_gpu)}{between}")
    more = len(forecasts) - len(known)
    unknown = f"; unknown for {counted(more, 'run')}" if more else ""
    if not_timed := sum(forecast.not_timed for forecast in known):
        unknown += f"; the timing of {counted(not_timed, 'sample')} comes on top"
    return f"{of}: {' and '.join(sums)} left{unknown}."


def under(
    launches: Sequence[PreparedLaunch], max_gpu_hours: float | None, further: Sequence[str] = ()
) -> list[PreparedLaunch]:
    """Return launches under one budget, or under none, whatever each was asked for alone.

    `further`: names of other runs in the same folder that share it.
    """
    names = [*further, *(prepared.run.path.name for prepared in launches)]
    budget = None if max_gpu_hours is None else shared_by(names, max_gpu_hours)
    return [replace(prepared, budget=budget) for prepared in launches]


def check(launches: Sequence[PreparedLaunch]) -> None:
    """Raise OverBudget where the budget of launches is used up, or below what they have used and still need.

    The launches of one budget stand together. What has no estimate counts as nothing: its budget is kept while it runs.
    """
    by_id: dict[str, list[PreparedLaunch]] = {}
    for prepared in _distinct(launches):
        if prepared.budget is not None and prepared.is_work_left:
            by_id.setdefault(prepared.budget.budget_id, []).append(prepared)
    for members in by_id.values():
        budget = members[0].budget
        assert budget is not None
        meter = Meter(members[0].run)
        for prepared in members:
            if stop := Meter(prepared.run).stop(budget):
                raise OverBudget(f"{prepared.run.path.name}: {stop}; with a higher --max-gpu-hours it goes on")
        _check_estimate(members, budget, meter.used(budget))


def _check_estimate(members: Sequence[PreparedLaunch], budget: Budget, used: Used) -> None:
    known = [prepared.forecast for prepared in members if prepared.forecast is not None]
    needed = sum(forecast.hours for forecast in known)
    if used.device_hours + needed <= budget.max_gpu_hours:
        return
    has_gpu = any(forecast.has_gpu for forecast in known)
    earlier = f"{used} are used, and " if used.device_hours else ""
    if len(members) == 1:
        left = in_words(known[0])
    else:
        left = f"{hours(needed)} {unit(has_gpu=has_gpu)} left of {counted(len(members), 'run')} (see --dry-run)"
    raise OverBudget(f"--max-gpu-hours {budget.max_gpu_hours:g} is below the estimate: {earlier}{left}")


def stopped_runs(runs: Sequence[RunFolder]) -> dict[str, Stop]:
    """Return the budgets that have stopped runs, by the names of these."""
    found = {run.path.name: stopped(run, num_left) for run in runs if run.exists()}
    return {name: stop for name, stop in found.items() if stop is not None}


def _distinct(launches: Sequence[PreparedLaunch]) -> list[PreparedLaunch]:
    return list({prepared.run.path: prepared for prepared in launches}.values())
