"""Models that servers run, as a run names them: found by asking the server, kept without its address.

The address is where the model is asked, not what it is: it stands in `servers.jsonl` of the run folder, of which the
last record counts, so that the same launch with another address resumes the run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from harness.engine import EngineDied, Role
from harness.engines.served import probe
from harness.engines.served.address import ServedModel, ServerAddress, api_key, is_address
from harness.engines.served.connection import Connection
from harness.engines.served.engine import PADDED_TOKENS
from harness.engines.served.replies import BadReply
from harness.launch_options import Cluster, Launch
from harness.methods.ranges import flag
from harness.problems import hub
from harness.weights import models
from harness.weights.tokenizer import HFTokenizer
from jobs.run.files import append_record, read_records
from jobs.run.folder import RunFolder
from jobs.run.spec import ModelSpec, RunSpec

UNKNOWN = "unknown"
"""The kind of a server that could not be reached from where the run was launched."""
_ROLES: tuple[Role, ...] = ("draft", "target")
_PROBE_ATTEMPTS, _PROBE_SECONDS = 2, 120.0
_OF_ENGINES = ("tensor_parallel", "memory", "gpus")
"""Flags of an engine that the worker starts, behind the name of the role."""
_T = TypeVar("_T")


@dataclass(frozen=True)
class ServedRole:
    """One role of a run whose model a server runs."""

    spec: ModelSpec
    address: str
    notices: list[str]
    """Warnings for the user, one line each."""


def addresses(launch: Launch, roles: Collection[Role]) -> dict[Role, ServerAddress]:
    """Return the servers of a launch by role. Raises ValueError where one is invalid, or a flag does not fit it."""
    named: dict[Role, str | None] = {"draft": launch.draft, "target": launch.target}
    found = {
        role: ServerAddress.parse(flag(role), name)
        for role in _ROLES
        if role in roles and (name := named[role]) is not None and is_address(name)
    }
    for role in _ROLES:
        for name in (f"{role}_tokenizer", f"{role}_served_model"):
            if getattr(launch, name) is not None and role not in found:
                raise ValueError(f"{flag(name)} is for a model on a server: {flag(role)} http://HOST:PORT/v1")
    _check_flags(launch, found, everywhere=bool(found) and set(roles) <= set(found))
    return found


def _check_flags(launch: Launch, served: Collection[Role], *, everywhere: bool) -> None:
    if not served:
        return
    if launch.engine == "scripted":
        raise ValueError("--engine scripted runs no model, so there is no server to ask: leave one of them out")
    for role in served:
        for name in (f"{role}_{setting}" for setting in _OF_ENGINES):
            if getattr(launch, name) is not None:
                raise ValueError(f"{flag(name)}: the {role}'s server was started with its own; leave it out")
    if "target" in served and launch.selection_adapter is not None:
        raise ValueError("--selection-adapter is for a target that the worker starts: name its weights, not a server")
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
    wanted = launch.target_served_model if role == "target" else launch.draft_served_model
    named = launch.target_tokenizer if role == "target" else launch.draft_tokenizer
    notices = []
    if cluster == "slurm" and address.is_loopback:
        notices.append(f"{flag(role)} {address.shown} is this machine only: the jobs look for a server on their nodes")
    try:
        found = _run(lambda: _find(address, role, wanted))
    except EngineDied as error:
        if cluster != "slurm" or wanted is None or "refuses the key" in str(error):
            hint = f"; or name its model with --{role}-served-model" if cluster == "slurm" and wanted is None else ""
            raise ValueError(f"{error}{hint}") from None
        notices.append(f"{error}: nothing is known of it until a job asks it")
        found = None
    except BadReply as error:
        raise ValueError(str(error)) from None
    model = found.model if found else str(wanted)
    reference, tokenizer = _tokenizer(role, model, found.root if found else None, named)
    if found is not None:
        notices += _run(lambda: _check(address, role, found, tokenizer))
    name = model.rstrip("/").rpartition("/")[2] if model.startswith("/") else model
    fingerprint = probe.fingerprint(model, tokenizer)
    kind = found.kind if found else UNKNOWN
    spec = ModelSpec(name, reference.path_or_hub_id, reference.revision, fingerprint, server=kind)
    return ServedRole(spec, address.root, notices)


async def _find(address: ServerAddress, role: Role, wanted: str | None) -> probe.Found:
    connection = _connection(address, role)
    try:
        return await probe.find(connection, wanted)
    finally:
        await connection.close()


async def _check(address: ServerAddress, role: Role, found: probe.Found, tokenizer: HFTokenizer) -> list[str]:
    connection = _connection(address, role)
    try:
        return await probe.check(connection, found, tokenizer, tokenizer.num_tokens + PADDED_TOKENS)
    except (EngineDied, BadReply) as error:
        raise ValueError(str(error)) from None
    finally:
        await connection.close()


def _connection(address: ServerAddress, role: Role) -> Connection:
    return Connection(
        *(address, role, api_key(role)),
        attempts=_PROBE_ATTEMPTS,
        first_wait_seconds=0.2,
        reply_seconds=_PROBE_SECONDS,
    )


def _run(work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
    """Run a coroutine to its end in a thread, because the caller may be in an event loop itself, as in a notebook."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(work())).result()


def _tokenizer(role: Role, model: str, root: str | None, named: str | None) -> tuple[models.ModelRef, HFTokenizer]:
    """Return the tokenizer of a served model: the named one, or that of the model that the server calls so.

    Raises ValueError where there is none here.
    """
    reasons = []
    for name in [named] if named is not None else [model, *([root] if root else [])]:
        try:
            folder = models.folder_named(name)  # a folder of a tokenizer alone is none of a model
            path = str(folder.resolve()) if folder else None
            reference = models.ModelRef(name, path, None, None) if path else models.resolve(name)
            with hub.quick_failure():
                return reference, HFTokenizer(reference.path_or_hub_id, reference.revision)
        except (OSError, ValueError, models.ModelUnavailable) as error:
            reasons.append(" ".join(str(error).split())[:200])
    if named is not None:
        raise ValueError(
            f"--{role}-tokenizer {named}: no tokenizer of a known model, a hub id or a folder: {reasons[0]}"
        )
    raise ValueError(
        f"the {role}'s server calls its model {model!r}, and no tokenizer of that name is here: "
        f"--{role}-tokenizer with a known name, a hub id or a folder"
    )


def record(run: RunFolder, servers: Mapping[Role, str]) -> None:
    """Keep the addresses of a run's servers for its workers, where they differ from those before."""
    if servers and servers != recorded(run):
        append_record(
            run.servers_path,
            {"recorded_at": time.time(), **{str(role): url for role, url in servers.items()}},
            run.spec_id() or "",
        )


def recorded(run: RunFolder) -> dict[Role, str]:
    """Return the addresses of a run's servers, those that were recorded last."""
    records = list(read_records(run.servers_path, run.spec_id()))
    last = records[-1] if records else {}
    return {role: address for role in _ROLES if isinstance(address := last.get(role), str)}


def served_models(spec: RunSpec, servers: Mapping[Role, str]) -> Iterator[tuple[Role, ServedModel]]:
    """Yield what the engines of a run's served models are told, by role. Raises ValueError."""
    of_roles: tuple[tuple[Role, ModelSpec | None], ...] = (("draft", spec.draft), ("target", spec.target))
    for role, model in of_roles:
        if model is None or model.server is None:
            continue
        if role not in servers:
            raise ValueError(f"the address of the {role}'s server is not recorded: launch the run again with --{role}")
        address = ServerAddress.parse(flag(role), servers[role])
        kind = None if model.server == UNKNOWN else model.server
        yield role, ServedModel(address.root, kind, probe.model_of(model.fingerprint), model.fingerprint)
