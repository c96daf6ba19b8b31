"""Estimate the remaining GPU-hours of launches, in words and in sum, and reject launches over budget.

Where an estimate comes from is the warehouse's matter (warehouse.run_cost).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.plural import counted
from jobs.preparation import PreparedLaunch, distinct
from jobs.run.forecast import Forecast

UNKNOWN = (
    "GPU-hours: unknown, because no finished run of these settings is in the database; run a few problems first "
    "(--limit 5)"
)


class OverBudget(ValueError):
    """A launch that is estimated to take more than its limit, or has no estimate; the message is one line."""


def unit(*, has_gpu: bool) -> str:
    """Return what is counted: GPU-hours, or hours of workers that have no GPU."""
    return "GPU-hours" if has_gpu else "worker-hours without a GPU"


def hours(number: float) -> str:
    """Return hours with as many digits as say something."""
    return f"{number:,.1f}" if number >= 1 else f"{number:.2g}"


def is_said(prepared: PreparedLaunch) -> bool:
    """Return whether a launch that begins says what is left: where that is known, or limited."""
    return prepared.launch.max_gpu_hours is not None or (prepared.is_work_left and prepared.forecast is not None)


def line(prepared: PreparedLaunch) -> str:
    """Return one line on what is left of a run."""
    if not prepared.is_work_left:
        return "GPU-hours: none, because every sample is finished"
    if prepared.forecast is None and not prepared.plan.spec.engine.can.runs_models:
        return f"GPU-hours: none are estimated, because {prepared.plan.spec.engine.kind} engines run no model"
    return UNKNOWN if prepared.forecast is None else f"estimate: {in_words(prepared.forecast)}"


def in_words(forecast: Forecast) -> str:
    """Return an estimate with its unit, its range and its source."""
    low, high = hours(forecast.low), hours(forecast.high)
    between = f"; {low} to {high}" if low != high else ""
    more = f"; the timing of {counted(forecast.not_timed, 'sample')} comes on top" if forecast.not_timed else ""
    return f"{hours(forecast.hours)} {unit(has_gpu=forecast.has_gpu)} left ({forecast.source}{between}{more})"


def total(launches: Sequence[PreparedLaunch]) -> str:
    """Return one line on what is left of several runs together."""
    left = [prepared for prepared in distinct(launches) if prepared.is_work_left]
    if not left:
        return "Total: nothing is left to run."
    return total_of([prepared.forecast for prepared in left])


def total_of(forecasts: Sequence[Forecast | None]) -> str:
    """Return the sums of estimates, GPUs and workers without GPUs apart, and how many are unknown."""
    known = [forecast for forecast in forecasts if forecast is not None]
    if not known:
        return f"Total: GPU-hours unknown for {counted(len(forecasts), 'run')}."
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
    return f"Total: {' and '.join(sums)} left{unknown}."


def check(launches: Sequence[PreparedLaunch]) -> None:
    """Raise OverBudget where the launches of a command need more than its limit, or nothing tells what one needs."""
    left = [prepared for prepared in distinct(launches) if prepared.is_work_left]
    limit = left[0].launch.max_gpu_hours if left else None
    if limit is not None:
        check_forecasts({prepared.run.path.name: prepared.forecast for prepared in left}, limit)


def check_forecasts(left: Mapping[str, Forecast | None], limit: float) -> None:
    """Raise OverBudget where runs together need more than the limit, or one has no forecast. left: by run."""
    forecasts = []
    for name, forecast in left.items():
        if forecast is None:
            raise OverBudget(
                f"--max-gpu-hours {limit:g}: no estimate for {name}; run a few problems without this flag first "
                "(--limit 5, of a probe --points 5)"
            )
        forecasts.append(forecast)
    needed = sum(forecast.hours for forecast in forecasts)
    if needed > limit:
        together = f"{hours(needed)} {unit(has_gpu=any(forecast.has_gpu for forecast in forecasts))} left"
        told = in_words(forecasts[0]) if len(left) == 1 else f"{together} of {len(left)} runs (see --dry-run)"
        raise OverBudget(f"--max-gpu-hours {limit:g} is below the estimate: {told}")
