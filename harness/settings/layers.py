"""How flags, a configuration file, a suite, a paper's preset and a cluster's profile combine into one launch.

A layer is a mapping by flag name, in any spelling and without the dashes in front: what was typed, a file, the table of
a run. Layers are merged key by key, those of a role's table too.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from os.path import expandvars
from pathlib import Path
from typing import Any

from harness.cli.messages import did_you_mean
from harness.cli.toml_file import read_toml
from harness.settings.declaration import BadLaunch, flag, from_toml, in_one_line, settings_of, validated
from harness.settings.launch_settings import SBATCH_NAMES, Launch, PartialLaunch, own_parameters
from harness.settings.roles import DOTTED_NAMES, ROLE_SETTINGS, flattened, nested, role_flag, spelled


@cache
def presets() -> Mapping[str, Mapping[str, Any]]:
    """Return the papers' settings by name (harness/papers/presets.toml); keys are flat flag names."""
    text = resources.files("harness.papers").joinpath("presets.toml").read_text(encoding="utf-8")
    return {name: flattened(values) for name, values in tomllib.loads(text).items()}


LAUNCH = "launch"
"""Table of a cluster's profile: the flags that launches with it have unless they say otherwise."""


def profile(name: str) -> dict[str, Any]:
    """Read a cluster's profile by the name of its file in slurm/clusters, or by path. Raises ValueError."""
    bundled, own = resources.files("jobs") / "examples" / "clusters", Path("slurm/clusters")
    files = [*bundled.iterdir(), *(own.iterdir() if own.is_dir() else [])]
    profiles = {file.name.removesuffix(".toml"): file for file in files if file.name.endswith(".toml")}
    path: Traversable = profiles.get(name) or Path(name)
    if not path.is_file():
        raise ValueError(f"--profile {name}: no such file; the available profiles are: {', '.join(sorted(profiles))}")
    return {key.replace("_", "-"): value for key, value in read_toml(path, f"--profile {path}").items()}


def flags_of_profile(name: str | None) -> dict[str, Any]:
    """Return the table [launch] of a profile: the folder of run folders, with its variables. Raises BadLaunch."""
    if name is None:
        return {}
    try:
        table = profile(name).get(LAUNCH, {})
    except ValueError as error:
        raise BadLaunch(str(error)) from error
    if not isinstance(table, Mapping) or not table.keys() <= {"output"}:
        raise BadLaunch(f"--profile {name}: [{LAUNCH}] has one key, output, the folder of run folders")
    found = {key: expandvars(str(value)) for key, value in table.items()}
    if "$" in found.get("output", ""):
        raise BadLaunch(f"--profile {name}: [{LAUNCH}] output {found['output']}: a variable in it is not set here")
    return found


def method_among(layers: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the method that flags name, the first layer first, and the preset that they name last; else None."""
    preset = next((layer["preset"] for layer in layers if layer.get("preset")), None)
    settings = presets().get(str(preset), {})
    method = next((layer["method"] for layer in (*layers, settings) if layer.get("method")), None)
    return None if method is None else str(method)


def merged_flags(flags: Mapping[str, Any], further_names: Collection[str] = ()) -> dict[str, Any]:
    """Return `flags` on top of the configuration file that they name, on top of the preset that either of them names.

    Below them all is the table [launch] of the profile that is named. By flat name. `further_names`: keys that the file
    may hold beside the flags of a launch. Raises BadLaunch.
    """
    from harness.methods import parameter_names
    from harness.methods.references import resolve
    from harness.sizing.memory import without_replaced

    try:
        own = flattened(flags)
    except ValueError as error:
        raise BadLaunch(str(error)) from error
    config = own.pop("config", None)
    layers = [(str(config), _read_config(Path(config)))] if config is not None else []
    named = [own, *(layer for _, layer in layers)]
    preset = next((layer["preset"] for layer in named if layer.get("preset")), None)
    if preset is not None:
        if preset not in presets():
            hint = did_you_mean(str(preset), presets())
            raise BadLaunch(f"--preset {preset}: unknown; valid: {', '.join(presets())}{hint}")
        layers.insert(0, (f"preset {preset}", dict(presets()[preset])))
    cluster = next((layer["profile"] for layer in named if layer.get("profile")), None)
    if cluster is not None:
        layers.insert(0, (f"profile {cluster}", flags_of_profile(str(cluster))))
    reference = method_among(named)
    parameters: dict[str, Any] = {}
    try:
        method = None if reference is None else resolve(reference)
        for layer in (*(layer for _, layer in layers), own):
            parameters |= own_parameters(layer, method)
    except ValueError as error:
        raise BadLaunch(str(error)) from error
    valid = {*settings_of(Launch), *ROLE_SETTINGS, *SBATCH_NAMES, *further_names}
    for source, layer in layers:
        for name in layer:
            if name not in valid:
                hint = did_you_mean(name, {*valid, *DOTTED_NAMES, *parameter_names(method), "parameter", "parameters"})
                raise BadLaunch(f"{source}: unknown key {name!r}{hint}; the keys are the flags without the dashes")
    if config is not None:
        _check_values(*layers[-1])
    merged: dict[str, Any] = {}
    for layer in (*(layer for _, layer in layers), own):
        merged = {**without_replaced(merged, layer), **layer}
    return {**merged, **({"parameters": parameters} if parameters else {})}


def _check_values(source: str, layer: Mapping[str, Any]) -> None:
    """Raise BadLaunch, which names the file, where a value of one is not valid."""
    from pydantic import ValidationError

    values = {name: from_toml(value) for name, value in layer.items() if name not in SBATCH_NAMES}
    try:
        validated(PartialLaunch, nested(values))
    except ValidationError as error:
        raise BadLaunch(f"{source}: {in_one_line(error, role_flag)}") from error


def launch_from(flags: Mapping[str, Any]) -> Launch:
    """Build a launch from flags, with the preset and the configuration file that they name. Raises BadLaunch."""
    return Launch.from_flags(merged_flags(flags))


def with_files_beside(flags: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the flags of a file in a folder with the files that they name by their paths.

    A method, problems or prompts are looked for beside the file that names them, and where they are not there, in the
    current folder.
    """
    from harness.methods.references import beside
    from harness.problems import sources

    found = dict(flags)
    if isinstance(flags.get("method"), str):
        found["method"] = beside(flags["method"], folder)
    for name in ("dataset", "prompts"):
        named = flags.get(name)
        is_file = isinstance(named, str) and (name == "prompts" or sources.is_own(named))
        if is_file and (folder / str(named)).exists():
            found[name] = str(folder / str(named))
    return found


def arguments(flags: Mapping[str, Any]) -> list[str]:
    """Return flags as the words of a command line: a list repeats its flag, true is a bare flag."""
    from harness.methods import switch_names
    from harness.methods.references import resolve

    flat = flattened(flags)
    negatable = {"logprobs", *switch_names(resolve(str(flat["method"])) if flat.get("method") else None)}
    own = flat.pop("parameters", {})
    found = [word for name, value in own.items() for word in ("--parameter", f"{name}={value}")]
    for name, value in flat.items():
        words = [f"{key}={one}" for key, one in value.items()] if isinstance(value, Mapping) else value
        for item in words if isinstance(words, list | tuple) else [words]:
            if item is True:
                found.append(spelled(name))
            elif item is not False:
                found += [spelled(name), str(item)]
            elif name in negatable:
                found.append(flag(f"no_{name}"))
    return found


def _read_config(path: Path) -> dict[str, Any]:
    try:
        content = read_toml(path, f"--config {path}")
    except ValueError as error:
        raise BadLaunch(str(error)) from error
    try:
        return with_files_beside(flattened(content), path.parent)
    except ValueError as error:
        raise BadLaunch(f"--config {path}: {error}") from error
