"""The sizes of a run's engines: what planning needs to know of the run, and the plan for the cards of its job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from harness.cli.messages import counted
from harness.engines.libraries import UNPLANNED
from harness.environment import accelerator
from harness.methods import Method, build
from harness.methods.method import required_context_tokens
from harness.problems.problem import Problem
from harness.settings.launch_settings import Cluster
from harness.sizing.card_plan import (
    DoesNotFit,
    ModelFiles,
    NotPlannable,
    Plan,
    RunSizing,
    assumed_models,
    check_flags,
    demands,
    plan_lines,
    planned,
)
from harness.sizing.memory import GPU_MEMORY, Option, cards_here, cards_of_worker
from harness.weights import adapter
from jobs.run.spec import ModelSpec, RunSpec


def sizing_of(spec: RunSpec, method: Method, problems: Iterable[Problem]) -> RunSizing:
    """Return what the sizes of a run's engines depend on."""
    engine, problems = spec.engine, list(problems)
    prompt_tokens = required_context_tokens(problems, 0, 0, spec.wording)
    proposes = spec.speculator or (spec.draft if engine.spec_decode == "draft" else None)
    on_workers = {role: model for role, model in spec.models.items() if model is not None and model.server is None}
    return RunSizing.for_method(
        method,
        {role: _files(model) for role, model in on_workers.items()},  # a server has its own memory
        spec.settings,
        prompt_tokens=prompt_tokens,
        token_budget=spec.token_budget,
        max_context=engine.max_context,
        concurrency=spec.concurrency,
        speculator=_files(proposes) if proposes is not None else None,
        speculative_tokens=engine.spec_tokens or 0,
        adapter_rank=adapter.served_rank(spec.selection.rank) if spec.selection is not None else 0,
    )


def lines_for_launch(
    spec: RunSpec,
    problems: list[Problem],
    cluster: Cluster,
    sbatch: Mapping[str, Option],
    workers_per_task: int = 1,
    shards: int = 1,
) -> list[str]:
    """Return what a launch prints about the sizes of its engines; empty where it uses no GPU.

    Raises ValueError (DoesNotFit among them), with one line, where the run could not start on its cards as far as this
    machine can tell.
    """
    if not spec.engine.can.is_planned:
        return []
    sizing = sizing_of(spec, build(spec.method, dict(spec.params)), problems)
    if cluster != "slurm":
        if accelerator() != "gpu":
            check_flags(sizing, None)
            return []
        cards = cards_here()
        uncounted = unplanned_arguments(spec)
        if not cards:
            return []
        plan_here = planned_or_reason(sizing, cards, refuses=not uncounted)
        idle = _idle_here(plan_here) if shards == 1 else []
        return [*_lines(sizing, plan_here, is_assumed=False), *_uncounted(uncounted), *idle]
    job = cards_of_worker(sbatch, workers_per_task)
    check_flags(sizing, None if job is None else job.count)
    if job is None:  # no_gpus warns of it
        return []
    if job.card is None:
        return [
            f"memory: the node decides on {counted(job.count, 'GPU')}; name a known type (--gpus-per-node h100:4) or "
            f"their memory (--{GPU_MEMORY} 80GB) to plan it here",
            *_idle(sbatch, workers_per_task),
        ]
    uncounted = unplanned_arguments(spec)
    plan = planned_or_reason(sizing, job.cards(), refuses=not (job.card.is_assumed or uncounted))
    return [*_lines(sizing, plan, job.card.is_assumed), *_uncounted(uncounted), *_idle(sbatch, workers_per_task, plan)]


def no_gpus(spec: RunSpec, sbatch: Mapping[str, Option]) -> Iterator[str]:
    """Yield a warning where workers on Slurm start vLLM and their job asks for no GPU."""
    starts_engines = any(model is not None and model.server is None for model in spec.models.values())
    if spec.engine.can.is_planned and starts_engines and cards_of_worker(sbatch) is None:
        yield (
            "NO GPU ASKED FOR: Slurm gives a job without such an option none, and vLLM then runs on processors or does "
            "not start. Ask with --gpus-per-node 1, or in the profile."
        )


def unplanned_arguments(spec: RunSpec) -> list[str]:
    """Return the arguments of engines that change their memory and that no plan counts, by vLLM's names."""
    return sorted({name for own in spec.settings.values() for name in own.engine if name in UNPLANNED})


def _uncounted(names: list[str]) -> list[str]:
    return (
        [f"memory: planned without {', '.join(names)}; --draft.memory and --target.memory set the shares"]
        if names
        else []
    )


def _idle(sbatch: Mapping[str, Option], workers_per_task: int, plan: Plan | str = "") -> Iterator[str]:
    """Yield a line for the GPUs of a task that no engine uses, with the flag that uses them."""
    task = cards_of_worker(sbatch)
    if task is None:
        return
    if left := task.count % workers_per_task:
        idle = counted(left, "GPU is", "GPUs are")
        yield f"{idle} idle in each task: --workers-per-task {workers_per_task} does not divide {task.count}"
    if isinstance(plan, Plan) and plan.num_cards < len(plan.cards):
        fitting = [n for n in range(workers_per_task + 1, task.count // plan.num_cards + 1) if task.count % n == 0]
        several = f"--workers-per-task {fitting[-1]} with as many --shards uses them" if fitting else ""
        fewer = f"--gpus-per-node {plan.num_cards * workers_per_task} asks for fewer"
        yield f"{_unused(plan)}: {' or '.join(filter(None, (several, fewer)))}"


def _idle_here(plan: Plan | str) -> Iterator[str]:
    """Yield a line for the GPUs of this machine that no engine of a run with one worker uses."""
    if isinstance(plan, Plan) and plan.num_cards < len(plan.cards):
        workers = len(plan.cards) // plan.num_cards
        yield f"{_unused(plan)}" + (f": --shards {workers} runs {workers} workers" if workers > 1 else "")


def _unused(plan: Plan) -> str:
    idle = len(plan.cards) - plan.num_cards
    return f"{counted(idle, 'GPU')} of the {len(plan.cards)} of a worker {'is' if idle == 1 else 'are'} idle"


def planned_or_reason(sizing: RunSizing, cards: Iterable[Any], *, refuses: bool = True) -> Plan | str:
    """Return the plan, or why there is none. Raises DoesNotFit if it `refuses`, and ValueError for impossible flags."""
    try:
        return planned(sizing, list(cards))
    except NotPlannable as reason:
        return f"{reason}; the engines get one GPU and fixed shares (12 and 78 %), or what the flags say"
    except DoesNotFit as reason:
        if refuses:
            raise
        return str(reason)


def _lines(sizing: RunSizing, plan: Plan | str, is_assumed: bool) -> Iterator[str]:
    if isinstance(plan, str):
        yield f"memory: {plan}"
    else:
        yield from plan_lines(plan, sizing.concurrency, demands(sizing))
    if is_assumed:
        yield f"assumed: the smaller of two cards with this name; --{GPU_MEMORY} says which"
    if names := ", ".join(assumed_models(sizing)):
        yield f"assumed: the sizes of {names}, whose config.json is not on this machine"


def _files(model: ModelSpec) -> ModelFiles:
    return ModelFiles(model.name, model.path, model.revision)
