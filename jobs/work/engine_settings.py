"""Settings for starting a run's engines on this node."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

from harness import environment
from harness.engine import Role
from harness.engines.pool import EngineNeed, EnginePool, LeasedEngine
from harness.engines.served.address import ServedModel
from harness.engines.settings import EngineSettings, check_arguments, pair_settings
from harness.engines.speculation import DraftSampling, Proposer, Speculation, unsupported_reason
from harness.methods import Method
from harness.problems.problem import Problem
from harness.settings.roles import ModelSettings
from harness.sizing.card_plan import DoesNotFit, RunSizing, asked_for, chosen_here, small_models
from harness.weights import adapter
from harness.weights.tokenizer import loaded_tokenizer
from jobs.run import trust
from jobs.run.folder import RunFolder
from jobs.run.sizing import check_engine, recorded_servers, served_models, sizing_of, unplanned_arguments
from jobs.run.spec import AdapterSpec, ModelSpec, RunSpec


def engine_needs(
    run: RunFolder, spec: RunSpec, method: Method, problems: Iterable[Problem], kv_bytes: int | None = None
) -> list[EngineNeed]:
    """Return the engines that a method needs on this node, with the models and settings of a run.

    `kv_bytes`: see `pair_settings`. Raises ValueError if this node cannot start them or a prompt would deviate from a
    model's chat template, and trust.NotTrusted for servers or vLLM arguments that this user does not trust.
    """
    remedy = "install it there, set another python in the profile, or use another --engine"
    check_engine(spec.engine.kind, f"the run needs the engine {spec.engine.kind}, but", remedy)
    addresses = recorded_servers(run)
    trust.require(run, [*trust.servers(addresses), *trust.arguments(spec.settings)])
    servers = dict(served_models(spec, addresses))
    settings = engine_settings(spec, method, problems, kv_bytes, servers)
    asked, one_in_flight = spec.engine.logprobs, spec.concurrency == 1
    needs = []
    for role in method.roles:
        if (model := spec.models[role]) is None:
            raise ValueError(f"this method needs a {role} model")
        if spec.engine.can.runs_models or model.server is not None:
            _check_prompts(spec, method, role, model)
        reads_logprobs = method.reads_logprobs if asked is None else asked
        needs.append(EngineNeed(role, model.path, model.revision, settings[role], reads_logprobs, one_in_flight))
    return needs


def _check_prompts(spec: RunSpec, method: Method, role: Role, model: ModelSpec) -> None:
    """Repeat the launch's prompt checks: the launching machine may lack model files, or they may have changed since."""
    tokenizer = loaded_tokenizer(model.path, model.revision, spec.conventions(role))
    if tokenizer is None:  # its engine reports why
        return
    try:
        method.check_questions(role, tokenizer, spec.wording)
    except ValueError as error:
        raise ValueError(f"{role} {model.name}: {error}") from error


def engine_settings(
    spec: RunSpec,
    method: Method,
    problems: Iterable[Problem],
    kv_bytes: int | None = None,
    servers: Mapping[Role, ServedModel] | None = None,
) -> dict[Role, EngineSettings]:
    """Resolve the settings of a run's engines by role. `kv_bytes`: see `pair_settings`. `servers`: models on servers.

    On GPUs, tensor-parallel sizes and memory shares are chosen from the GPUs visible to this process. Raises DoesNotFit
    if the models do not fit, and ValueError if this node does not support the settings or an adapter has changed since
    the run was planned.
    """
    engine = spec.engine
    sizing = sizing_of(spec, method, problems)
    served = servers or {}
    own_roles = tuple(role for role in method.roles if role not in served)
    settings = pair_settings(
        engine.kind,
        own_roles,
        max_context=sizing.context_tokens,
        models=_chosen(spec, sizing),
        concurrency=spec.concurrency,
        candidates=method.parallel,
        target_candidates=method.target_parallel,
        take_turns=engine.take_turns,
        speculation=_speculation(spec, engine.spec_decode) if engine.spec_decode else None,
        adapter=_adapter(spec.selection) if spec.selection else None,
        kv_bytes=kv_bytes,
        small=small_models(sizing),
    )
    for role, model in served.items():
        settings[role] = EngineSettings(kind="served", max_context=sizing.context_tokens, server=model)
    return {
        role: replace(own, arguments=_arguments(spec, role), conventions=spec.conventions(role))
        for role, own in settings.items()
    }


def _chosen(spec: RunSpec, sizing: RunSizing) -> dict[Role, ModelSettings]:
    """Return planned tensor-parallel sizes and memory shares.

    If models do not fit, but vLLM arguments that the plan ignores are set, return the requested values: vLLM decides.
    """
    try:
        return chosen_here(spec.engine.kind, sizing)
    except DoesNotFit:
        if not unplanned_arguments(spec):
            raise
        return asked_for(sizing)


def _arguments(spec: RunSpec, role: Role) -> tuple[tuple[str, str], ...]:
    """Return the extra arguments of an engine. Raises ValueError if this node's vLLM lacks one."""
    given = spec.settings[role].engine
    check_arguments(role, given)
    return tuple((name, json.dumps(value, sort_keys=True)) for name, value in sorted(given.items()))


def _speculation(spec: RunSpec, proposer: str) -> Speculation:
    """Return a run's token-speculation settings. Raises ValueError if unsupported on this node."""
    engine = spec.engine
    temperature = spec.sampling["target"].get("temperature", spec.temperature)
    if reason := unsupported_reason(engine.kind, environment.accelerator(), temperature, proposer):
        raise ValueError(reason)
    weights = spec.speculator or (spec.draft if proposer == "draft" else None)
    return Speculation(
        cast(Proposer, proposer),
        engine.spec_tokens or 0,
        weights.path if weights else None,
        weights.revision if weights else None,
        cast(DraftSampling, engine.spec_sampling or "greedy"),
    )


def _adapter(planned: AdapterSpec) -> adapter.Adapter:
    """Return a run's adapter. Raises ValueError if its folder was changed."""
    selection = adapter.read(planned.path)
    if adapter.fingerprint(Path(selection.path)) != planned.fingerprint:
        raise ValueError(f"the selection adapter in {selection.path} has changed since this run was planned")
    return selection


async def reopen(
    pool: EnginePool, run: RunFolder, method: Method, spec: RunSpec | None = None, kv_bytes: int | None = None
) -> dict[Role, LeasedEngine]:
    """Open engines from a pool for the roles of a method, with the models and settings of a run.

    `method` need not be the run's; it determines the size of the engines (context, requests in flight, candidates).
    `spec` replaces the run's specification. `kv_bytes`: the size of the KV caches on a CPU; pass the same value for all
    runs that share engines. The pool closes the engines. Raises ValueError if this machine cannot start them, and
    EngineDied if one fails to start.
    """
    needs = engine_needs(run, spec or run.spec(), method, run.problems(), kv_bytes)
    return dict(await pool.lease(needs, run.logs_dir / "reopened"))


def without_speculation(spec: RunSpec) -> RunSpec:
    """Return a specification without token speculation and adapter, for a target that only reads text."""
    engine = replace(spec.engine, spec_decode=None, spec_tokens=None, spec_sampling=None)
    return spec.without_adapter(engine=engine, speculator=None)
