"""What a launch comes to, in words: the lines that it prints before it begins, and those of a dry run."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console

from harness.engines import placement
from harness.plural import counted
from jobs import costs
from jobs.preparation import PreparedLaunch
from jobs.run import served
from jobs.run.spec import ModelSpec, RunSpec
from jobs.timing import request

_PLACES = {"slurm": "on Slurm", "local": "on this machine", "debug": "in this process"}


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
        *request.in_words(prepared.launch.latency_sample),
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
    if is_preview or costs.is_said(prepared):
        console.print(f"  {costs.line(prepared)}", markup=False, soft_wrap=not console.is_terminal)
    console.print(f"  run folder {prepared.run.path}", soft_wrap=True)


def _named(model: ModelSpec) -> str:
    kind = "" if model.server == served.UNKNOWN else f" of {model.server}"
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
