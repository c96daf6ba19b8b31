"""The engines of a run: whether they can start here, what planning needs to know of them, and servers in their place.

A model that a server runs is found by asking the server, and is named without its address. The address is where the
model is asked, not what it is: it stands among the run's events, of which the last one counts, so that the same launch
with another address resumes the run.
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
    sizing, uncounted = sizing_of(spec, build(spec.method, dict(spec.params)), problems), unplanned_arguments(spec)
    if cluster == "slurm":
        job = cards_of_worker(sbatch, workers_per_task)
        check_flags(sizing, None if job is None else job.count)
        if job is None:  # no_gpus warns of it
            return []
        if job.card is None:
            return [
                f"memory: the node decides on {counted(job.count, 'GPU')}; name a known type (--gpus-per-node h100:4) "
                f"or their memory (--{GPU_MEMORY} 80GB) to plan it here"
            ]
        rest = "--workers-per-task uses the rest, --gpus-per-node asks for fewer"
        return list(_memory_lines(sizing, job.cards(), uncounted, rest, is_assumed=job.card.is_assumed))
    if accelerator() != "gpu":
        check_flags(sizing, None)
        return []
    return list(_memory_lines(sizing, cards_here(), uncounted, "--shards uses the rest" if shards == 1 else ""))


def _memory_lines(
    sizing: RunSizing, cards: Sequence[Card], uncounted: list[str], rest: str, *, is_assumed: bool = False
) -> Iterator[str]:
    """Yield how the memory of a worker's cards is divided; `rest` says how cards are used that are left over."""
    if not cards:
        return
    try:
        plan = planned(sizing, cards)
        yield from plan_lines(plan, sizing.concurrency)
        if rest and plan.num_cards < len(plan.cards):
            yield f"{plan.num_cards} of the {len(plan.cards)} GPUs of a worker are used: {rest}"
    except NotPlannable as reason:
        yield f"memory: {reason}; the engines get one GPU and fixed shares (12 and 78 %), or what the flags say"
    except DoesNotFit as reason:
        if not (is_assumed or uncounted):
            raise
        yield f"memory: {reason}"
    if is_assumed:
        yield f"assumed: the smaller of two cards with this name; --{GPU_MEMORY} says which"
    if names := ", ".join(assumed_models(sizing)):
        yield f"assumed: the sizes of {names}, whose config.json is not on this machine"
    if uncounted:
        yield f"memory: planned without {', '.join(uncounted)}; --draft.memory and --target.memory set the shares"


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


def _files(model: ModelSpec) -> ModelFiles:
    return ModelFiles(model.name, model.path, model.revision)


def check_engine(kind: str, given: str, remedy: str) -> None:
    """Raise ValueError where this Python cannot start an engine: what was `given`, why not, and what helps."""
    if packages := registry.missing_packages(kind):
        raise ValueError(f"{given} {sys.executable} has no {' and no '.join(packages)}: {remedy}")


UNKNOWN = "unknown"
"""The kind of a server that could not be reached from where the run was launched."""
_ROLES: tuple[Role, ...] = get_args(Role)
_OF_ENGINES = ("dtype", "tensor_parallel", "memory", "gpus", "engine")
"""Settings of an engine that the worker starts."""


@dataclass(frozen=True)
class ServedRole:
    """One role of a run whose model a server runs."""

    spec: ModelSpec
    address: str
    notices: list[str]
    """Warnings for the user, one line each."""
    context_tokens: int | None = None
    """Longest prompt plus completion; None: the server does not say, or was not asked."""


def addresses(launch: PartialLaunch, roles: Collection[Role]) -> dict[Role, ServerAddress]:
    """Return the servers of a launch by role. Raises ValueError where one is invalid, or a flag does not fit it."""
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
                raise ValueError(f"{role_flag(role, name)} is for a model on a server: --{role} http://HOST:PORT/v1")
    if found:
        _check_flags(launch, found, everywhere=set(roles) <= set(found))
    return found


def _check_flags(launch: PartialLaunch, served: Collection[Role], *, everywhere: bool) -> None:
    if not registry.capabilities(launch.engine).runs_models:
        raise ValueError(f"--engine {launch.engine} runs no model, so there is no server to ask: leave one of them out")
    for role in served:
        given = launch.roles[role].given()
        for name in _OF_ENGINES:
            if name in given:
                raise ValueError(f"{role_flag(role, name)}: the {role}'s server was started with its own; leave it out")
    if "target" in served and launch.target.adapter is not None:
        raise ValueError("--target.adapter is for a target that the worker starts: name its weights, not a server")
    if everywhere and launch.dtype != "auto":
        raise ValueError(f"--dtype {launch.dtype}: the servers were started with their own; leave it out")


def check_speculation(proposing: str | None, served: Collection[Role]) -> None:
    """Raise ValueError where a server's engine would have to speculate, or to lend its weights to another one."""
    if proposing is not None and "target" in served:
        raise ValueError(
            "--spec-decode: whether tokens are proposed is the affair of the target's server; leave it out, with "
            "--method vanilla instead of specdecode, and start the server with its own --speculative-config"
        )
    if proposing == "draft" and "draft" in served:
        raise ValueError("--spec-decode draft needs the weights of the draft, and --draft names a server")


def resolve(launch: Launch, role: Role, address: ServerAddress, cluster: Cluster) -> ServedRole:
    """Ask the server of a role what it runs and whether it gives what methods need.

    Where this machine is not the one that runs the samples and cannot reach the server, the workers ask it. Raises
    ValueError with one line.
    """
    from harness.engines.served import discovery

    wanted, named = launch.roles[role].served_model, launch.roles[role].tokenizer
    notices = []
    if cluster == "slurm" and address.is_loopback:
        notices.append(f"--{role} {address.shown} is this machine only: the jobs look for a server on their nodes")
    try:
        found = discovery.find_here(address, role, wanted)
    except EngineDied as error:
        if cluster != "slurm" or wanted is None or "rejected the key" in str(error):
            hint = f"; or name its model with --{role}.served-model" if cluster == "slurm" and wanted is None else ""
            raise ValueError(f"{error}{hint}") from None
        notices.append(f"{error}: nothing is known of it until a job asks it")
        found = None
    model = found.model if found else str(wanted)
    own = discovery.own_tokenizer(role, model, found.root if found else None, named)
    if found is not None:
        notices += discovery.check_here(address, role, found, own)
    name = model.rstrip("/").rpartition("/")[2] if model.startswith("/") else model
    fingerprint = discovery.fingerprint(model, own.tokenizer)
    kind = found.kind if found else UNKNOWN
    source = own.source
    spec = ModelSpec(
        model=name, path=source.path_or_hub_id, revision=source.revision, fingerprint=fingerprint, server=kind
    )
    return ServedRole(spec, address.root, notices, found.context_tokens if found else None)


def record_servers(run: RunFolder, served: Mapping[Role, ServedRole]) -> None:
    """Keep the addresses of a run's servers for its workers, where they differ from those before."""
    if servers := {role: one.address for role, one in served.items()}:
        trust.remember(run, trust.servers(servers))
        if servers != recorded_servers(run):
            run.append("servers", addresses={str(role): url for role, url in servers.items()})


def recorded_servers(run: RunFolder) -> dict[Role, str]:
    """Return the addresses of a run's servers, those that were recorded last; who uses them asks for trust in them."""
    records = run.events("servers")
    last = records[-1].get("addresses") if records else None
    given = last if isinstance(last, dict) else {}
    return {role: address for role in _ROLES if isinstance(address := given.get(role), str)}


def served_models(spec: RunSpec, servers: Mapping[Role, str]) -> Iterator[tuple[Role, ServedModel]]:
    """Yield what the engines of a run's served models are told, by role. Raises ValueError."""
    for role, model in spec.models.items():
        if model is None or model.server is None:
            continue
        if role not in servers:
            raise ValueError(f"the address of the {role}'s server is not recorded: launch the run again with --{role}")
        from harness.engines.served.discovery import model_of

        address = ServerAddress.parse(f"--{role}", servers[role])
        kind = None if model.server == UNKNOWN else model.server
        yield role, ServedModel(address.root, kind, model_of(model.fingerprint), model.fingerprint)
