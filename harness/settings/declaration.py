"""Declare launch settings, convert their values, and format their errors.

A setting is a dataclass field, annotated with its type, bounds and a `Flag`. Pydantic is imported only when a launch is
built, to keep `--help` fast.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, cast, get_args, get_origin, get_type_hints

from harness.cli.messages import did_you_mean
from harness.engine import Role

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, ValidationError
    from pydantic_core import CoreSchema

Heading = Literal[
    "Run", "Models", "Sampling", "Method (hyper-parameters)", "Engine", "Cluster", "Output", "Training"
]  # fmt: skip
"""Headings of the help text, in order."""
ROLES: tuple[Role, ...] = get_args(Role)
Parameter = int | float | str | bool
Value: TypeAlias = "Parameter | Path | date | time | Sequence[Value] | Mapping[str, Value] | None"
"""A flag's value, from a command line, a TOML file or Python."""
Flags: TypeAlias = Mapping[str, Value]
"""Values by flag name."""
_T = TypeVar("_T")


@dataclass(frozen=True)
class Flag:
    """The command-line flag of a setting, and conversions of its value."""

    heading: Heading
    help: str
    """Help text; in a model setting, `{role}` is replaced by the role."""
    metavar: str | None = None
    default: str | None = None
    """Description of the default, if the value alone is not clear enough."""
    is_common: bool = False
    """Whether `--help` lists it; otherwise only `--help-all` does."""
    roles: tuple[Role, ...] = ROLES
    """Roles that have this model setting."""
    read: Callable[[Any], Any] | None = None
    """Converts a raw value to the declared type. Raises ValueError."""
    check: Callable[[Any], Any] | None = None
    """Checks and normalizes a value of the declared type. Raises ValueError."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Add `read` and `check` to the pydantic schema of the type."""
        from pydantic_core import core_schema

        schema = handler(source)
        if self.check is not None:
            schema = core_schema.no_info_after_validator_function(self.check, schema)
        if self.read is not None:
            schema = core_schema.no_info_before_validator_function(self.read, schema)
        return schema


@dataclass(frozen=True)
class Setting:
    """A declared setting."""

    name: str
    """Field name; model settings are prefixed with the role, as in `target_top_k`."""
    spelled: str
    """Flag, such as `--target.top-k`."""
    type: Any
    """Declared type, without None."""
    flag: Flag
    default: Any
    """Default value; also None if there is no default."""
    role: Role | None = None
    key: str = ""
    """Key of a model setting in its role's table."""

    @property
    def is_repeated(self) -> bool:
        """Whether its flag can be repeated, to collect a tuple or a dict."""
        return get_origin(self.type) in (tuple, dict)


@functools.cache
def settings_of(kind: Any) -> dict[str, Setting]:
    """Return the settings declared by a dataclass, by name; fields without a `Flag` are skipped."""
    found = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        declared, *metadata = get_args(hint) if hasattr(hint, "__metadata__") else (hint,)
        flags = [item for item in metadata if isinstance(item, Flag)]
        if flags:
            if type(None) in get_args(declared):
                [declared] = [member for member in get_args(declared) if member is not type(None)]
            found[name] = Setting(name, flag(name), declared, flags[0], getattr(kind, name, None))
    return found


def flag(name: str) -> str:
    """Return the flag for a name: `guidance_tokens` becomes `--guidance-tokens`."""
    return "--" + name.replace("_", "-")


def validated(kind: type[_T], values: Mapping[str, object]) -> _T:
    """Build a dataclass from field values. Raises pydantic.ValidationError."""
    adapter: Any = _adapter(cast(Any, kind))  # cast: mypy does not know that the class is hashable
    made: _T = adapter.validate_python(dict(values))
    return made


@functools.cache
def _adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def words(value: Value) -> Value:
    """Convert a single string, or a mapping to KEY=VALUE words, to a tuple, for repeatable flags."""
    if isinstance(value, Mapping):
        return tuple(f"{key}={item}" for key, item in value.items())
    return (value,) if isinstance(value, str) else value


def table(value: Value) -> Value:
    """Parse KEY=VALUE words to a dict; values are JSON (true, 8, [1, 2]) or plain strings.

    Mappings, from files or specifications, are returned unchanged. Raises ValueError.
    """
    found: dict[str, Value] = dict(value) if isinstance(value, Mapping) else {}
    given = (value,) if isinstance(value, str) else value if isinstance(value, list | tuple) else ()
    for word in given:
        key, _, text = str(word).partition("=")
        if key in found:
            raise ValueError(f"{key} occurs twice")
        found[key] = _value(text) if text.strip() else None
    if not all(key.isidentifier() and item not in (None, "") for key, item in found.items()):
        raise ValueError("expected KEY=VALUE; KEY must be a name, and VALUE must not be empty")
    return found


def _value(text: str) -> Value:
    lowered = {"true": True, "false": False}.get(text.lower())
    if lowered is not None:
        return lowered
    try:
        found: Value = json.loads(text, parse_constant=lambda name: name)
        return found
    except ValueError:
        return text


def existing_path(path: Path | None) -> Path | None:
    """Return the path. Raises ValueError if it does not exist."""
    if path is not None and not path.exists():
        raise ValueError("no such folder")
    return path


def role_flag(role: str, name: str) -> str:
    """Return the flag of a model setting, such as `--target.top-k`; `--target` for the model itself."""
    return f"--{role}" if name == "model" else f"--{role}.{name.replace('_', '-')}"


def in_one_line(error: ValidationError) -> str:
    """Return the first error as one line that starts with the flag."""
    first = error.errors()[0]
    place = [str(part) for part in first["loc"]]
    name = role_flag(place[0], place[1]) if len(place) > 1 and place[0] in ROLES else flag(place[0])
    given, message = first["input"], str(first["msg"]).removeprefix("Value error, ")
    if first["type"] == "literal_error":
        choices = first["ctx"]["expected"].replace("'", "").replace(" or ", ", ").split(", ")
        message += did_you_mean(str(given), choices)
    return f"{name} {' '.join(map(str, given)) if isinstance(given, list | tuple) else given}: {message}"
