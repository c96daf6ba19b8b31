"""Merge flags, a configuration file, a preset and a cluster profile into one launch.

A layer maps flag names, in any spelling and without leading dashes, to values. Layers are merged key by key, including
the keys of role tables.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from os.path import expandvars
from pathlib import Path

from harness.cli.messages import did_you_mean
from harness.cli.toml_file import read_toml
from harness.settings.declaration import Flags, Value, flag
from harness.settings.launch_settings import Launch, PartialLaunch, method_named, own_parameters
from harness.settings.roles import flattened, spelled


@cache
def presets() -> Mapping[str, Flags]:
    """Return the presets by name (harness/papers/presets.toml); keys are flat flag names."""
    text = resources.files("harness.papers").joinpath("presets.toml").read_text(encoding="utf-8")
    return {name: flattened(values) for name, values in tomllib.loads(text).items()}


LAUNCH = "launch"
"""Table of a cluster profile with default flags of launches."""


def profile(name: str) -> dict[str, Value]:
    """Read a cluster profile by name (a file in slurm/clusters) or path. Raises ValueError."""
    bundled, own = resources.files("jobs") / "examples" / "clusters", Path("slurm/clusters")
    files = [*bundled.iterdir(), *(own.iterdir() if own.is_dir() else [])]
    profiles = {file.name.removesuffix(".toml"): file for file in files if file.name.endswith(".toml")}
    path: Traversable = profiles.get(name) or Path(name)
    if not path.is_file():
        known = ", ".join(sorted(profiles))
        create = "python -m jobs example profile > mycluster.toml"
        raise ValueError(f"--profile {name}: no such file; valid: {known}, or a file; to create one: {create}")
    return {key.replace("_", "-"): value for key, value in read_toml(path, f"--profile {path}").items()}


def flags_of_profile(name: str | None) -> dict[str, Value]:
    """Return a profile's table [launch], with environment variables expanded. Raises ValueError."""
    if name is None:
        return {}
    table = profile(name).get(LAUNCH, {})
    if not isinstance(table, Mapping) or not all(
        key == "output" and isinstance(value, str) and value for key, value in table.items()
    ):
        raise ValueError(f"--profile {name}: [{LAUNCH}] allows only the key output (parent folder of runs, a string)")
    found: dict[str, Value] = {key: expandvars(str(value)) for key, value in table.items()}
    if "$" in str(found.get("output", "")):
        raise ValueError(f"--profile {name}: [{LAUNCH}] output {found['output']}: undefined environment variable")
    return found


def method_among(layers: Sequence[Flags]) -> str | None:
    """Return the method from the first layer that sets one, otherwise from the preset; None if there is none."""
    preset = next((layer["preset"] for layer in layers if layer.get("preset")), None)
    settings = presets().get(str(preset), {})
    method = next((layer["method"] for layer in (*layers, settings) if layer.get("method")), None)
    return None if method is None else str(method)


def merged_flags(flags: Flags) -> dict[str, Value]:
    """Merge flags with the layers that they refer to; return values by flat name. Raises ValueError.

    Precedence, from the highest: flags, configuration file, preset, table [launch] of the profile.
    """
    from harness.sizing.memory import without_replaced

    own = flattened(flags)
    layers = [own]
    if (config := own.pop("config", None)) is not None:
        layers.insert(0, config_of(str(config)))
    if named := [str(layer["preset"]) for layer in layers if layer.get("preset")]:
        preset = named[-1]
        if preset not in presets():
            hint = did_you_mean(preset, presets())
            raise ValueError(f"--preset {preset}: unknown; valid: {', '.join(presets())}{hint}")
        layers.insert(0, dict(presets()[preset]))
    if clusters := [str(layer["profile"]) for layer in layers if layer.get("profile")]:
        layers.insert(0, flags_of_profile(clusters[-1]))
    reference = method_among(list(reversed(layers)))
    method = None if reference is None else method_named(reference)
    if config is not None:
        try:
            PartialLaunch.from_flags({**layers[-2], "method": method})
        except ValueError as error:
            raise ValueError(f"{config}: {error}") from error
    parameters: dict[str, Value] = {}
    merged: dict[str, Value] = {}
    for layer in layers:
        parameters |= own_parameters(layer, method)
        merged = {**without_replaced(merged, layer), **layer}
    return {**merged, **({"parameters": parameters} if parameters else {})}


def launch_from(flags: Flags) -> Launch:
    """Build a launch from flags and their configuration file, preset and profile. Raises ValueError."""
    return Launch.from_flags(merged_flags(flags))


def with_files_beside(flags: Flags, folder: Path) -> dict[str, Value]:
    """Resolve file references in flags read from a file in `folder`.

    Methods, graders, problems and prompts are looked up first in `folder`, then in the current folder.
    """
    from harness.methods.references import beside
    from harness.problems import sources

    found = dict(flags)
    for name in ("method", "grader"):
        if isinstance(reference := flags.get(name), str):
            found[name] = beside(reference, folder)
    for name in ("dataset", "prompts"):
        named = flags.get(name)
        is_file = isinstance(named, str) and (name == "prompts" or sources.is_own(named))
        if is_file and (folder / str(named)).exists():
            found[name] = str(folder / str(named))
    return found


def arguments(flags: Flags) -> list[str]:
    """Convert flags to command-line words: lists repeat their flag, booleans are bare flags."""
    flat, found = flattened(flags), list[str]()
    if isinstance(own := flat.pop("parameters", {}), Mapping):
        flat |= own
    for name, value in flat.items():
        words = [f"{key}={one}" for key, one in value.items()] if isinstance(value, Mapping) else value
        for item in words if isinstance(words, list | tuple) else [words]:
            if isinstance(item, bool):
                found.append(spelled(name) if item else flag(f"no_{name}"))
            else:
                found += [spelled(name), str(item)]
    return found


def config_of(file: str) -> dict[str, Value]:
    """Return the flags of a configuration file. Raises ValueError."""
    path = Path(file)
    content = read_toml(path, f"--config {path}")
    try:
        return with_files_beside(flattened(content), path.parent)
    except ValueError as error:
        raise ValueError(f"--config {path}: {error}") from error
