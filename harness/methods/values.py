"""The values of hyper-parameters as a user sets them: by name, in the type of their field, within its range."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from harness.methods import METHODS, defaults, parameter_fields
from harness.methods.ranges import flag

Parameter = int | float | str | bool
"""The value of a hyper-parameter."""


def switch_names() -> set[str]:
    """Return the hyper-parameters that are true or false, which have a flag `--no-...` as well."""
    return {p.name for method in METHODS for p in parameter_fields(method) if p.type is bool}


def parameter_names() -> list[str]:
    """Return the names of the hyper-parameters of all methods, each once."""
    return list(dict.fromkeys(name for method in METHODS for name in defaults(method)))


def method_parameters(method: str, values: Mapping[str, Any]) -> dict[str, Parameter]:
    """Return all hyper-parameters of a method: `values` where set, otherwise the method's defaults.

    Raises ValueError for an unknown method, for a parameter of another method, and for a value out of range.
    """
    if method not in METHODS:
        raise ValueError(f"--method {method}: unknown; valid: {', '.join(METHODS)}")
    own = defaults(method)
    for name in values:
        if name not in own:
            raise ValueError(
                f"{flag(name)} is not a parameter of {method}, which takes {', '.join(flag(n) for n in own) or 'none'}"
            )
    hints = {parameter.name: parameter.type for parameter in parameter_fields(method)}
    parameters = {**own, **{name: _parameter(name, hints[name], value) for name, value in values.items()}}
    METHODS[method](**parameters)
    return parameters


def _parameter(name: str, hint: Any, value: Any) -> Parameter:
    """Return a value in the type of its field. Raises ValueError."""
    try:
        if isinstance(value, bool) and hint is not bool:
            raise ValueError("expected a value, not true or false")
        parameter: Parameter = TypeAdapter(hint).validate_python(value)
    except ValidationError as error:
        raise ValueError(f"{flag(name)} {value}: {error.errors()[0]['msg']}") from error
    except ValueError as error:
        raise ValueError(f"{flag(name)}: {error}") from error
    return parameter
