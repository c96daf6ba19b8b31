"""What launches come to, in words: the lines printed before they begin, and their GPU-hours, summed and limited.

Where an estimate comes from is the warehouse's matter (warehouse.run_cost).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console

from harness.cli.messages import counted
from harness.cli.number_format import hours
from harness.engines import placement
from jobs.preparation import PreparedLaunch, distinct
from jobs.run import sizing
from jobs.run import timing as timings
from jobs.run.forecast import Forecast
from jobs.run.spec import ModelSpec, RunSpec

_PLACES = {"slurm": "on Slurm", "local": "on this machine", "debug": "in this process"}
UNKNOWN = (
    "GPU-hours: unknown, because no finished run of these settings is in the database; run a few problems first "
    "(--limit 5)"
)


def print_plan(prepared: PreparedLaunch, console: Console, *, is_preview: bool = False) -> None:
    """Print what a launch comes to; a preview says also that its cost is not known."""
    spec = prepared.plan.spec
    for notice in (*prepared.plan.notices, *([prepared.code_notice] if prepared.code_notice else [])):
        console.print(notice, style="bold yellow", markup=False, soft_wrap=not console.is_terminal)
    parameters = ", ".join(f"{name} {value}" for name, value in spec.params.items())
    console.print(f"[bold]{spec.method}[/bold] on [bold]{spec.dataset}[/bold]: {parameters}")
    if own := spec.dataset_origin:
        title = f"{own.title}, " if own.title else ""
        console.print(
            f"  problems: {title}{own.source}, hash {own.content}", markup=False, soft_wrap=not console.is_terminal
        )
    own_sampling = [f"{role} {_drawing(own)}" for role, own in spec.sampling.items() if own]
    names: dict[str, str] = {role: _named(model) for role, model in spec.models.items() if model}
    names |= {"selection adapter": spec.selection.name} if spec.selection else {}
    size = f"{counted(spec.num_problems, 'problem')} × {counted(spec.samples, 'sample')} = {spec.num_samples}"
    lines = [
        ", ".join(f"{role} {name}" for role, name in names.items()),
        f"{size}, temperature {spec.temperature}, top-p {spec.top_p}, token budget {spec.token_budget}, "
        f"seed {spec.seed}",
        *own_sampling,
        f"{spec.engine.kind} engines, {counted(spec.concurrency, 'sample')} in flight per worker, "
        f"{counted(prepared.num_shards, 'shard')}, {_PLACES[prepared.cluster]}",
        *_prompts(spec),
        *_conventions(spec),
        *_engine_arguments(spec),
        *_token_speculation(spec),
        *_placement(spec),
        *timings.in_words(prepared.launch.latency_sample),
        *prepared.sizes,
    ]
    for line in lines:
        console.print(f"  {line}", markup=False, soft_wrap=not console.is_terminal)
    if spec.limited:
        console.print(
            f"LIMITED RUN: {spec.num_problems} of {spec.dataset_size} problems; "
            "its numbers are not results of the benchmark.",
            style="bold yellow",
            soft_wrap=not console.is_terminal,
        )
    if is_preview or is_cost_said(prepared):
        console.print(f"  {_cost_line(prepared)}", markup=False, soft_wrap=not console.is_terminal)
    console.print(f"  run folder {prepared.run.path}", soft_wrap=True)


def _named(model: ModelSpec) -> str:
    kind = "" if model.server == sizing.UNKNOWN else f" of {model.server}"
    return model.name if model.server is None else f"{model.name} on a server{kind}"


def _token_speculation(spec: RunSpec) -> list[str]:
    engine, weights = spec.engine, spec.speculator
    if engine.spec_decode is None:
        return []
    model = f" ({weights.name})" if weights else ""
    sampling = f", {engine.spec_sampling} drafts" if engine.spec_sampling else ""
    return [f"token-level speculation: {engine.spec_decode}{model}, up to {engine.spec_tokens} at a time{sampling}"]


def _drawing(sampling: Mapping[str, float]) -> str:
    return ", ".join(f"{name.replace('_', '-')} {value}" for name, value in sampling.items())


def _conventions(spec: RunSpec) -> list[str]:
    lines = []
    for role, own in spec.settings.items():
        table = ", ".join(f"{name} {value}" for name, value in own.template.items())
        lines += [f"template of the {role}: {table}"] if table else []
    for role, own in spec.settings.items():
        lines += [f"thinking tags of the {role}: {own.thinking_tags}"] if own.thinking_tags else []
    return lines


def _prompts(spec: RunSpec) -> list[str]:
    changed = list(spec.wording.changes)
    return [f"own prompts: {', '.join(changed)}; hash {spec.prompt_hash}"] if changed else []


def _engine_arguments(spec: RunSpec) -> list[str]:
    return [
        f"engine of the {role}: {', '.join(f'{name} {value}' for name, value in given.items())}"
        for role, own in spec.settings.items()
        if (given := own.engine)
    ]


def _placement(spec: RunSpec) -> list[str]:
    cards = {role: own.gpus for role, own in spec.settings.items() if own.gpus is not None}
    places = ", ".join(f"{role} on {counted(len(n), 'GPU')} ({placement.written(n)})" for role, n in cards.items())
    return [f"{places}, of those of a worker"] if places else []


class OverBudget(ValueError):
    """A launch that is estimated to take more than its limit, or has no estimate; the message is one line."""


def unit(*, has_gpu: bool) -> str:
    """Return what is counted: GPU-hours, or hours of workers that have no GPU."""
    return "GPU-hours" if has_gpu else "worker-hours without a GPU"


def is_cost_said(prepared: PreparedLaunch) -> bool:
    """Return whether a launch that begins says what is left: where that is known, or limited."""
    return prepared.launch.max_gpu_hours is not None or (prepared.is_work_left and prepared.forecast is not None)


def _cost_line(prepared: PreparedLaunch) -> str:
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


def check_budget(launches: Sequence[PreparedLaunch]) -> None:
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
