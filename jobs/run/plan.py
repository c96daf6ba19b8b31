"""From a launch to a run's specification and its problems: its models, what it says of each, and its engine."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness import environment, gpus, prompts
from harness.engine import Role
from harness.engines import libraries, placement, registry, speculation
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
from harness.prompts import Prompts, equivalence_question, reward_question
from harness.settings.declaration import ROLES
from harness.settings.launch_settings import Cluster, Launch, PartialLaunch
from harness.settings.roles import SAMPLING, ModelSettings, role_flag
from harness.weights import adapter, models
from harness.weights.models import files_at_hand, read_config
from harness.weights.templates import NO_CONVENTIONS, BadTemplate, Conventions, has_chat_template
from harness.weights.tokenizer import HFTokenizer
from jobs.run import sizing
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
    check_used(launch, roles)
    check_reward_flags(launch, roles)
    is_here = not (is_own_python and cluster == "slurm")
    servers = sizing.addresses(launch, (*roles, *proposing_roles(launch.spec_decode, launch.spec_model)))
    engine = _engine(launch, cluster, roles, servers, is_here=is_here)
    _check_cards(launch, engine.kind, cluster, roles)
    if launch.take_turns and len(roles) < 2:
        raise ValueError(f"--take-turns: {launch.method} uses one engine; speccot, specreason and scot use two")
    told = {role: recorded_settings(launch, role, engine.kind) for role in roles}
    if selection := _selection(launch, engine, is_here=is_here):
        told["target"]["adapter"] = selection
    resolved = _models(launch, cluster, (*roles, *proposing_roles(engine.spec_decode, launch.spec_model)), servers)
    specs = {role: replace(model, **told.get(role, {})) for role, model in resolved.specs.items()}
    draft, target, reward = (specs.get(role) for role in ROLES)
    speculator = _model(launch.spec_model, speculation.resolve) if launch.spec_model else None
    if selection is not None and target is not None:
        _check_trained_for(selection, target)
    check_reward_model(reward, wording, asks_equivalence=method.asks_equivalence)
    notices = [
        *dataset.notices,
        *resolved.notices,
        *check_conventions(launch, {"draft": draft, "target": target}),
        *unchecked_notice(launch.roles[role] for role in roles),
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
    kind = sizing.kind_of_engines(registry.resolved(launch.engine, is_here=is_here), servers, roles)
    proposing = proposer(launch.method, launch.spec_decode)
    sizing.check_speculation(proposing, servers)
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
    asked = {role: sizing.resolve(launch, role, address, cluster) for role, address in servers.items()}
    specs = {role: asked[role].spec if role in asked else _model(name) for role, name in chosen.names.items()}
    notices = [*([chosen.notice] if chosen.notice else []), *(n for one in asked.values() for n in one.notices)]
    addresses = {role: one.address for role, one in asked.items()}
    contexts = {role: one.context_tokens for role, one in asked.items() if one.context_tokens is not None}
    return _Models(specs, notices, addresses, contexts)


def _model(name: str, resolve: Callable[[str], models.ModelRef] | None = None) -> ModelSpec:
    """Return what a run keeps of a model; `resolve` finds it by name, as `models.resolve` does unless given."""
    reference = (resolve or models.resolve)(name)
    path = reference.path_or_hub_id
    trained_on = None
    if reference.fingerprint:
        from harness.training.tuning import data_hash

        trained_on = data_hash(Path(path), reference.identity)
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
    from harness.training.tuning import data_hash

    weights = adapter.read(launch.target.adapter)
    folder = Path(weights.path)
    fingerprint = adapter.fingerprint(folder)
    return AdapterSpec(folder.name, weights.path, fingerprint, weights.rank, data_hash(folder, fingerprint))


def _check_trained_for(selection: AdapterSpec, target: ModelSpec) -> None:
    """Raises ValueError where an adapter says that it was trained for another model."""
    from harness.training.tuning import find_manifest

    made = find_manifest(Path(selection.path))
    if made is not None and made.weights == selection.fingerprint and made.base["fingerprint"] != target.fingerprint:
        raise ValueError(
            f"--target.adapter {selection.name} was trained for {made.base['path']}, not for {target.path}"
        )


def check_reward_flags(launch: PartialLaunch, roles: Collection[Role]) -> None:
    """Raise ValueError where the method has no use for a flag of a reward model."""
    for name in launch.reward.given() if "reward" not in roles else ():
        raise ValueError(
            f"{role_flag('reward', name)}: {launch.method} does not rate steps with a reward model, as its parameters "
            f"are set (see --method {launch.method} --help)"
        )


def check_reward_model(reward: ModelSpec | None, wording: Prompts, *, asks_equivalence: bool = False) -> None:
    """Raise ValueError where a reward model in a local folder cannot answer the question of the wording.

    `asks_equivalence`: it is asked whether two steps mean the same, in place of how good one is. Models that only the
    nodes have are met by the workers.
    """
    if reward is None or not (folder := Path(reward.path)).is_dir():
        return
    if reward.server is None:
        _check_architecture(reward, folder)
    _check_answers(reward, wording, asks_equivalence=asks_equivalence)


def _check_architecture(reward: ModelSpec, folder: Path) -> None:
    architectures = read_config(folder / "config.json").get("architectures")
    heads = [name for name in architectures if isinstance(name, str)] if isinstance(architectures, list) else []
    if heads and not any(name.endswith("ForCausalLM") or "ConditionalGeneration" in name for name in heads):
        raise ValueError(
            f"--reward {reward.name}: {heads[0][:80]} is not supported; valid: a causal language model (…ForCausalLM), "
            "whose probabilities of two tokens are the reward"
        )


def _check_answers(reward: ModelSpec, wording: Prompts, *, asks_equivalence: bool) -> None:
    try:
        tokenizer = HFTokenizer(reward.path)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"--reward {reward.name}: its tokenizer cannot be loaded: {reason}") from error
    try:
        if asks_equivalence:
            equivalence_question(tokenizer, "1", "2", wording)
        else:
            reward_question(tokenizer, wording)
    except BadTemplate as error:
        raise ValueError(f"--reward {reward.name}: {error}") from error
    except ValueError as error:
        keys = "equivalence.reply, .same and .different" if asks_equivalence else "reward.reply, .good and .bad"
        raise ValueError(f"--reward {reward.name}: {error} (keys {keys})") from error


_ROLES: tuple[Role, ...] = ("draft", "target")
_OF_A_WRITER = (*SAMPLING, "engine", "template", "thinking_tags")
"""Settings that only a model has that writes; presets, files and suites may give the others to every method alike."""
_RESOLVED = ("model", "tokenizer", "served_model", "adapter")
"""Settings that say which files a model has; the specification has these as they were found."""

NO_TEMPLATE = (
    "NO CHAT TEMPLATE: {role} {name} has none, so it reads a plain dialogue (User: …, Assistant: …). If it was trained "
    "with another format, add its chat_template.jinja to its folder."
)


def check_used(launch: PartialLaunch, roles: Collection[Role]) -> None:
    """Raise ValueError where a flag is for a model that the method does not use."""
    for role in _ROLES:
        given = launch.roles[role].given()
        for name in _OF_A_WRITER:
            if role not in roles and name in given:
                raise ValueError(f"{role_flag(role, name)} {_shown(given[name])}: {unused(launch, role)}")


def unused(launch: PartialLaunch, role: Role) -> str:
    """Return in words that the method of a launch writes nothing with a model."""
    other = next(other for other in _ROLES if other != role)
    model = f" --model {launch.parameters['model']}" if "model" in launch.parameters else ""
    return f"{launch.method}{model} writes with the {other} alone; leave it out"


def recorded_settings(launch: PartialLaunch, role: Role, kind: str) -> dict[str, Any]:
    """Return what the specification of a run keeps of a model's settings, by name; `kind` is that of its engine.

    Sampling stands there as it comes to, where it is not that of the run. Raises ValueError where an argument is not
    one of vLLM's, as far as this machine can tell, or of another engine.
    """
    own = launch.roles[role]
    if own.engine and not registry.capabilities(kind).takes_arguments:
        raise ValueError(f"{role_flag(role, 'engine')} {next(iter(own.engine))}: needs --engine vllm, not {kind}")
    libraries.check(role, own.engine)
    kept = {name: value for name, value in own.given().items() if name not in (*_RESOLVED, *SAMPLING)}
    return {**kept, **(launch.sampling_of(role) if role in _ROLES else {}), "dtype": launch.dtype_of(role)}


def conventions_of(launch: PartialLaunch, role: Role) -> Conventions:
    """Return how a launch asks a model to be talked to."""
    return Conventions.of(launch.roles[role].template, launch.roles[role].thinking_tags)


def check_conventions(launch: PartialLaunch, models: Mapping[Role, ModelSpec | None]) -> Iterator[str]:
    """Yield warnings on what models are talked to with.

    Raises ValueError where the chat template of a model, as far as its files are here, does not read a variable.
    """
    for role, model in models.items():
        if model is None:
            continue
        asked = conventions_of(launch, role)
        if asked != NO_CONVENTIONS and not registry.capabilities(launch.engine).runs_models:
            raise ValueError(
                f"{_asked(launch, role)}: {launch.engine} engines have no chat template and no tags; leave it out"
            )
        folder = local_folder(model)
        if asked != NO_CONVENTIONS and folder is None:
            yield f"CHAT TEMPLATE: {model.name} is not on this machine: the workers check {_asked(launch, role)}."
        elif asked != NO_CONVENTIONS:
            try:
                HFTokenizer(str(folder), None, asked)
            except ValueError as error:
                raise ValueError(f"{_asked(launch, role)}: {model.name}: {error}") from error
        if folder is not None and has_chat_template(folder) is False:
            yield NO_TEMPLATE.format(role=role, name=model.name)


def _asked(launch: PartialLaunch, role: Role) -> str:
    own = launch.roles[role]
    words = [f"{role_flag(role, 'template')} {_shown({name: value})}" for name, value in own.template.items()]
    tags = [f"{role_flag(role, 'thinking_tags')} {own.thinking_tags}"] if own.thinking_tags else []
    return " ".join([*words, *tags])


def local_folder(model: ModelSpec) -> Path | None:
    """Return the folder of a model's files on this machine; None where there is none."""
    folder = files_at_hand(model.path, model.revision)
    is_cached = folder is not None and not Path(model.path).is_dir()
    return None if folder is None or (is_cached and not (folder / "config.json").is_file()) else folder


def unchecked_notice(settings: Iterable[ModelSettings]) -> list[str]:
    """Return a line where the arguments of engines are not checked here, because vLLM is not installed."""
    if not any(own.engine for own in settings) or libraries.is_known_here():
        return []
    return [
        "ENGINE ARGUMENTS: vLLM is not installed here, so that the workers check --draft.engine and --target.engine."
    ]


def _shown(value: object) -> str:
    if not isinstance(value, Mapping):
        return str(value)
    return " ".join(f"{name}={one if isinstance(one, str) else json.dumps(one)}" for name, one in value.items())
