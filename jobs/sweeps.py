"""Lists in a suite: a run whose flags have lists stands for every combination of their values.

[[run]]
method = ["specreason", "my.py:Mine"]
dataset = ["gsm8k", "my.jsonl"]
threshold = [3, 5, 7]             # 12 runs
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, get_origin

from harness.launch_options import Launch

_MOST_RUNS = 1000
"""Most runs that one [[run]] may stand for. More are a mistake, and reading them would take minutes."""
_REPEATED = {"parameter"} | {
    name
    for name, field in Launch.model_fields.items()
    if any(get_origin(part) is tuple for part in (field.annotation, *getattr(field.annotation, "__args__", ())))
}
"""Flags that take several values at once, so that a list of them is one setting."""


def expanded(flags: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the flags of every run that a table stands for, the first list's values changing slowest.

    Lists in the table `parameters` count too. Raises ValueError for an empty list and for too many runs.
    """
    parameters = flags.get("parameters")
    inner = parameters if isinstance(parameters, Mapping) else {}
    places = [(name, None) for name, value in flags.items() if _is_swept(name, value)]
    of_parameters = [(name, "parameters") for name, value in inner.items() if isinstance(value, list)]
    swept = [*places, *of_parameters]
    choices = [inner[name] if table else flags[name] for name, table in swept]
    number = 1
    for (name, _), values in zip(swept, choices, strict=True):
        if not values:
            raise ValueError(f"{name}: an empty list; valid: a value, or a list of the values to run")
        number *= len(values)
    if number > _MOST_RUNS:
        raise ValueError(f"lists of {number:,} combinations; valid: up to {_MOST_RUNS:,} runs in a [[run]]")
    for values in product(*choices):
        run, own = dict(flags), dict(inner)
        for (name, table), value in zip(swept, values, strict=True):
            (own if table else run)[name] = value
        yield {**run, "parameters": own} if of_parameters else run


def _is_swept(name: str, value: object) -> bool:
    return isinstance(value, list) and name.replace("-", "_") not in _REPEATED
