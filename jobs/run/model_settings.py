"""What a launch says of each of its models, as the specification keeps it: nothing where it says nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.engine import Role
from harness.engines import libraries, registry
from harness.launch_flags import pairs
from harness.launch_options import PartialLaunch
from harness.methods.method import flag
from harness.weights.models import files_at_hand
from harness.weights.templates import NO_CONVENTIONS, Conventions, has_chat_template
from harness.weights.tokenizer import HFTokenizer
from jobs.run.spec import EngineSpec, ModelSpec

_ROLES: tuple[Role, ...] = ("draft", "target")
_OF_ONE_MODEL = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "engine", "template", "thinking_tags")
"""Flags that begin with the name of a model."""

NO_TEMPLATE = (
    "NO CHAT TEMPLATE: {role} {name} has none, so it reads a plain dialogue (User: …, Assistant: …). If it was trained "
    "with another format, add its chat_template.jinja to its folder."
)


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
    settings: dict[str, Any] = {}
    for role in (role for role in _ROLES if role in roles):
        settings[f"{role}_sampling"] = launch.sampling_of(role) or None
        settings[f"{role}_template"] = _variables(launch, role) or None
        settings[f"{role}_thinking_tags"] = getattr(launch, f"{role}_thinking_tags")
    return settings


def _variables(launch: PartialLaunch, role: Role) -> dict[str, Any]:
    return pairs(flag(f"{role}_template"), getattr(launch, f"{role}_template"))


def conventions_of(launch: PartialLaunch, role: Role) -> Conventions:
    """Return how a launch asks a model to be talked to; of a reward model it cannot say anything.

    Raises ValueError where a variable is given twice.
    """
    if role not in _ROLES:
        return NO_CONVENTIONS
    return Conventions.of(_variables(launch, role), getattr(launch, f"{role}_thinking_tags"))


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
    words = [f"{flag(f'{role}_template')} {word}" for word in getattr(launch, f"{role}_template")]
    tags = getattr(launch, f"{role}_thinking_tags")
    return " ".join([*words, *([f"{flag(f'{role}_thinking_tags')} {tags}"] if tags else [])])


def local_folder(model: ModelSpec) -> Path | None:
    """Return the folder of a model's files on this machine; None where there is none."""
    folder = files_at_hand(model.path, model.revision)
    is_cached = folder is not None and not Path(model.path).is_dir()
    return None if folder is None or (is_cached and not (folder / "config.json").is_file()) else folder


def engine_arguments(launch: PartialLaunch, roles: Collection[Role], kind: str) -> dict[str, Any]:
    """Return the fields of an EngineSpec that hold the arguments of each engine; none where none are given.

    Raises ValueError where an argument is not one of vLLM's, as far as this machine can tell, or of another engine.
    """
    given = {role: pairs(flag(f"{role}_engine"), getattr(launch, f"{role}_engine")) for role in _ROLES if role in roles}
    for role, table in given.items():
        if table and not registry.capabilities(kind).takes_arguments:
            raise ValueError(f"{flag(f'{role}_engine')} {next(iter(table))}: needs --engine vllm, not {kind}")
        libraries.check(role, table)
    return {f"{role}_arguments": table for role, table in given.items() if table}


def unchecked_notice(engine: EngineSpec) -> list[str]:
    """Return a line where the arguments of engines are not checked here, because vLLM is not installed."""
    if not any(engine.arguments.values()) or libraries.is_known_here():
        return []
    return [
        "ENGINE ARGUMENTS: vLLM is not installed here, so that the workers check --draft-engine and --target-engine."
    ]


def _shown(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
