"""Models that servers run, as a run names them: found by asking the server, kept without its address.

The address is where the model is asked, not what it is: it stands among the run's events, of which the last one counts,
so that the same launch with another address resumes the run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import get_args

from harness.engine import EngineDied, Role
from harness.engines import registry
from harness.engines.served import discovery
from harness.engines.served.address import ServedModel, ServerAddress, is_address, refuse_other_forms
from harness.settings.launch_settings import Cluster, Launch, PartialLaunch
from harness.settings.roles import role_flag
from harness.weights.models import folder_named
from jobs.run.folder import RunFolder
from jobs.run.spec import ModelSpec, RunSpec

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
    _check_flags(launch, found, everywhere=bool(found) and set(roles) <= set(found))
    return found


def _check_flags(launch: PartialLaunch, served: Collection[Role], *, everywhere: bool) -> None:
    if not served:
        return
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


def kind_of_engines(kind: str, served: Collection[Role], roles: Collection[Role]) -> str:
    """Return the kind that a run records: that of the engines it starts itself, `served` where it starts none."""
    return "served" if served and set(roles) <= set(served) else kind


def resolve(launch: Launch, role: Role, address: ServerAddress, cluster: Cluster) -> ServedRole:
    """Ask the server of a role what it runs and whether it gives what methods need.

    Where this machine is not the one that runs the samples and cannot reach the server, the workers ask it. Raises
    ValueError with one line.
    """
    wanted, named = launch.roles[role].served_model, launch.roles[role].tokenizer
    notices = []
    if cluster == "slurm" and address.is_loopback:
        notices.append(f"--{role} {address.shown} is this machine only: the jobs look for a server on their nodes")
    try:
        found = discovery.find_here(address, role, wanted)
    except EngineDied as error:
        if cluster != "slurm" or wanted is None or "refuses the key" in str(error):
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


def record(run: RunFolder, servers: Mapping[Role, str]) -> None:
    """Keep the addresses of a run's servers for its workers, where they differ from those before."""
    if servers and servers != recorded(run):
        run.append("servers", addresses={str(role): url for role, url in servers.items()})


def recorded(run: RunFolder) -> dict[Role, str]:
    """Return the addresses of a run's servers, those that were recorded last."""
    records = run.events("servers")
    last = records[-1]["addresses"] if records else {}
    return {role: address for role in _ROLES if isinstance(address := last.get(role), str)}


def served_models(spec: RunSpec, servers: Mapping[Role, str]) -> Iterator[tuple[Role, ServedModel]]:
    """Yield what the engines of a run's served models are told, by role. Raises ValueError."""
    for role, model in spec.models.items():
        if model is None or model.server is None:
            continue
        if role not in servers:
            raise ValueError(f"the address of the {role}'s server is not recorded: launch the run again with --{role}")
        address = ServerAddress.parse(f"--{role}", servers[role])
        kind = None if model.server == UNKNOWN else model.server
        yield role, ServedModel(address.root, kind, discovery.model_of(model.fingerprint), model.fingerprint)
