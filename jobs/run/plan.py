"""From a launch to a run's specification: models with their settings, engine and problems.

Errors that would otherwise appear in a worker are raised at the launch: contexts, hub ids, flags without effect. An
existing run is not checked again; its settings are fixed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

from harness import environment, gpus, prompts
from harness.engine import Role, Tokenizer
from harness.engines import placement, registry, speculation
from harness.engines.scripted import ByteTokenizer
from harness.engines.settings import check_arguments
from harness.engines.speculation import (
    Proposer,
    check_flags,
    draft_sampling,
    greedy_drafts_notice,
    proposer,
    proposing_roles,
    tokens_at_a_time,
    unsupported_reason,
)
from harness.methods import build
from harness.methods.method import flag, needs, required_context_tokens
from harness.methods.references import source_of
from harness.problems import benchmarks, hub, sources
from harness.problems.problem import Problem, dataset_hash
from harness.prompts import prompt_hash
from harness.settings.declaration import ROLES, role_flag
from harness.settings.launch_settings import Cluster, Launch, PartialLaunch
from harness.settings.roles import SAMPLING, flat_role_name
from harness.sizing.memory import shape_of
from harness.weights import adapter, models
from harness.weights.models import BUNDLED, MODELS, PAIR, faults_of, files_at_hand, hub_cache, pair_folder
from harness.weights.templates import BadTemplate, Conventions
from harness.weights.tokenizer import HFTokenizer, loaded_tokenizer
from jobs.run import sizing
from jobs.run.sizing import ServedRole
from jobs.run.spec import AdapterSpec, EngineSpec, ModelSpec, RunSpec


@dataclass(frozen=True)
class RunPlan:
    """A resolved launch, before anything is written."""

    spec: RunSpec
    problems: list[Problem]
    notices: list[str]
    """Warnings for the user, one line each."""
    served: Mapping[Role, ServedRole] = field(default_factory=dict)
    """The models that servers run."""


def plan(launch: Launch, cluster: Cluster, *, is_own_python: bool = False) -> RunPlan:
    """Resolve models, engine and problems of a launch.

    `cluster`: where the run goes; on Slurm, the default models are those for GPUs, whatever this machine has.
    `is_own_python`: the jobs use another Python, so packages of this one are not checked. Raises ValueError,
    ModelUnavailable, DatasetNotFound and BadDataset, each with a one-line message.
    """
    method = build(launch.method, dict(launch.parameters))
    wording = method.worded(prompts.load(launch.prompts) if launch.prompts else prompts.BUILT_IN)
    dataset = sources.load(launch.dataset, launch.data_dir, launch.seed, launch.split, launch.columns)
    problems = benchmarks.select(dataset.problems, launch.limit, launch.problems)
    roles = method.roles
    check_used(launch)
    is_here = not (is_own_python and cluster == "slurm")
    proposing = proposer(launch.method, launch.spec_decode)
    servers = sizing.addresses(launch, (*roles, *proposing_roles(proposing, launch.spec_model)))
    engine = _engine(launch, cluster, roles, servers, proposing, is_here=is_here)
    _check_cards(launch, engine.kind, cluster, roles)
    if launch.take_turns and len(roles) < 2:
        raise ValueError(f"--take-turns: {launch.method} uses one engine, but the flag requires several")
    told = {role: recorded_settings(launch, role, engine.kind) for role in roles}
    selection = None
    if launch.target.adapter:
        selection = _selection(launch.target.adapter, launch.method, engine, is_here=is_here)
        told["target"]["adapter"] = selection
    used = (*roles, *proposing_roles(engine.spec_decode, launch.spec_model))
    served = {role: sizing.resolve(launch, role, address, cluster) for role, address in servers.items()}
    models_of_run, model_notices = _models(launch, cluster, used, served)
    specs = {role: replace(model, **told.get(role, {})) for role, model in models_of_run.items()}
    draft, target, reward = (specs.get(role) for role in ROLES)
    speculator = model_spec(launch.spec_model) if launch.spec_model else None
    if selection is not None and target is not None:
        _check_trained_for(selection, target)
    notices = [*dataset.notices, *model_notices]
    if engine.spec_decode is not None and "target" in specs and engine.can.speculates:
        proposes = speculator or (specs.get("draft") if engine.spec_decode == "draft" else None)
        weights = _reference(proposes) if proposes else None
        speculation.check_pair(engine.spec_decode, _reference(specs["target"]), weights)
        notices += filter(None, [greedy_drafts_notice(engine.spec_sampling, launch.temperature_of("target"))])
    if dataset.is_training:
        notices.append(f"TRAINING DATA: {dataset.name} is not a benchmark; this run's metrics are not results.")
    spec = RunSpec(
        **{name: getattr(launch, name) for name in _OF_LAUNCH},
        params=dict(launch.parameters),
        dataset=dataset.name,
        dataset_hash=dataset_hash(problems),
        dataset_size=len(dataset.problems),
        num_problems=len(problems),
        draft=draft,
        target=target,
        engine=engine,
        prompt_hash=prompt_hash(wording),
        method_source=source_of(launch.method, launch.parameters),
        prompts=wording if wording.changes else None,
        speculator=speculator,
        dataset_origin=dataset.origin,
        prompt_date=datetime.now(UTC).date().isoformat(),
        reward=reward,
    )
    if spec.is_greedy and spec.samples > 1:
        notices.append(
            f"GREEDY: no model is sampled, so all {spec.samples} samples of a problem are identical and count as one. "
            "pass@k is not available; --samples 1 gives the same information."
        )
    return RunPlan(spec, problems, notices, served)


_OF_LAUNCH = ("method", "samples", "seed", "temperature", "top_p", "token_budget", "concurrency", "preset", "tag")
"""Fields of a specification that have the same names in a launch."""


def _engine(
    launch: Launch,
    cluster: Cluster,
    roles: Collection[Role],
    servers: Collection[Role],
    proposing: Proposer | None,
    *,
    is_here: bool,
) -> EngineSpec:
    """Return the engine settings. Raises ValueError if the engine does not support the requested speculation."""
    is_served = bool(servers) and set(roles) <= set(servers)  # the run does not start engines
    kind = "served" if is_served else registry.resolved(launch.engine, is_here=is_here)
    sizing.check_speculation(proposing, servers)
    check_flags(proposing, launch.spec_model, launch.spec_sampling, launch.spec_tokens)
    # A node may have GPUs that this machine lacks; the worker checks again.
    device = "gpu" if cluster == "slurm" else environment.accelerator()
    temperature = launch.temperature_of("target")
    if proposing and (reason := unsupported_reason(kind, device, temperature, proposing, is_here=is_here)):
        raise ValueError(reason)
    if proposing and launch.sampling_of("target").get("min_p"):
        raise ValueError(
            "vLLM does not support min-p with token-level speculation: omit --min-p, or use --top-p and --top-k"
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
    """Raise ValueError if the method's engines cannot use the requested GPUs."""
    cards = {role: launch.roles[role].gpus for role in roles}
    if cluster != "slurm" and registry.capabilities(kind).max_cards != 0:
        number = len(gpus.visible_gpus()) if environment.accelerator() == "gpu" else 0
        placement.check(cards, number, "this machine has")
    for role, numbers in cards.items():
        if registry.capabilities(kind).max_cards == 1 and len(numbers or ()) > 1:
            given = f"{role_flag(role, 'gpus')} {placement.written(numbers or ())}"
            raise ValueError(f"{given}: the {kind} engine uses a single GPU; vllm supports several")


def _models(
    launch: Launch, cluster: Cluster, roles: Collection[Role], served: Mapping[Role, ServedRole]
) -> tuple[dict[Role, ModelSpec], list[str]]:
    """Return the models that the method and token proposals use, without their settings, and notices."""
    if not registry.capabilities(launch.engine).runs_models:
        name = launch.engine  # placeholder for the missing model
        notice = f"{name.upper()} ENGINES: no model runs; the metrics are meaningless."
        return dict.fromkeys(roles, ModelSpec(model=name, path=name, fingerprint=name)), [notice]
    device = "gpu" if cluster == "slurm" else environment.accelerator()
    compares = build(launch.method, dict(launch.parameters)).asks_equivalence
    names, stand_ins = models.by_role(launch.method, roles, launch.models, device, compares=compares)
    specs = {role: served[role].spec if role in served else model_spec(name) for role, name in names.items()}
    return specs, [*filter(None, [stand_ins]), *(notice for one in served.values() for notice in one.notices)]


def model_spec(name: str) -> ModelSpec:
    """Resolve a model's name to its specification."""
    reference = models.resolve(name)
    name, path, fingerprint = reference.name, reference.path_or_hub_id, reference.identity
    trained_on = None
    if reference.fingerprint:
        from harness.training.tuning import data_hash

        trained_on = data_hash(Path(path), fingerprint)
    return ModelSpec(model=name, path=path, revision=reference.revision, fingerprint=fingerprint, training=trained_on)


def _reference(model: ModelSpec) -> models.ModelRef:
    return models.ModelRef(model.name, model.path, model.revision, model.fingerprint)


def _selection(folder: str, method: str, engine: EngineSpec, *, is_here: bool) -> AdapterSpec:
    """Return the adapter in a folder. Raises ValueError if it contains none, or the run cannot use an adapter."""
    speculates = engine.spec_decode is not None
    if reason := adapter.unsupported_reason(engine.kind, method, speculates=speculates, is_here=is_here):
        raise ValueError(reason)
    from harness.training.tuning import data_hash

    weights = adapter.read(folder)
    path = Path(weights.path)
    fingerprint = adapter.fingerprint(path)
    return AdapterSpec(path.name, weights.path, fingerprint, weights.rank, data_hash(path, fingerprint))


def _check_trained_for(selection: AdapterSpec, target: ModelSpec) -> None:
    """Raise ValueError if the adapter's training record lists another base model."""
    from harness.training.tuning import find_manifest

    made = find_manifest(Path(selection.path))
    if made is not None and made.weights == selection.fingerprint and made.base["fingerprint"] != target.fingerprint:
        raise ValueError(
            f"--target.adapter {selection.name} was trained for {made.base['path']}, not for {target.path}"
        )


_ROLES: tuple[Role, ...] = ("draft", "target")
_OF_A_WRITER = (*SAMPLING, "engine", "template", "thinking_tags")
"""Settings of models that generate text."""
_OF_A_MODEL = ("model", "dtype", "gpus", "memory", "tensor_parallel")
"""Settings of all models, including those that only propose tokens."""
_RESOLVED = ("model", "tokenizer", "served_model", "adapter")
"""Settings that locate a model's files; the specification records the resolved values."""

NO_TEMPLATE = (
    "NO CHAT TEMPLATE: {role} {name} has none, so prompts are a plain dialogue (User: …, Assistant: …). If it was "
    "trained with another format, add a chat_template.jinja to its folder."
)


def check_used(launch: PartialLaunch, typed: Collection[str] = ()) -> None:
    """Raise ValueError if a flag applies to a model that the method does not use.

    `typed`: flags from the command line. Flags from presets, files and suites may apply to any method.
    """
    if launch.method is None:
        return
    roles = build(launch.method, dict(launch.parameters)).roles
    for name in launch.reward.given() if "reward" not in roles else ():
        raise ValueError(
            f"{role_flag('reward', name)}: {launch.method} does not use a reward model with these parameters "
            f"(see --method {launch.method} --help)"
        )
    used = (*roles, *proposing_roles(proposer(launch.method, launch.spec_decode), launch.spec_model))
    for role in _ROLES:
        for name, value in launch.roles[role].given().items():
            is_meant = name in _OF_A_MODEL and flat_role_name(role, name) in typed
            if (name in _OF_A_WRITER and role not in roles) or (is_meant and role not in used):
                shown = placement.written(value) if name == "gpus" else _shown(value)
                model = f" --model {launch.parameters['model']}" if "model" in launch.parameters else ""
                only = f"generates only with the {'target' if role == 'draft' else 'draft'}; omit this flag"
                raise ValueError(f"{role_flag(role, name)} {shown}: {launch.method}{model} {only}")


def recorded_settings(launch: PartialLaunch, role: Role, kind: str) -> dict[str, Any]:
    """Return, by name, the settings that the specification records for a model; `kind`: the engine of the model.

    Sampling settings are resolved and recorded if they differ from the run's. Raises ValueError if an argument is
    unknown to vLLM, as far as this machine can tell, or given for another engine.
    """
    own = launch.roles[role]
    can = registry.capabilities(kind)
    if own.engine and not can.takes_arguments:
        raise ValueError(f"{role_flag(role, 'engine')} {next(iter(own.engine))}: needs --engine vllm, not {kind}")
    for name in ("template", "thinking_tags") if not can.runs_models else ():
        if name in own.given():
            raise ValueError(f"{role_flag(role, name)}: {kind} engines have no chat template or tags; omit this flag")
    check_arguments(role, own.engine)
    kept = {name: value for name, value in own.given().items() if name not in (*_RESOLVED, *SAMPLING)}
    return {**kept, **(launch.sampling_of(role) if role in _ROLES else {}), "dtype": launch.dtype_of(role)}


def local_folder(model: ModelSpec) -> Path | None:
    """Return the folder with a model's files on this machine; None if there is none."""
    folder = files_at_hand(model.path, model.revision)
    is_cached = folder is not None and not Path(model.path).is_dir()
    return None if folder is None or (is_cached and not (folder / "config.json").is_file()) else folder


def _shown(value: object) -> str:
    if not isinstance(value, Mapping):
        return str(value)
    return " ".join(f"{name}={one if isinstance(one, str) else json.dumps(one)}" for name, one in value.items())


_HUB_SECONDS = 5.0


def check_new(launch: Launch, planned: RunPlan, typed: Collection[str], *, is_here: bool) -> Iterator[str]:
    """Yield warnings about a new run. `typed`: see `check_used`; `is_here`: see `check_models`.

    Raises a one-line ValueError if workers could not carry out the run.
    """
    check_used(launch, typed)
    yield from check_models(planned.spec, is_here=is_here)
    yield from check_prompts(launch, planned.spec, is_here=is_here)
    yield from check_contexts(planned)


def check_contexts(planned: RunPlan) -> Iterator[str]:
    """Yield warnings if a model's context is too short for a prompt plus its completion (see methods.method).

    Raises ValueError if `--max-context` is too short, or a model's context is below an explicit token budget. The
    bundled pair is exempt, because its context is smaller than that of the papers' models.
    """
    spec, problems = planned.spec, planned.problems
    method, asked = build(spec.method, dict(spec.params)), spec.engine.max_context
    is_scripted, values = not spec.engine.can.runs_models, dict(spec.params) | {"token_budget": spec.token_budget}
    for role in method.roles:
        if (model := spec.models[role]) is None:
            continue
        if model.server is not None:
            own = planned.served[role].context_tokens if role in planned.served else None
        else:
            shape = shape_of(model.name, model.path, model.revision)
            own = None if shape is None else shape.max_positions
        limit = min((known for known in (asked, own) if known), default=0)
        for text in method.texts(role, spec.token_budget) if limit else ():
            estimate = required_context_tokens(problems, text.tokens, 0, spec.wording)
            if limit >= estimate and not is_scripted:
                continue
            tokenizer = ByteTokenizer() if is_scripted else _tokenizer_here(spec, model, role)
            rubric = role == "target" and method.rubric
            needed = max(needs(text, tokenizer, problems, spec.wording, rubric=rubric)) if tokenizer else estimate
            if needed <= limit:
                continue
            given = " ".join(f"{flag(name)} {values[name]}" for name in text.settings)
            if limit == asked and (tokenizer or text.tokens >= limit):
                shorter = f"a smaller {' or '.join(map(flag, text.settings))}"
                raise ValueError(
                    f"--max-context {asked}: too short for a prompt and {given}; valid: {needed} or more, or {shorter}"
                )
            # The default budget is that of the papers' models; for other models, exceeding it is only a warning.
            is_asked = text.settings == ("token_budget",) and spec.token_budget != PartialLaunch.token_budget
            if is_asked and role != "reward" and text.tokens > limit and model.name not in PAIR:
                raise ValueError(
                    f"{given}: the context of the {role} {model.name} is {limit} tokens, prompt included; "
                    f"valid: up to about {max(1, limit - needed + text.tokens)}"
                )
            yield (
                f"SHORT CONTEXT: the context of the {role} {model.name} is {limit} tokens, but a prompt and {given} "
                f"may need {needed}: samples that reach the limit are truncated (stop reason: context)"
            )


def _tokenizer_here(spec: RunSpec, model: ModelSpec, role: Role) -> HFTokenizer | None:
    """Return a model's tokenizer; None if it cannot be loaded here: the doctor and the workers report why."""
    folder = local_folder(model)
    return None if folder is None else loaded_tokenizer(str(folder), None, spec.conventions(role))


def tokenizer_of(model: ModelSpec, asked: Conventions) -> HFTokenizer | None:
    """Return the tokenizer of a model that generates; None if files are missing or damaged, or without transformers.

    Raises a one-line ValueError if it cannot be loaded as requested.
    """
    folder = local_folder(model)
    if folder is None or models.tokenizer_problem(folder):
        return None
    try:
        return HFTokenizer(str(folder), None, asked)
    except BadTemplate:
        raise
    except ImportError:
        return None
    except Exception as error:  # transformers raises bare Exceptions
        line = " ".join(str(error).split())[:400]
        if type(error) is ValueError:
            raise ValueError(line) from error
        kind = type(error).__name__
        raise ValueError(f"failed to load its tokenizer ({kind}: {line}): download it again") from error


def tokenizer_of_role(spec: RunSpec, role: Role) -> Tokenizer:
    """Return the tokenizer of a run's model. Raises ValueError if it cannot be loaded here."""
    model = spec.models[role]
    if model is None or not (spec.engine.can.runs_models or model.server):
        return ByteTokenizer()
    if (tokenizer := tokenizer_of(model, spec.conventions(role))) is None:
        reason = "its files are missing or damaged on this machine, or transformers is not installed"
        raise ValueError(f"cannot load the tokenizer of the {role} {model.name}: {reason}")
    return tokenizer


def check_prompts(launch: PartialLaunch, spec: RunSpec, *, is_here: bool = True) -> Iterator[str]:
    """Yield warnings for models without a chat template, and for models that may reason without being prompted to.

    Raises ValueError if a local model would get a prompt that deviates from its chat template, if the template does not
    use a given variable, if a prompt's answer labels are not single tokens, or if the workers' libraries cannot load
    the tokenizer (`is_here`: see `check_models`).
    """
    method = build(spec.method, dict(spec.params))
    for role in method.roles if spec.engine.can.runs_models else ():
        model = spec.models[role]
        if model is None:
            continue
        own, asked = f"--{role} {model.name}", spec.conventions(role)
        is_asked = bool(asked.variables or asked.thinking_tags)
        if not (spec.prompts or is_asked) and model.name in BUNDLED and Path(model.path) == pair_folder(model.name):
            continue  # already verified, and loading the tokenizer takes seconds
        try:
            tokenizer = tokenizer_of(model, asked) if is_asked or is_here else _tokenizer_here(spec, model, role)
        except ValueError as error:
            raise ValueError(f"{own}: {error}") from error
        if tokenizer is None:  # files are missing; the doctor and the workers report them
            continue
        try:
            method.check_questions(role, tokenizer, spec.wording)
        except ValueError as error:
            if is_asked or isinstance(error, BadTemplate):
                raise ValueError(f"{own}: {error}") from error
            source = f"--prompts {launch.prompts}: for the {role} {model.name}," if launch.prompts else f"{own}:"
            raise ValueError(f"{source} {error}") from error
        if not tokenizer.has_chat_template:
            yield NO_TEMPLATE.format(role=role, name=model.name)
        if tags := tokenizer.unopened_tags:
            yield (
                f"PLAIN MODEL: the prompt of the {role} {model.name} does not start a reasoning block, but the model's "
                f"vocabulary has {','.join(tags)}. If the model reasons, set --{role}.thinking-tags "
                f"'{','.join(tags)}'; otherwise, set it to none."
            )


def check_models(spec: RunSpec, *, is_here: bool) -> Iterator[str]:
    """Yield a warning for each model that is not on this machine and cannot be checked at the hub.

    `is_here`: whether the workers use this Python and its environment variables. Raises ValueError if model files are
    damaged or missing, no engine can run the model, the model is not cached and the hub is disabled, or the hub has no
    such model.
    """
    pinned = {known.path_or_hub_id for known in MODELS.values()}
    named = [(role, model, spec.settings[role].engine) for role, model in spec.models.items()]
    for name, model, arguments in (*named, ("spec-model", spec.speculator, {})):
        if not spec.engine.can.runs_models or model is None or model.server is not None:
            continue
        given = f"--{name} {model.name}"
        folder, is_own = files_at_hand(model.path, model.revision), Path(model.path).is_absolute()
        variable = hub.offline_by() if is_here and not is_own else None
        fetched = f"; {variable} is set: {hub.download(model.path, model.revision)}" if variable else ""
        if folder is None and variable:
            raise ValueError(f"{given}: not in the cache{fetched}")
        if folder is not None:
            proposes, to_download = name == "spec-model", not (is_own or variable)
            rates = name == "reward"
            if faults := faults_of(
                folder, to_download=to_download, proposes=proposes, rates=rates, arguments=arguments
            ):
                raise ValueError(f"{given}: {faults[0]}{fetched}")
        is_known = model.path in pinned or "/" not in model.path or is_own or hub_cache(model.path).is_dir()
        if folder is None and not is_known and not _is_at_hub(given, model):
            yield (
                f"NOT CHECKED: {given} is not in this machine's cache, and the hub does not respond. The workers need "
                "the model in their cache."
            )


def _is_at_hub(given: str, model: ModelSpec) -> bool:
    """Return False if the hub does not respond. Raises ValueError if it has no such model."""
    if hub.is_offline() or not hub.is_reachable(_HUB_SECONDS):
        return False
    from huggingface_hub import HfApi
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError

    try:
        HfApi().model_info(model.path, revision=model.revision, timeout=_HUB_SECONDS)
    except GatedRepoError:  # it exists; missing access is reported on loading
        return True
    except HfHubHTTPError as error:
        if not (isinstance(error, RepositoryNotFoundError) or error.response.status_code == HTTPStatus.NOT_FOUND):
            return False
        at = f" with the revision {model.revision}" if model.revision else ""
        raise ValueError(
            f"{given}: the hub has no such model{at}, or it is private: set HF_TOKEN in the environment"
        ) from error
    except Exception:  # noqa: BLE001 other hub errors are left to the worker
        return False
    return True
