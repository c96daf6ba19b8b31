"""The values of hyper-parameters as a user sets them: by name, in the type of their field, within its range."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from harness.methods import METHODS, build, defaults, is_known, parameter_fields
from harness.methods.method import Parameter, flag


def switch_names(method: str | None = None) -> set[str]:
    """Return the hyper-parameters that are true or false, which have a flag `--no-...` as well.

    They are those of the built-in methods, but of `method` alone where it has a parameter of the same name.
    """
    switches = {p.name for built_in in METHODS for p in parameter_fields(built_in) if p.type is bool}
    own = parameter_fields(method) if method is not None else ()
    return (switches - {p.name for p in own}) | {p.name for p in own if p.type is bool}


def parameter_names(method: str | None = None) -> list[str]:
    """Return the names of the hyper-parameters of `method` and of all built-in methods, each once."""
    methods = [*([method] if method is not None else []), *METHODS]
    return list(dict.fromkeys(name for each in methods for name in defaults(each)))


def method_parameters(
    method: str, values: Mapping[str, Parameter], reserved: Collection[str] = ()
) -> dict[str, Parameter]:
    """Return all hyper-parameters of a method: `values` where set, otherwise the method's defaults.

    `reserved`: names of parameters that have no flag of their own. Raises ValueError for an unknown method, for a
    parameter of another method, and for a value out of range.
    """
    if not is_known(method):
        raise ValueError(f"--method {method}: unknown; valid: {', '.join(METHODS)}")
    own = defaults(method)
    shown = {name: f"--parameter {name}=..." if name in reserved else flag(name) for name in own}
    for name in values:
        if name not in own:
            raise ValueError(
                f"{flag(name)} is not a parameter of {method}, which takes {', '.join(shown.values()) or 'none'}"
            )
    hints = {parameter.name: parameter.type for parameter in parameter_fields(method)}
    parameters = {**own, **{name: _parameter(shown[name], hints[name], value) for name, value in values.items()}}
    try:
        build(method, parameters)
    except ValueError:
        raise
    except Exception as error:  # a user's own method may raise anything
        raise ValueError(f"method {method} does not take these parameters: {type(error).__name__}: {error}") from error
    return parameters


def assignments(words: object) -> dict[str, str]:
    """Return what `--parameter NAME=VALUE` sets, by name, from its values. Raises ValueError."""
    found: dict[str, str] = {}
    for word in words if isinstance(words, list | tuple) else [words]:
        name, equals, value = str(word).partition("=")
        name = name.strip().removeprefix("--").replace("-", "_")
        if not (equals and name):
            raise ValueError(f"--parameter {word}: expected NAME=VALUE")
        if name in found:
            raise ValueError(f"--parameter {name}: set twice")
        found[name] = value.strip()
    return found


def _parameter(shown: str, hint: Any, value: Any) -> Parameter:
    """Return a value in the type of its field; `shown` names it in messages. Raises ValueError."""
    try:
        if isinstance(value, bool) and hint is not bool:
            raise ValueError("expected a value, not true or false")
        parameter: Parameter = TypeAdapter(hint).validate_python(value)
        if isinstance(parameter, float) and not math.isfinite(parameter):
            raise ValueError(f"expected a finite number, not {value}")
    except ValidationError as error:
        raise ValueError(f"{shown.removesuffix('=...')} {value}: {error.errors()[0]['msg']}") from error
    except ValueError as error:
        raise ValueError(f"{shown.removesuffix('=...')}: {error}") from error
    return parameter
