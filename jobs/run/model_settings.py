"""What a launch says of each of its models, as the specification keeps it: nothing where it says nothing."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.engine import Role
from harness.engines import libraries, registry
from harness.settings.launch_settings import PartialLaunch
from harness.settings.roles import SAMPLING, ModelSettings, role_flag
from harness.weights.models import files_at_hand
from harness.weights.templates import NO_CONVENTIONS, Conventions, has_chat_template
from harness.weights.tokenizer import HFTokenizer
from jobs.run.spec import ModelSpec

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


def recorded(launch: PartialLaunch, role: Role, kind: str) -> dict[str, Any]:
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
