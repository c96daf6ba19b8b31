"""Checks that the engines fit on their GPUs: the plan of widths, memory shares and caches that a worker would make."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from harness import gpus
from harness.checks.finding import Check, Question, failure, ok, warning
from harness.checks.inputs import of_question
from harness.engine import Role
from harness.engines import registry, speculation
from harness.environment import accelerator
from harness.methods import build
from harness.methods.method import context_to_open, required_context_tokens
from harness.plural import counted
from harness.problems import benchmarks
from harness.prompt_file import of_stored
from harness.sizing.card_plan import DoesNotFit, NotPlannable, engine_line, room_line
from harness.sizing.cards import GPU_MEMORY, Card, cards_here, cards_of_worker
from harness.sizing.run_sizing import (
    ModelFiles,
    RunSizing,
    assumed_models,
    check_flags,
    demands,
    most_tokens,
    planned,
    short_contexts,
)
from harness.weights import adapter, models

_SUBJECT = "memory plan"
_GIVE = "give --draft.memory, --target.memory and the tensor parallel sizes"
_PROMPT_TOKENS = 1024
"""Upper estimate of a prompt where the problems are not at hand."""
_FEW = 0.25
"""Share of the samples in flight: where fewer fit at the full token budget, engines are likely to idle."""


def check_sizes(question: Question, folders: Mapping[Role, Path]) -> Iterator[Check]:
    """Check widths, memory shares and caches on the GPUs that the workers would have; nothing for other engines.

    `folders` are those of the models on this machine, by role.
    """
    is_planned = question.engine == registry.AUTO or registry.capabilities(question.engine).is_planned
    if not is_planned or question.method is None or not question.models:
        return
    try:
        yield from _checks(question, _sizing(question, folders))
    except NotPlannable as reason:
        yield warning(_SUBJECT, f"{reason}; {_GIVE}")
    except ValueError as reason:  # DoesNotFit among them
        yield failure(_SUBJECT, str(reason))


def _checks(question: Question, sizing: RunSizing) -> Iterator[Check]:
    if question.workers_run_here:
        if accelerator() != "gpu":
            return
        if cards := cards_here():
            yield from _planned(sizing, cards)
        elif gpus.visible_gpus():
            yield warning(_SUBJECT, f"the driver does not say how much memory the GPUs have; {_GIVE}")
        return
    job = cards_of_worker(question.sbatch or {}, question.workers_per_task)
    check_flags(sizing, None if job is None else job.count)
    if job is None:
        yield (ok if question.engine == registry.AUTO else warning)(_SUBJECT, "no GPU is asked for (--gpus-per-node)")
    elif job.card is None:
        text = (
            f"the node decides on {counted(job.count, 'GPU')}; --gpus-per-node h100:4 or --{GPU_MEMORY} 80GB says which"
        )
        yield ok(_SUBJECT, text)
    else:
        if job.card.is_assumed:
            yield warning(_SUBJECT, f"{job.card.name} is assumed, the smaller of two cards: --{GPU_MEMORY} says which")
        yield from _planned(sizing, job.cards(), is_assumed=job.card.is_assumed)


def _planned(sizing: RunSizing, cards: Sequence[Card], *, is_assumed: bool = False) -> Iterator[Check]:
    try:
        plan = planned(sizing, cards)
    except DoesNotFit as reason:
        yield (warning if is_assumed else failure)(_SUBJECT, str(reason))
        return
    for engine in plan.engines.values():
        yield ok(f"memory of the {engine.name}", engine_line(engine))
    _, text = room_line(plan, sizing.concurrency, demands(sizing))
    fits = plan.num_samples >= max(1, _FEW * sizing.concurrency)
    yield (ok if fits else warning)("samples that fit", text)
    yield from (warning("context", line) for line in short_contexts(sizing))
    if names := ", ".join(assumed_models(sizing)):
        yield ok(_SUBJECT, f"assumed: the sizes of {names}, whose config.json is not on this machine")


def _sizing(question: Question, folders: Mapping[Role, Path]) -> RunSizing:
    method = build(str(question.method), dict(question.params or {}))
    prompt_tokens = _prompt_tokens(question)
    files = {role: _files(name, folders.get(role)) for role, name in question.models.items()}
    proposes = files.get("draft") if question.spec_decode == "draft" else None
    if question.speculator is not None:
        reference = speculation.resolve(question.speculator)
        proposes = ModelFiles(reference.name, reference.path_or_hub_id, reference.revision)
    return RunSizing(
        models={role: model for role, model in files.items() if role in method.roles},
        context_tokens=context_to_open(method, prompt_tokens, question.token_budget, question.max_context),
        sample_tokens=most_tokens(method, prompt_tokens, question.token_budget),
        concurrency=question.concurrency,
        candidates=method.parallel,
        target_candidates=method.target_parallel,
        dtype=question.dtype,
        widths=question.tensor_parallel,
        shares=question.memory,
        cards=question.cards,
        speculator=proposes,
        speculative_tokens=question.spec_tokens,
        adapter_rank=adapter.read(question.selection_adapter).served_rank if question.selection_adapter else 0,
    )


def _files(name: str, folder: Path | None) -> ModelFiles:
    """Return where a model's files are, or would be; nothing is downloaded or converted."""
    if folder is not None or Path(name).is_absolute() or name.lower() == models.SMOLLM:
        return ModelFiles(name, str(folder or name))
    reference = models.resolve(name)
    return ModelFiles(reference.name, reference.path_or_hub_id, reference.revision)


def _prompt_tokens(question: Question) -> int:
    if question.dataset is None:
        return _PROMPT_TOKENS
    try:
        problems = of_question(question).problems
    except (benchmarks.DatasetNotFound, ValueError, OSError):
        return _PROMPT_TOKENS  # the check of the dataset says why
    return required_context_tokens(problems, 0, 0, of_stored(question.prompts))
