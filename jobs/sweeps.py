"""Lists in a suite: a run whose flags have lists stands for every combination of their values.

[[run]]
method = ["specreason", "my.py:Mine"]
dataset = ["gsm8k", "my.jsonl"]
threshold = [3, 5, 7]             # 12 runs
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from harness.settings.declaration import ROLES, settings_of
from harness.settings.launch_settings import Launch
from harness.settings.roles import ROLE_SETTINGS, flattened

_REPEATED = {
    "parameter",
    *(name for name, setting in settings_of(Launch).items() if setting.is_repeated),
    *(name for name, one in ROLE_SETTINGS.items() if one.setting.is_repeated),
}
"""Flags that take several values at once, so that a list of them is one setting."""


def expanded(flags: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the flags of every run that a table stands for, the first list's values changing slowest.

    Lists in the table `parameters` count too. Raises ValueError for an empty list.
    """
    swept, inner = _swept(flags), _parameters(flags)
    for (name, _), values in swept.items():
        if not values:
            raise ValueError(f"{name}: an empty list; valid: a value, or a list of the values to run")
    for values in product(*swept.values()):
        run, own = dict(flags), dict(inner)
        for (name, is_parameter), value in zip(swept, values, strict=True):
            (own if is_parameter else run)[name] = value
        models = {str(role): run.pop(role) for role in ROLES if isinstance(run.get(role), Mapping)}
        run |= flattened(models)
        yield {**run, "parameters": own} if any(is_parameter for _, is_parameter in swept) else run


def _swept(flags: Mapping[str, Any]) -> dict[tuple[str, bool], Sequence[Any]]:
    """Return the lists of values by flag, and whether it is one of the table `parameters`."""
    own = {(name, False): value for name, value in flags.items() if _is_swept(name, value)}
    return own | {(name, True): value for name, value in _parameters(flags).items() if isinstance(value, list)}


def _parameters(flags: Mapping[str, Any]) -> Mapping[str, Any]:
    parameters = flags.get("parameters")
    return parameters if isinstance(parameters, Mapping) else {}


def _is_swept(name: str, value: object) -> bool:
    return isinstance(value, list) and name.replace("-", "_") not in _REPEATED
