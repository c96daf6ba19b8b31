"""The engines of a run: whether they can start here, the data to plan their sizes, and servers used instead.

A model on a server is identified by querying the server. The address is not part of the model's identity: the run's
events record it, and the last recorded address is used, so the same launch with another address resumes the run.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from harness.cli.messages import counted
from harness.engine import EngineDied, Role
from harness.engines import registry
from harness.engines.served.address import ServedModel, ServerAddress, is_address, refuse_other_forms
from harness.engines.settings import UNPLANNED
from harness.environment import accelerator
from harness.methods import Method, build
from harness.methods.method import required_context_tokens
from harness.problems.problem import Problem
from harness.settings.declaration import role_flag
from harness.settings.launch_settings import Cluster, Launch, PartialLaunch
from harness.sizing.card_plan import (
    DoesNotFit,
    ModelFiles,
    NotPlannable,
    RunSizing,
    assumed_models,
    check_flags,
    plan_lines,
    planned,
)
from harness.sizing.memory import GPU_MEMORY, Card, Option, cards_here, cards_of_worker
from harness.weights import adapter
from harness.weights.models import folder_named
from jobs.run import trust
from jobs.run.folder import RunFolder
from jobs.run.spec import ModelSpec, RunSpec


def sizing_of(spec: RunSpec, method: Method, problems: Iterable[Problem]) -> RunSizing:
    """Return the inputs that determine the sizes of a run's engines."""
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
    launch: Launch, spec: RunSpec, problems: list[Problem], cluster: Cluster, sbatch: Mapping[str, Option]
) -> list[str]:
    """Return the lines that a launch prints about engine sizes; empty if it uses no GPU.

    Raises a one-line ValueError (including DoesNotFit) if the run cannot start on its GPUs as far as this machine can
    tell.
    """
    if not spec.engine.can.is_planned:
        return []
    sizing, uncounted = sizing_of(spec, build(spec.method, dict(spec.params)), problems), unplanned_arguments(spec)
    if cluster == "slurm":
        job = cards_of_worker(sbatch, launch.workers_per_task)
        check_flags(sizing, None if job is None else job.count)
        if job is None:  # no_gpus warns of it
            return []
        if job.card is None:
            return [
                f"memory: planned on the node for {counted(job.count, 'GPU')}; to plan it here, set a known type "
                f"(--gpus-per-node h100:4) or the memory (--{GPU_MEMORY} 80GB)"
            ]
        rest = "use the others with --workers-per-task, or request fewer with --gpus-per-node"
        return list(_memory_lines(sizing, job.cards(), uncounted, rest, is_assumed=job.card.is_assumed))
    if accelerator() != "gpu":
        check_flags(sizing, None)
        return []
    rest = "use the others with --shards" if launch.shards == 1 else ""
    return list(_memory_lines(sizing, cards_here(), uncounted, rest))


def _memory_lines(
    sizing: RunSizing, cards: Sequence[Card], uncounted: list[str], rest: str, *, is_assumed: bool = False
) -> Iterator[str]:
    """Yield lines on how the memory of a worker's GPUs is divided; `rest`: how to use leftover GPUs."""
    if not cards:
        return
    try:
        plan = planned(sizing, cards)
        yield from plan_lines(plan, sizing.concurrency)
        if rest and plan.num_cards < len(plan.cards):
            yield f"{plan.num_cards} of the {len(plan.cards)} GPUs of a worker are used: {rest}"
    except NotPlannable as reason:
        yield (
            f"memory: {reason}. By default, the engines use one GPU; beside the target, a draft gets 12 % of it and a "
            "reward model 20 %"
        )
    except DoesNotFit as reason:
        if not (is_assumed or uncounted):
            raise
        yield f"memory: {reason}"
    if is_assumed:
        yield f"assumed: {cards[0].name}, the variant with the least memory; for another, set --{GPU_MEMORY}"
    if names := ", ".join(assumed_models(sizing)):
        yield f"assumed: model sizes of {names}; config.json is not on this machine"
    if uncounted:
        yield f"memory: the plan ignores vLLM's {', '.join(uncounted)}; set shares with --draft.memory, --target.memory"


def no_gpus(spec: RunSpec, sbatch: Mapping[str, Option]) -> Iterator[str]:
    """Yield a warning if workers on Slurm start vLLM without requesting a GPU."""
    starts_engines = any(model is not None and model.server is None for model in spec.models.values())
    if spec.engine.can.is_planned and starts_engines and cards_of_worker(sbatch) is None:
        yield (
            "NO GPU REQUESTED: without a GPU option Slurm allocates none, and vLLM runs on CPUs or does not start. "
            "Request one with --gpus-per-node 1, or in the profile."
        )


def unplanned_arguments(spec: RunSpec) -> list[str]:
    """Return engine arguments that affect memory but are not planned for, by vLLM's names."""
    return sorted({name for own in spec.settings.values() for name in own.engine if name in UNPLANNED})


def _files(model: ModelSpec) -> ModelFiles:
    return ModelFiles(model.name, model.path, model.revision)


def check_engine(kind: str, given: str, remedy: str) -> None:
    """Raise ValueError if this Python lacks the engine's packages. `given`, `remedy`: start and end of the message."""
    if packages := registry.missing_packages(kind):
        raise ValueError(f"{given} {sys.executable} lacks {' and '.join(packages)}: {remedy}")


UNKNOWN = "unknown"
"""Server type if the server was not reachable at the launch."""
_ROLES: tuple[Role, ...] = get_args(Role)
_OF_ENGINES = ("dtype", "tensor_parallel", "memory", "gpus", "engine")
"""Settings of an engine that the worker starts."""


@dataclass(frozen=True)
class ServedRole:
    """A role of a run whose model is on a server."""

    spec: ModelSpec
    address: str
    notices: list[str]
    """Warnings for the user, one line each."""
    context_tokens: int | None = None
    """Maximum prompt plus completion length; None: not reported, or not queried."""


def addresses(launch: PartialLaunch, roles: Collection[Role]) -> dict[Role, ServerAddress]:
    """Return a launch's servers by role. Raises ValueError if an address or a related flag is invalid."""
    named = launch.models
    for role, name in named.items():
        if role in roles and name is not None and folder_named(name) is None:
            refuse_other_forms(f"--{role}", name)
    found = {
        role: ServerAddress.parse(f"--{role}", name)
        for role in _ROLES
        if role in roles and (name := named[role]) is not None and is_address(name)
    }
    for role, own in launch.roles.items():
        for name in ("tokenizer", "served_model"):
            if name in own.given() and role not in found:
                raise ValueError(f"{role_flag(role, name)} requires a model on a server: --{role} http://HOST:PORT/v1")
    if found:
        _check_flags(launch, found, everywhere=set(roles) <= set(found))
    return found


def _check_flags(launch: PartialLaunch, served: Collection[Role], *, everywhere: bool) -> None:
    if not registry.capabilities(launch.engine).runs_models:
        raise ValueError(f"--engine {launch.engine} runs no model and cannot use a server: omit the flag or the server")
    for role in served:
        given = launch.roles[role].given()
        for name in _OF_ENGINES:
            if name in given:
                raise ValueError(f"{role_flag(role, name)}: set by the {role}'s server; omit this flag")
    if "target" in served and launch.target.adapter is not None:
        raise ValueError("--target.adapter requires a target started by the worker: pass its weights, not a server")
    if everywhere and launch.dtype != "auto":
        raise ValueError(f"--dtype {launch.dtype}: set by the servers; omit this flag")


def check_speculation(proposing: str | None, served: Collection[Role]) -> None:
    """Raise ValueError if speculation needs the engine of the target's server or the weights of the draft's server."""
    if proposing is not None and "target" in served:
        raise ValueError(
            "--spec-decode: token proposals are configured on the target's server. Omit the flag, use --method vanilla "
            "instead of specdecode, and start the server with its own --speculative-config"
        )
    if proposing == "draft" and "draft" in served:
        raise ValueError("--spec-decode draft requires the draft's weights, but --draft is a server")


def resolve(launch: Launch, role: Role, address: ServerAddress, cluster: Cluster) -> ServedRole:
    """Query a role's server for its model and required features.

    If this machine cannot reach the server, but jobs run the samples and `served_model` is set, the workers query it.
    Raises a one-line ValueError.
    """
    from harness.engines.served import discovery

    wanted, named = launch.roles[role].served_model, launch.roles[role].tokenizer
    notices = []
    if cluster == "slurm" and address.is_loopback:
        notices.append(f"--{role} {address.shown} is a loopback address: each job uses a server on its own node")
    try:
        found = discovery.find_here(address, role, wanted)
    except EngineDied as error:
        if cluster != "slurm" or wanted is None or "rejected the key" in str(error):
            hint = f"; or set --{role}.served-model" if cluster == "slurm" and wanted is None else ""
            raise ValueError(f"{error}{hint}") from None
        notices.append(f"{error}; a job will query the server")
        found = None
    model = found.model if found else str(wanted)
    own = discovery.own_tokenizer(role, model, found.root if found else None, named)
    if found is not None:
        notices += discovery.check_here(address, role, found, own)
    spec = ModelSpec(
        model=model.rstrip("/").rpartition("/")[2] if model.startswith("/") else model,
        path=own.source.path_or_hub_id,
        revision=own.source.revision,
        fingerprint=discovery.fingerprint(model, own.tokenizer),
        server=found.kind if found else UNKNOWN,
    )
    return ServedRole(spec, address.root, notices, found.context_tokens if found else None)


def record_servers(run: RunFolder, served: Mapping[Role, ServedRole]) -> None:
    """Record the addresses of a run's servers if they changed."""
    if servers := {role: one.address for role, one in served.items()}:
        trust.remember(run, trust.servers(servers))
        if servers != recorded_servers(run):
            run.append("servers", addresses={str(role): url for role, url in servers.items()})


def recorded_servers(run: RunFolder) -> dict[Role, str]:
    """Return the most recent addresses of a run's servers; callers must check that they are trusted."""
    records = run.events("servers")
    last = records[-1].get("addresses") if records else None
    given = last if isinstance(last, dict) else {}
    return {role: address for role in _ROLES if isinstance(address := given.get(role), str)}


def served_models(spec: RunSpec, servers: Mapping[Role, str]) -> Iterator[tuple[Role, ServedModel]]:
    """Yield the server settings of a run's served models, by role. Raises ValueError."""
    for role, model in spec.models.items():
        if model is None or model.server is None:
            continue
        if role not in servers:
            raise ValueError(f"the address of the {role}'s server is not recorded: launch the run again with --{role}")
        from harness.engines.served.discovery import model_of

        address = ServerAddress.parse(f"--{role}", servers[role])
        kind = None if model.server == UNKNOWN else model.server
        yield role, ServedModel(address.root, kind, model_of(model.fingerprint), model.fingerprint)
