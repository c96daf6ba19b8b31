"""What a launch says of each of its models, as the specification keeps it: nothing where it says nothing."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from harness.engine import Role
from harness.engines import arguments
from harness.launch_flags import pairs
from harness.launch_options import PartialLaunch
from harness.methods.ranges import flag
from jobs.run.spec import EngineSpec

_ROLES: tuple[Role, ...] = ("draft", "target")
_OF_ONE_MODEL = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "engine")
"""Flags that begin with the name of a model."""


def check_used(launch: PartialLaunch, roles: Collection[Role]) -> None:
    """Raise ValueError where a flag is for a model that the method does not use."""
    for role in _ROLES:
        for name in _OF_ONE_MODEL:
            value = getattr(launch, f"{role}_{name}")
            if role not in roles and value not in (None, ()):
                raise ValueError(f"{flag(f'{role}_{name}')} {_shown(value)}: {unused(launch, role)}")


def unused(launch: PartialLaunch, role: Role) -> str:
    """Return in words that the method of a launch writes nothing with a model."""
    other = next(other for other in _ROLES if other != role)
    model = f" --model {launch.parameters['model']}" if "model" in launch.parameters else ""
    return f"{launch.method}{model} writes with the {other} alone; leave it out"


def of_models(launch: PartialLaunch, roles: Collection[Role]) -> dict[str, Any]:
    """Return the fields of a RunSpec that hold the settings of each model."""
    return {f"{role}_sampling": launch.sampling_of(role) or None for role in _ROLES if role in roles}


def engine_arguments(launch: PartialLaunch, roles: Collection[Role], kind: str) -> dict[str, Any]:
    """Return the fields of an EngineSpec that hold the arguments of each engine; none where none are given.

    Raises ValueError where an argument is not one of vLLM's, as far as this machine can tell, or of another engine.
    """
    given = {role: pairs(flag(f"{role}_engine"), getattr(launch, f"{role}_engine")) for role in _ROLES if role in roles}
    for role, table in given.items():
        if table and kind != "vllm":
            raise ValueError(f"{flag(f'{role}_engine')} {next(iter(table))}: needs --engine vllm, not {kind}")
        arguments.check(role, table)
    return {f"{role}_arguments": table for role, table in given.items() if table}


def unchecked_notice(engine: EngineSpec) -> list[str]:
    """Return a line where the arguments of engines are not checked here, because vLLM is not installed."""
    if not any(engine.arguments.values()) or arguments.is_known_here():
        return []
    return [
        "ENGINE ARGUMENTS: vLLM is not installed here, so that the workers check --draft-engine and --target-engine."
    ]


def _shown(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
