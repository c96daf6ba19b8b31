"""Short names of runs that are shown side by side."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from jobs.run.spec import RunSpec
from warehouse.summary import RunSummary, TokenSpeculation


@dataclass(frozen=True)
class PlannedRun:
    """What of a run its label is made of, before anything of it is loaded; the fields are those of `RunSummary`."""

    run_id: str
    method: str
    params: Mapping[str, object]
    dataset: str
    draft: str | None
    target: str | None
    reward: str | None
    token_speculation: TokenSpeculation | None
    temperature: float
    concurrency: int
    take_turns: bool


Named = RunSummary | PlannedRun
Run = TypeVar("Run")

_ASPECTS: tuple[Callable[[Named], str], ...] = (
    lambda run: run.dataset,
    lambda run: " → ".join(model for model in (run.draft, run.target) if model),
    lambda run: f"with {run.reward}" if run.reward else "",
    lambda run: f"with {run.token_speculation.proposer}" if run.token_speculation else "",
    lambda run: f"(temperature {run.temperature:g})",
    lambda run: f"({run.concurrency} in flight)",
    lambda run: "(taking turns)" if run.take_turns else "",
    lambda run: run.run_id.rpartition("-")[2],
    lambda run: run.run_id,
)


def planned(run_id: str, spec: RunSpec) -> PlannedRun:
    """Return what a run's label is made of."""
    engine, names = spec.engine, {role: model.name for role, model in spec.models.items() if model}
    proposer = None
    if engine.spec_decode is not None:
        proposer = TokenSpeculation(engine.spec_decode, None, engine.spec_tokens or 0, None, None, None)
    return PlannedRun(
        run_id,
        spec.method,
        spec.params,
        spec.dataset,
        names.get("draft"),
        names.get("target"),
        names.get("reward"),
        proposer,
        spec.temperature,
        spec.concurrency,
        engine.take_turns,
    )


def labels(runs: Sequence[Named]) -> list[str]:
    """Return a distinct label for each run: its method, and as much as is needed to distinguish it from the others.

    Parameters are added first, then dataset, models and so on, and finally the run id.
    """
    distinct = [method_of(run) for run in runs]
    for aspect in (_differing_params(runs), *_ASPECTS):
        distinct = told_apart(runs, distinct, aspect)
    return distinct


def told_apart(
    runs: Sequence[Run], given: Sequence[str], aspect: Callable[[Run], str], within: Callable[[Run], str] = lambda _: ""
) -> list[str]:
    """Return the labels, with the aspect behind those whose runs differ in it `within` one group."""
    values: dict[tuple[str, str], set[str]] = {}
    for run, label in zip(runs, given, strict=True):
        values.setdefault((label, within(run)), set()).add(aspect(run))
    ambiguous = {label for (label, _), found in values.items() if len(found) > 1}
    return [
        f"{label} {aspect(run)}".rstrip() if label in ambiguous else label
        for run, label in zip(runs, given, strict=True)
    ]


def method_of(run: Named | RunSpec) -> str:
    """Return the method of a run, with the model of vanilla."""
    return f"vanilla {run.params['model']}" if run.method == "vanilla" and "model" in run.params else run.method


def _differing_params(runs: Sequence[Named]) -> Callable[[Named], str]:
    """Return a function of a run that names its parameters in which runs of its method differ, with their values."""
    values: dict[tuple[str, str], set[str]] = {}
    for run in runs:
        for name, value in run.params.items():
            values.setdefault((run.method, name), set()).add(json.dumps(value, sort_keys=True))

    def differing(run: Named) -> str:
        return ", ".join(f"{n} {v}" for n, v in run.params.items() if n != "model" and len(values[run.method, n]) > 1)

    return differing
