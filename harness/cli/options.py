"""The launcher's flags as click options, and how flags, a configuration file and a preset combine.

Every flag is declared once: in `harness.launch_options`, or, for a hyper-parameter, as a field of its method.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

import annotated_types
import click
from click.core import ParameterSource
from pydantic.fields import FieldInfo

from harness.cli.completions import COMPLETIONS
from harness.cli.method_options import HEADING, chosen_method, literal_choices, method_among, parameter_options
from harness.cli.presets import presets
from harness.cli.toml_file import read_toml
from harness.launch_options import RESERVED, SBATCH, BadLaunch, Flag, Launch
from harness.methods.method import flag
from harness.methods.parameters import assignments, parameter_names, switch_names
from harness.methods.references import beside, resolve
from harness.problems import own_problems
from harness.sizing.cards import without_replaced

GROUPS: Mapping[str, str] = {
    "run": "Run",
    "models": "Models",
    "sampling": "Sampling",
    "method": HEADING,
    "engine": "Engine",
    "cluster": "Cluster",
    "output": "Output",
}
"""The headings of `--help`, in order."""


class GroupedOption(click.Option):
    """An option that `--help` lists under a heading of its group."""

    def __init__(self, declarations: list[str], *, group: str, **settings: Any) -> None:
        super().__init__(declarations, **settings)
        self.heading = GROUPS[group]


def launch_options(method: str | None = None) -> list[click.Option]:
    """Return one option for each flag of a launch, in the order of `--help`.

    The hyper-parameters are those of all built-in methods, or of one (see `parameter_options`).
    """
    options = [option for name, field in Launch.model_fields.items() for option in _field_options(name, field)]
    config = GroupedOption(
        ["--config"],
        group="run",
        type=click.Path(exists=True, path_type=Path),
        help="TOML file of flags without their dashes; flags on the command line take precedence.",
    )
    parameter = GroupedOption(
        ["--parameter"],
        group="method",
        multiple=True,
        metavar="NAME=VALUE",
        help="Set a hyper-parameter of the method, also one that is called like another flag; may be repeated.",
    )
    return [*options, config, parameter, *parameter_options(method), *_sbatch_options()]


def typed_flags(context: click.Context) -> dict[str, Any]:
    """Return what was typed on the command line, by flag name with underscores; defaults are left out."""
    typed = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
    return {name: value for name, value in context.params.items() if context.get_parameter_source(name) in typed}


def parsed_flags(words: Sequence[str]) -> dict[str, Any]:
    """Return the flags of a launch among the words of a command line, by name. Raises click.UsageError."""
    try:
        options = launch_options(chosen_method(words))
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    command = click.Command("harness.launch", params=list[click.Parameter](options), add_help_option=False)
    return typed_flags(command.make_context("harness.launch", list(words)))


def merged_flags(flags: Mapping[str, Any], further_names: Collection[str] = ()) -> dict[str, Any]:
    """Return `flags` on top of the configuration file that they name, on top of the preset that either of them names.

    `further_names`: keys that the file may hold beside the flags of a launch. Raises BadLaunch.
    """
    own_flags = _underscored(flags)
    config = own_flags.pop("config", None)
    layers = [(str(config), _read_config(Path(config)))] if config is not None else []
    named = [own_flags, *(layer for _, layer in layers)]
    preset = next((layer["preset"] for layer in named if layer.get("preset")), None)
    if preset is not None:
        if preset not in presets():
            raise BadLaunch(f"--preset {preset}: unknown; valid: {', '.join(presets())}")
        layers.insert(0, (f"preset {preset}", dict(presets()[preset])))
    reference = method_among(named)
    try:
        method = None if reference is None else resolve(reference)
        flat_names = set(parameter_names(method)) - RESERVED
        layers = [(source, _with_parameters_flat(layer, flat_names)) for source, layer in layers]
        own_flags = _with_parameters_flat(own_flags, flat_names)
    except ValueError as error:
        raise BadLaunch(str(error)) from error
    valid_names = {option.name for option in launch_options(method)} - {"config"} | {"parameters", *further_names}
    valid_names |= {f"no_{name}" for name in switch_names(method)}
    for source, layer in layers:
        for name in layer:
            if name not in valid_names:
                raise BadLaunch(f"{source}: unknown key {name!r}; the keys are the flags without the dashes")
    every = [*(layer for _, layer in layers), own_flags]
    merged: dict[str, Any] = {}
    for layer in every:
        merged = {**without_replaced(merged, layer), **layer}
    parameters = {name: value for layer in every for name, value in layer.get("parameters", {}).items()}
    return {**merged, **({"parameters": parameters} if parameters else {})}


def _with_parameters_flat(layer: Mapping[str, Any], flat_names: Collection[str]) -> dict[str, Any]:
    """Return flags with the values of `--parameter` and of the table `parameters` among them.

    `flat_names`: those that have flags of their own; the others stay in the table. Raises ValueError where one is set
    twice.
    """
    flat = dict(layer)
    table = flat.pop("parameters", {})
    if not isinstance(table, Mapping):
        raise ValueError("parameters: expected a table of hyper-parameters by name")
    named: dict[str, Any] = {}
    for name, value in [*_underscored(table).items(), *assignments(flat.pop("parameter", ())).items()]:
        if name in named or (name in flat and name in flat_names):
            raise ValueError(f"--parameter {name}: set twice")
        named[name] = value
    others = {name: value for name, value in named.items() if name not in flat_names}
    flat |= {name: value for name, value in named.items() if name in flat_names}
    return {**flat, **({"parameters": others} if others else {})}


def with_files_beside(flags: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the flags of a file in a folder with the files that they name by their paths.

    A method, problems or prompts are looked for beside the file that names them, and where they are not there, in the
    current folder.
    """
    found = dict(flags)
    if isinstance(flags.get("method"), str):
        found["method"] = beside(flags["method"], folder)
    for name in ("dataset", "prompts"):
        named = flags.get(name)
        is_file = isinstance(named, str) and (name == "prompts" or own_problems.is_own(named))
        if is_file and (folder / str(named)).exists():
            found[name] = str(folder / str(named))
    return found


def launch_from(flags: Mapping[str, Any]) -> Launch:
    """Build a launch from flat flags, with the preset and the configuration file that they name. Raises BadLaunch."""
    return Launch.from_flags(merged_flags(flags))


def arguments(flags: Mapping[str, Any]) -> list[str]:
    """Return flags as the words of a command line: a list repeats its flag, true is a bare flag."""
    method = resolve(str(flags["method"])) if flags.get("method") else None
    negatable = {option.name for option in launch_options(method) if option.secondary_opts}
    table = {name: value for name, value in flags.items() if name == "parameters" and isinstance(value, Mapping)}
    words = [word for values in table.values() for n, v in values.items() for word in ("--parameter", f"{n}={v}")]
    for name, value in flags.items():
        if name in table:
            continue
        for item in value if isinstance(value, list) else [value]:
            if item is True:
                words.append(flag(name))
            elif item is not False:
                words += [flag(name), str(item)]
            elif name.replace("-", "_") in negatable:
                words.append(flag(f"no-{name}"))
    return words


def _read_config(path: Path) -> dict[str, Any]:
    try:
        flags = _underscored(read_toml(path, f"--config {path}"))
    except ValueError as error:
        raise BadLaunch(str(error)) from error
    return with_files_beside(flags, path.parent)


def _underscored(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace("-", "_"): value for name, value in values.items()}


def _field_options(name: str, field: FieldInfo) -> Iterator[click.Option]:
    """Yield the option of a field; a field without a `Flag` has none."""
    declared = next((item for item in field.metadata if isinstance(item, Flag)), None)
    if declared is None:
        return
    settings: dict[str, Any] = {"help": declared.help + _shown_default(declared, field)}
    value_type = _without_none(field.annotation)
    names = [flag(name), name]
    if field.annotation == bool | None:
        names[0] = f"{flag(name)}/{flag(f'no-{name}')}"
        settings["default"] = None
    elif value_type is bool:
        settings["is_flag"] = True
    else:
        settings |= {"type": _click_type(name, value_type, field.metadata), "multiple": get_origin(value_type) is tuple}
        settings |= {"metavar": declared.metavar} if declared.metavar else {}
    yield GroupedOption(names, group=declared.group, shell_complete=COMPLETIONS.get(name), **settings)


def _shown_default(declared: Flag, field: FieldInfo) -> str:
    if declared.default is not None:
        return f"  [default: {declared.default}]"
    if field.is_required() or field.default is None or field.default is False or field.default == ():
        return ""
    return f"  [default: {field.default}]"


def _without_none(annotation: Any) -> Any:
    if get_origin(annotation) in (Union, UnionType):
        [value_type] = (member for member in get_args(annotation) if member is not type(None))
        return value_type
    return annotation


def _click_type(name: str, value_type: Any, constraints: Iterable[Any]) -> Any:
    names = {"preset": tuple(presets())}
    if choices := names.get(name) or literal_choices(value_type):
        return click.Choice(choices)
    if get_origin(value_type) is tuple:
        return str
    if value_type is Path:
        return click.Path(path_type=Path)
    bounds: dict[str, Any] = {}
    for constraint in constraints:
        if isinstance(constraint, annotated_types.Ge):
            bounds["min"] = constraint.ge
        elif isinstance(constraint, annotated_types.Gt):
            bounds |= {"min": constraint.gt, "min_open": True}
        elif isinstance(constraint, annotated_types.Le):
            bounds["max"] = constraint.le
    if bounds:
        return click.IntRange(**bounds) if value_type is int else click.FloatRange(**bounds)
    return value_type


def _sbatch_options() -> list[click.Option]:
    """Return the common options of sbatch as flags; any other goes through `--slurm KEY=VALUE`."""
    return [
        GroupedOption([flag(word), word.replace("-", "_")], group="cluster", help=f"Slurm: {text}")
        for word, text in SBATCH.items()
    ]
