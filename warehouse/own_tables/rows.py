"""The rows of a table: runs that differ in nothing but their problems, under a name that tells them from the others."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from jobs.run.spec import RunSpec

_Aspect = Callable[[RunSpec], str]


def _models(spec: RunSpec) -> str:
    named = " → ".join(model.name for model in (spec.draft, spec.target) if model)
    return f"{named} with {spec.reward.name}" if spec.reward else named


_MORE: tuple[_Aspect, ...] = (
    lambda spec: f"with {spec.engine.spec_decode}" if spec.engine.spec_decode else "",
    lambda spec: f"with {spec.selection.name}" if spec.selection else "",
    lambda spec: f"(prompts {spec.prompt_hash[:8]})",
    lambda spec: f"(temperature {spec.temperature:g})",
    lambda spec: f"(top-p {spec.top_p:g})",
    lambda spec: f"(budget {spec.token_budget})",
    lambda spec: f"({spec.concurrency} in flight)",
    lambda spec: "(taking turns)" if spec.engine.take_turns else "",
    lambda spec: f"({spec.samples} samples)",
    lambda spec: f"({spec.num_problems} problems)",
    lambda spec: f"(tag {spec.tag})" if spec.tag else "",
    lambda spec: spec.digest,
)
"""What names a row only where two runs on one dataset would otherwise be in the same cell: a budget may differ from
dataset to dataset within a row."""


def row_labels(specs: Sequence[RunSpec], named: Sequence[str | None]) -> list[str]:
    """Return the name of each run's row; runs of one dataset have different ones.

    named: what the suite's file calls the row. Otherwise it is the method. Hyper-parameters and models follow where
    runs of one such name differ in them, and further settings where that is not enough.
    """
    labels = [name or _method(spec) for spec, name in zip(specs, named, strict=True)]
    for aspect in (_differing_parameters(specs, labels), _models):
        labels = _with(aspect, specs, labels, within=lambda spec: "")
    for aspect in _MORE:
        labels = _with(aspect, specs, labels, within=lambda spec: spec.dataset)
    return labels


def _with(aspect: _Aspect, specs: Sequence[RunSpec], labels: Sequence[str], within: _Aspect) -> list[str]:
    """Return the labels, with the aspect behind those whose runs differ in it `within` one group."""
    values: dict[tuple[str, str], set[str]] = {}
    for spec, label in zip(specs, labels, strict=True):
        values.setdefault((label, within(spec)), set()).add(aspect(spec))
    ambiguous = {label for (label, _), found in values.items() if len(found) > 1}
    return [
        f"{label} {aspect(spec)}".rstrip() if label in ambiguous else label
        for spec, label in zip(specs, labels, strict=True)
    ]


def _method(spec: RunSpec) -> str:
    return f"vanilla {spec.params['model']}" if spec.method == "vanilla" and "model" in spec.params else spec.method


def _differing_parameters(specs: Sequence[RunSpec], labels: Sequence[str]) -> _Aspect:
    """Return a function of a run that gives the parameters in which runs of its label differ, with their values."""
    values: dict[tuple[str, str], set[str]] = {}
    of_method: dict[str, set[str]] = {}
    for spec, label in zip(specs, labels, strict=True):
        of_method.setdefault(label, set()).add(spec.method)
        for name, value in spec.params.items():
            values.setdefault((label, name), set()).add(json.dumps(value))
    by_run = {id(spec): label for spec, label in zip(specs, labels, strict=True)}

    def differing(spec: RunSpec) -> str:
        label = by_run[id(spec)]
        method = [spec.method] if len(of_method[label]) > 1 else []
        changed = [f"{name} {_shown(v)}" for name, v in spec.params.items() if len(values[label, name]) > 1]
        return " ".join([*method, ", ".join(changed).replace("_", " ")]).strip()

    return differing


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
