"""From flags to a run's specification and its problems."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from harness import benchmarks, environment, models
from harness.engines import adapter
from harness.engines.speculation import proposer, why_not
from harness.methods import build
from harness.problem import Problem, dataset_hash
from harness.prompts import prompt_hash
from harness.training import manifest
from jobs.run.spec import AdapterSpec, EngineSpec, ModelSpec, RunSpec


def plan(chosen: Mapping[str, Any], params: Mapping[str, Any]) -> tuple[RunSpec, list[Problem], list[str]]:
    """The specification, its problems, and what must be said loudly. Raises ValueError and the loaders' errors."""
    every = benchmarks.load(chosen["dataset"], chosen["data_dir"], chosen["seed"])
    problems = benchmarks.select(every, chosen["limit"], chosen["problems"])
    kind, proposing = _engine_kind(chosen["engine"]), _proposer(chosen)
    roles = build(chosen["method"], dict(params)).roles
    if chosen["take_turns"] and len(roles) < 2:
        raise ValueError(f"--take-turns: {chosen['method']} uses one engine; speccot, specreason and scot use two")
    selection = _selection(chosen, kind, speculates=proposing is not None)
    draft, target, notices = _models(chosen, (*roles, "draft") if proposing == "draft" else roles)
    if selection is not None and target is not None:
        _trained_for(selection, target)
    if benchmarks.DATASETS[chosen["dataset"]].training:
        notices.append(f"TRAINING DATA: {chosen['dataset']} is no benchmark; no number of this run is a result.")
    spec = RunSpec(
        method=chosen["method"],
        params=dict(params),
        dataset=chosen["dataset"],
        dataset_hash=dataset_hash(problems),
        dataset_size=len(every),
        num_problems=len(problems),
        samples=chosen["samples"],
        seed=chosen["seed"],
        temperature=chosen["temperature"],
        top_p=chosen["top_p"],
        token_budget=chosen["token_budget"],
        draft=draft,
        target=target,
        engine=EngineSpec(
            kind=kind,
            dtype=chosen["dtype"],
            max_context=chosen["max_context"],
            draft_tensor_parallel=chosen["draft_tensor_parallel"],
            target_tensor_parallel=chosen["target_tensor_parallel"],
            draft_memory=chosen["draft_memory"],
            target_memory=chosen["target_memory"],
            spec_decode=proposing,
            spec_tokens=chosen["spec_tokens"] if proposing else None,
            take_turns=chosen["take_turns"],
        ),
        concurrency=chosen["concurrency"],
        prompt_hash=prompt_hash(),
        preset=chosen["preset"],
        tag=chosen["tag"],
        selection=selection,
    )
    return spec, problems, notices


def _models(chosen: Mapping[str, Any], roles: tuple[str, ...]) -> tuple[ModelSpec | None, ModelSpec | None, list[str]]:
    names: dict[str, str | None] = {"draft": chosen["draft"], "target": chosen["target"]}
    if chosen["engine"] == "scripted":
        scripted = ModelSpec("scripted", "scripted", None, "scripted")
        return (
            (scripted if "draft" in roles else None),
            (scripted if "target" in roles else None),
            ["SCRIPTED ENGINES: no model runs; the numbers mean nothing."],
        )
    given = {role: _model(name) for role, name in names.items() if role in roles and name is not None}
    notices: list[str] = []
    if len(given) < len(roles):
        on_cluster = chosen["cluster"] == "slurm"
        pair = models.default_pair(chosen["method"], "gpu" if on_cluster else environment.accelerator())
        defaults = {"draft": pair.draft, "target": pair.target}
        given = {role: given.get(role) or _model(defaults[role]) for role in roles}
        notices += [pair.notice] if pair.notice else []
    return given.get("draft"), given.get("target"), notices


def _proposer(chosen: Mapping[str, Any]) -> str | None:
    """Who proposes tokens to the target. Raises ValueError where nobody can."""
    found = proposer(chosen["method"], chosen["spec_decode"])
    # A node may have GPUs that this machine lacks: the worker asks again there.
    device = "gpu" if chosen["cluster"] == "slurm" else environment.accelerator()
    if found and (reason := why_not(_engine_kind(chosen["engine"]), device, chosen["temperature"])):
        raise ValueError(reason)
    return found


def _model(name: str) -> ModelSpec:
    ref = models.resolve(name)
    fingerprint = ref.fingerprint or f"{ref.path_or_hub_id}@{ref.revision or 'unpinned'}"
    trained_on = manifest.data_hash(Path(ref.path_or_hub_id), fingerprint) if ref.fingerprint else None
    return ModelSpec(ref.name, ref.path_or_hub_id, ref.revision, fingerprint, trained_on)


def _selection(chosen: Mapping[str, Any], kind: str, *, speculates: bool) -> AdapterSpec | None:
    """Raises ValueError where the adapter is none, or cannot be used in such a run."""
    name = chosen["selection_adapter"]
    if name is None:
        return None
    if reason := adapter.why_not(kind, chosen["method"], speculates=speculates):
        raise ValueError(reason)
    found = adapter.read(name)
    folder = Path(found.path)
    fingerprint = adapter.fingerprint(folder)
    return AdapterSpec(folder.name, found.path, fingerprint, found.rank, manifest.data_hash(folder, fingerprint))


def _trained_for(selection: AdapterSpec, target: ModelSpec) -> None:
    """Raises ValueError where an adapter says that it was trained for another model."""
    made = manifest.find(Path(selection.path))
    if made is not None and made.weights == selection.fingerprint and made.base["fingerprint"] != target.fingerprint:
        raise ValueError(
            f"--selection-adapter {selection.name} was trained for {made.base['path']}, not for {target.path}"
        )


def _engine_kind(asked: str) -> str:
    if asked != "auto":
        return asked
    return "vllm" if find_spec("vllm") else "transformers"
