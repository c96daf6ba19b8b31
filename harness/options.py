"""The launcher's flags: what a person may type, in the field's words, and how flags, file and preset combine.

A method's hyper-parameters become flags by themselves: the fields of its dataclass. Light: no torch, vllm,
transformers or datasets.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import click
from click.core import ParameterSource

from harness.methods import METHODS, defaults

ENGINES = ("auto", "vllm", "transformers", "scripted")
SPEC_DECODE = ("none", "draft", "ngram")
CLUSTERS = ("auto", "slurm", "local", "debug")
SBATCH = {
    "partition": "partition.",
    "account": "account to charge.",
    "qos": "quality of service.",
    "time": "limit of one start, as sbatch writes it; a run goes on behind it.  [default: 4:00:00]",
    "gpus-per-node": "GPUs of a worker.",
    "cpus-per-task": "CPU cores of a worker.",
    "mem": "memory of a worker, e.g. 200G.",
    "constraint": "features that a node must have.",
    "exclude": "nodes not to use.",
    "nodelist": "nodes to use.",
    "gres": "generic resources, where gpus-per-node does not fit the site.",
    "reservation": "reservation to use.",
}
"""Words of sbatch that are flags of the launcher, and what they mean."""


def flag(name: str) -> str:
    """`guidance_tokens` → `--guidance-tokens`."""
    return "--" + name.replace("_", "-")


def arguments(flags: Mapping[str, Any]) -> list[str]:
    """Flags by name as the launcher's command line takes them: a list repeats its flag, true is a bare one."""
    negated = {name for option in method_options() if option.secondary_opts for name in [option.name]}
    found: list[str] = []
    for name, value in flags.items():
        for one in value if isinstance(value, list) else [value]:
            if one is True:
                found.append(flag(name))
            elif one is not False:
                found += [flag(name), str(one)]
            elif name.replace("-", "_") in negated:
                found.append(flag(f"no-{name}"))
    return found


def presets() -> dict[str, dict[str, Any]]:
    """The papers' settings by name; keys are option names with underscores."""
    text = resources.files("harness.papers").joinpath("presets.toml").read_text(encoding="utf-8")
    return {name: _underscored(values) for name, values in tomllib.loads(text).items()}


def slurm_options() -> list[click.Option]:
    """sbatch's own words as flags, the common ones; the rest goes through `--slurm KEY=VALUE`."""
    return [click.Option([f"--{word}", word.replace("-", "_")], help=f"Slurm: {text}") for word, text in SBATCH.items()]


def method_options() -> list[click.Option]:
    """One option per hyper-parameter of any method; which method takes it is checked once the method is known."""
    owners: dict[str, list[str]] = {}
    for method in METHODS:
        for name in defaults(method):
            owners.setdefault(name, []).append(method)
    return [_method_option(name, methods) for name, methods in owners.items()]


def method_parameters(method: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The method's hyper-parameters, the given ones on top of the defaults.

    Raises click.UsageError where a given one belongs to another method or its value is out of range.
    """
    own = defaults(method)
    every = {name for other in METHODS for name in defaults(other)}
    for name in sorted(set(given) - set(own)):
        if name in every:
            takes = ", ".join(flag(n) for n in own)
            raise click.UsageError(f"{flag(name)} is no parameter of {method}, which takes {takes}")
    params = {**own, **{name: given[name] for name in own if name in given}}
    try:
        METHODS[method](**params)
    except ValueError as wrong:
        raise click.UsageError(str(wrong)) from wrong
    return params


def settled(context: click.Context, preset: str | None, config: Path | None) -> dict[str, Any]:
    """Every option's value: command line, then configuration file, then preset, then default.

    A hyper-parameter that nobody gave is left out, so that the method's own default stands.
    """
    layers: list[tuple[str, dict[str, Any]]] = []
    if config is not None:
        layers.append((str(config), _read_config(config)))
    if preset is not None:
        layers.append((f"preset {preset}", presets()[preset]))
    known = {p.name: p for p in context.command.params}
    for where, layer in layers:
        for name in layer:
            if name not in known:
                raise click.UsageError(f"{where}: unknown key {name!r}; the keys are the flags without the dashes")
    chosen: dict[str, Any] = {}
    for name, parameter in known.items():
        if name is None:
            continue
        value = context.params.get(name)
        if context.get_parameter_source(name) in (ParameterSource.DEFAULT, None):
            given = next((layer[name] for _, layer in layers if name in layer), None)
            value = value if given is None else parameter.type_cast_value(context, given)
        chosen[name] = value
    for option in method_options():
        if option.name is not None and chosen.get(option.name) is None:
            chosen.pop(option.name, None)
    return chosen


def _read_config(path: Path) -> dict[str, Any]:
    try:
        return _underscored(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as wrong:
        raise click.UsageError(f"--config {path}: not a readable TOML file: {wrong}") from wrong


def _underscored(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key.replace("-", "_"): value for key, value in values.items()}


def _method_option(name: str, methods: Sequence[str]) -> click.Option:
    method = METHODS[methods[0]]
    hint = get_type_hints(method)[name]
    default = "; ".join(f"{m}: {defaults(m)[name]}" for m in methods)
    text = f"{'/'.join(methods)}.  [default: {default}]"
    if hint is bool:
        return click.Option([f"{flag(name)}/--no-{name.replace('_', '-')}", name], default=None, help=text)
    choices = get_args(hint) if get_origin(hint) is Literal else ()
    kind: Any = click.Choice([str(c) for c in choices]) if choices else hint
    return click.Option([flag(name), name], type=kind, default=None, help=text)
