"""From a launch to a run's specification and its problems."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from harness import environment, gpus, prompts
from harness.engine import Role
from harness.engines import placement, registry, speculation
from harness.engines.served.address import ServerAddress
from harness.engines.speculation import (
    check_flags,
    draft_sampling,
    greedy_drafts_notice,
    proposer,
    proposing_roles,
    tokens_at_a_time,
    unsupported_reason,
)
from harness.methods import build
from harness.methods.references import source_of
from harness.problems import benchmarks, sources
from harness.problems.problem import Problem, dataset_hash
from harness.settings.declaration import ROLES
from harness.settings.launch_settings import Cluster, Launch
from harness.settings.roles import role_flag
from harness.training.tuning import data_hash, find_manifest
from harness.weights import adapter, models
from jobs.run import model_settings, reward_model, served
from jobs.run.spec import AdapterSpec, EngineSpec, ModelSpec, RunSpec, current_prompt_hash


@dataclass(frozen=True)
class RunPlan:
    """What a launch comes to, before anything is written."""

    spec: RunSpec
    problems: list[Problem]
    notices: list[str]
    """Warnings for the user, one line each."""
    servers: Mapping[Role, str] = field(default_factory=dict)
    """Addresses of the servers that run models of the run."""
    served_contexts: Mapping[Role, int] = field(default_factory=dict)
    """The contexts of these models, in tokens, where their servers say so."""


@dataclass(frozen=True)
class _Models:
    specs: Mapping[Role, ModelSpec]
    """The models that the method has, and one that only proposes tokens; yet without their settings."""
    notices: list[str]
    servers: Mapping[Role, str] = field(default_factory=dict)
    served_contexts: Mapping[Role, int] = field(default_factory=dict)


def plan(launch: Launch, cluster: Cluster, *, is_own_python: bool = False) -> RunPlan:
    """Resolve models, engine and problems of a launch.

    `cluster` is where the run goes, resolved: it decides which models are the default, whatever this machine has.
    `is_own_python`: whether the jobs have a Python of their own, so that the packages of this one decide nothing.
    Raises ValueError, ModelUnavailable, DatasetNotFound and BadDataset, each with one line.
    """
    wording = prompts.load(launch.prompts) if launch.prompts else prompts.BUILT_IN
    dataset = sources.load(launch.dataset, launch.data_dir, launch.seed, launch.split, launch.columns)
    problems = benchmarks.select(dataset.problems, launch.limit, launch.problems)
    method = build(launch.method, dict(launch.parameters))
    roles = method.roles
    _check_beginnings(launch, problems)
    model_settings.check_used(launch, roles)
    reward_model.check_flags(launch, roles)
    is_here = not (is_own_python and cluster == "slurm")
    servers = served.addresses(launch, (*roles, *proposing_roles(launch.spec_decode, launch.spec_model)))
    engine = _engine(launch, cluster, roles, servers, is_here=is_here)
    _check_cards(launch, engine.kind, cluster, roles)
    if launch.take_turns and len(roles) < 2:
        raise ValueError(f"--take-turns: {launch.method} uses one engine; speccot, specreason and scot use two")
    told = {role: model_settings.recorded(launch, role, engine.kind) for role in roles}
    if selection := _selection(launch, engine, is_here=is_here):
        told["target"]["adapter"] = selection
    resolved = _models(launch, cluster, (*roles, *proposing_roles(engine.spec_decode, launch.spec_model)), servers)
    specs = {role: replace(model, **told.get(role, {})) for role, model in resolved.specs.items()}
    draft, target, reward = (specs.get(role) for role in ROLES)
    speculator = _model(launch.spec_model, speculation.resolve) if launch.spec_model else None
    if selection is not None and target is not None:
        _check_trained_for(selection, target)
    reward_model.check_model(reward, wording, asks_equivalence=method.asks_equivalence)
    notices = [
        *dataset.notices,
        *resolved.notices,
        *model_settings.check_conventions(launch, {"draft": draft, "target": target}),
        *model_settings.unchecked_notice(launch.roles[role] for role in roles),
        *_check_speculation(engine, launch, specs, speculator),
    ]
    if dataset.is_training:
        notices.append(f"TRAINING DATA: {dataset.name} is not a benchmark; no number of this run is a result.")
    spec = RunSpec(
        method=launch.method,
        params=dict(launch.parameters),
        dataset=dataset.name,
        dataset_hash=dataset_hash(problems),
        dataset_size=dataset.size,
        num_problems=len(problems),
        samples=launch.samples,
        seed=launch.seed,
        temperature=launch.temperature,
        top_p=launch.top_p,
        token_budget=launch.token_budget,
        draft=draft,
        target=target,
        engine=engine,
        concurrency=launch.concurrency,
        prompt_hash=current_prompt_hash(launch.method, launch.parameters, wording),
        preset=launch.preset,
        tag=launch.tag,
        method_source=source_of(launch.method, launch.parameters),
        prompts=wording if wording.changes else None,
        speculator=speculator,
        dataset_origin=dataset.origin,
        prompt_date=datetime.now(UTC).date().isoformat(),
        reward=reward,
    )
    if spec.is_greedy and spec.samples > 1:
        notices.append(
            f"GREEDY: no model is sampled, so that the {spec.samples} samples of a problem repeat the first and count "
            "as one: there is no pass@k, and --samples 1 shows as much."
        )
    return RunPlan(spec, problems, notices, resolved.servers, resolved.served_contexts)


def _check_beginnings(launch: Launch, problems: Iterable[Problem]) -> None:
    """Raise ValueError where a reply is to begin with reasoning that the method cannot continue."""
    if launch.method != "vanilla" and any(problem.beginning for problem in problems):
        raise ValueError(f"--dataset {launch.dataset}: its problems begin inside a reply; only vanilla continues them")


def _engine(
    launch: Launch, cluster: Cluster, roles: Collection[Role], servers: Collection[Role], *, is_here: bool
) -> EngineSpec:
    """Raises ValueError where the engine cannot speculate or be placed as the launch asks."""
    kind = served.kind_of_engines(registry.resolved(launch.engine, is_here=is_here), servers, roles)
    proposing = proposer(launch.method, launch.spec_decode)
    served.check_speculation(proposing, servers)
    check_flags(proposing, launch.spec_model, launch.spec_sampling, launch.spec_tokens)
    # A node may have GPUs that this machine lacks: the worker checks again there.
    device = "gpu" if cluster == "slurm" else environment.accelerator()
    temperature = launch.temperature_of("target")
    if proposing and (reason := unsupported_reason(kind, device, temperature, proposing, is_here=is_here)):
        raise ValueError(reason)
    if proposing and launch.sampling_of("target").get("min_p"):
        raise ValueError(
            "vLLM has no min-p under token-level speculation: leave out --min-p, or use --top-p and --top-k"
        )
    return EngineSpec(
        kind=kind,
        max_context=launch.max_context,
        spec_decode=proposing,
        spec_tokens=tokens_at_a_time(proposing, launch.spec_tokens),
        spec_sampling=draft_sampling(proposing, launch.spec_sampling),
        logprobs=launch.logprobs,
        take_turns=launch.take_turns,
    )


def _check_cards(launch: Launch, kind: str, cluster: Cluster, roles: Collection[Role]) -> None:
    """Raise ValueError where the engines of the method cannot have the cards that are asked for."""
    cards = {role: launch.roles[role].gpus for role in roles}
    if cluster != "slurm" and registry.capabilities(kind).max_cards != 0:
        number = len(gpus.visible_gpus()) if environment.accelerator() == "gpu" else 0
        placement.check(cards, number, "this machine has")
    for role, numbers in cards.items():
        if registry.capabilities(kind).max_cards == 1 and len(numbers or ()) > 1:
            given = f"{role_flag(role, 'gpus')} {placement.written(numbers or ())}"
            raise ValueError(f"{given}: the engine {kind} runs on one GPU; vllm on several")


def _models(
    launch: Launch, cluster: Cluster, roles: Collection[Role], servers: Mapping[Role, ServerAddress]
) -> _Models:
    if not registry.capabilities(launch.engine).runs_models:
        name = launch.engine  # stands for the model that there is not
        notice = f"{name.upper()} ENGINES: no model runs; the numbers mean nothing."
        return _Models(dict.fromkeys(roles, ModelSpec(model=name, path=name, fingerprint=name)), [notice])
    device = "gpu" if cluster == "slurm" else environment.accelerator()
    compares = build(launch.method, dict(launch.parameters)).asks_equivalence
    chosen = models.by_role(launch.method, roles, launch.models, device, compares=compares)
    asked = {role: served.resolve(launch, role, address, cluster) for role, address in servers.items()}
    specs = {role: asked[role].spec if role in asked else _model(name) for role, name in chosen.names.items()}
    notices = [*([chosen.notice] if chosen.notice else []), *(n for one in asked.values() for n in one.notices)]
    addresses = {role: one.address for role, one in asked.items()}
    contexts = {role: one.context_tokens for role, one in asked.items() if one.context_tokens is not None}
    return _Models(specs, notices, addresses, contexts)


def _model(name: str, resolve: Callable[[str], models.ModelRef] | None = None) -> ModelSpec:
    """Return what a run keeps of a model; `resolve` finds it by name, as `models.resolve` does unless given."""
    reference = (resolve or models.resolve)(name)
    path = reference.path_or_hub_id
    trained_on = data_hash(Path(path), reference.identity) if reference.fingerprint else None
    return ModelSpec(
        model=reference.name,
        path=path,
        revision=reference.revision,
        fingerprint=reference.identity,
        training=trained_on,
    )


def _check_speculation(
    engine: EngineSpec, launch: Launch, specs: Mapping[Role, ModelSpec], speculator: ModelSpec | None
) -> Iterator[str]:
    """Yield warnings. Raises ValueError where the files at hand show that the weights cannot propose for the target."""
    if engine.spec_decode is None or "target" not in specs or not engine.can.speculates:
        return
    proposes = speculator or (specs.get("draft") if engine.spec_decode == "draft" else None)
    target, weights = _reference(specs["target"]), _reference(proposes) if proposes else None
    speculation.check_pair(engine.spec_decode, target, weights, samples_drafts=engine.spec_sampling == "probabilistic")
    if notice := greedy_drafts_notice(engine.spec_sampling, launch.temperature_of("target")):
        yield notice


def _reference(model: ModelSpec) -> models.ModelRef:
    return models.ModelRef(model.name, model.path, model.revision, model.fingerprint)


def _selection(launch: Launch, engine: EngineSpec, *, is_here: bool) -> AdapterSpec | None:
    """Raises ValueError where the folder is not an adapter, or the run cannot use one."""
    if launch.target.adapter is None:
        return None
    speculates = engine.spec_decode is not None
    if reason := adapter.unsupported_reason(engine.kind, launch.method, speculates=speculates, is_here=is_here):
        raise ValueError(reason)
    weights = adapter.read(launch.target.adapter)
    folder = Path(weights.path)
    fingerprint = adapter.fingerprint(folder)
    return AdapterSpec(folder.name, weights.path, fingerprint, weights.rank, data_hash(folder, fingerprint))


def _check_trained_for(selection: AdapterSpec, target: ModelSpec) -> None:
    """Raises ValueError where an adapter says that it was trained for another model."""
    made = find_manifest(Path(selection.path))
    if made is not None and made.weights == selection.fingerprint and made.base["fingerprint"] != target.fingerprint:
        raise ValueError(
            f"--target.adapter {selection.name} was trained for {made.base['path']}, not for {target.path}"
        )
