"""How a setting of a launch is declared, how its value is read, and what is said of a wrong one.

A setting is a field of a dataclass, annotated with its type, its bounds and a `Flag`. Nothing here imports pydantic,
which is asked only when a launch is built, so that `--help` answers at once.
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
"""The headings of a help, in order."""
ROLES: tuple[Role, ...] = get_args(Role)
Parameter = int | float | str | bool
"""The value of a hyper-parameter."""
Value: TypeAlias = "Parameter | Path | date | time | Sequence[Value] | Mapping[str, Value] | None"
"""The value of a flag, as a command line, a TOML file or Python has it."""
Flags: TypeAlias = Mapping[str, Value]
"""Values by the names of flags."""
_T = TypeVar("_T")


@dataclass(frozen=True)
class Flag:
    """How a setting looks on the command line, and how its value is read."""

    heading: Heading
    """The heading of a help that lists it."""
    help: str
    """In the help of a model's setting, `{role}` stands for the model."""
    metavar: str | None = None
    default: str | None = None
    """The default in words, where the value alone does not say it."""
    is_common: bool = False
    """Whether `--help` lists it, as most people use it; otherwise only `--help-all` does."""
    roles: tuple[Role, ...] = ROLES
    """The models that have it, of a model's setting."""
    read: Callable[[Any], Any] | None = None
    """Makes of a value as a file, a command line or Python has it what the type takes. Raises ValueError."""
    check: Callable[[Any], Any] | None = None
    """Returns a value of the type as it is kept. Raises ValueError."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return pydantic's schema of the type with both functions around it."""
        from pydantic_core import core_schema

        schema = handler(source)
        if self.check is not None:
            schema = core_schema.no_info_after_validator_function(self.check, schema)
        if self.read is not None:
            schema = core_schema.no_info_before_validator_function(self.read, schema)
        return schema


@dataclass(frozen=True)
class Setting:
    """A setting as it is declared."""

    name: str
    """That of its field; of a model's setting with the role in front, as in `target_top_k`."""
    spelled: str
    """Its flag."""
    type: Any
    """Without None."""
    flag: Flag
    default: Any
    """None also where it has none."""
    role: Role | None = None
    key: str = ""
    """The name of a model's setting in its table."""

    @property
    def is_repeated(self) -> bool:
        """Whether its flag may be repeated: it holds several words, or values by name."""
        return get_origin(self.type) in (tuple, dict)


@functools.cache
def settings_of(kind: Any) -> dict[str, Setting]:
    """Return the settings that a dataclass, given by its class, declares, by name; a field without a `Flag` is none."""
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
    """Return the flag of a setting: `guidance_tokens` becomes `--guidance-tokens`."""
    return "--" + name.replace("_", "-")


def validated(kind: type[_T], values: Mapping[str, object]) -> _T:
    """Return a dataclass made of values by field. Raises pydantic.ValidationError."""
    adapter: Any = _adapter(cast(Any, kind))  # a class of a type variable is hashable, too
    made: _T = adapter.validate_python(dict(values))
    return made


@functools.cache
def _adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def words(value: Value) -> Value:
    """Return a single word as a tuple of one, as a flag that may be repeated takes it."""
    return (value,) if isinstance(value, str) else value


def table(value: Value) -> Value:
    """Return words KEY=VALUE as values by name: what JSON means by them (true, 8, [1, 2]), otherwise the text itself.

    A table, of a file or a specification, stays what it is. Raises ValueError.
    """
    found: dict[str, Value] = dict(value) if isinstance(value, Mapping) else {}
    given = (value,) if isinstance(value, str) else value if isinstance(value, list | tuple) else ()
    for word in given:
        key, _, text = str(word).partition("=")
        if key in found:
            raise ValueError(f"{key} is given twice")
        found[key] = _value(text) if text.strip() else None
    if not all(key.isidentifier() and item not in (None, "") for key, item in found.items()):
        raise ValueError("expected KEY=VALUE with a name and a value")
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
    """Return the path of a folder. Raises ValueError where it does not exist."""
    if path is not None and not path.exists():
        raise ValueError("no such folder")
    return path


def role_flag(role: str, name: str) -> str:
    """Return the flag of a model's setting: `--target.top-k`, and `--target` of the model itself."""
    return f"--{role}" if name == "model" else f"--{role}.{name.replace('_', '-')}"


def in_one_line(error: ValidationError) -> str:
    """Return the first error in one line that names the flag."""
    first = error.errors()[0]
    place = [str(part) for part in first["loc"]]
    name = role_flag(place[0], place[1]) if len(place) > 1 and place[0] in ROLES else flag(place[0])
    given, message = first["input"], str(first["msg"]).removeprefix("Value error, ")
    if first["type"] == "literal_error":
        choices = first["ctx"]["expected"].replace("'", "").replace(" or ", ", ").split(", ")
        message += did_you_mean(str(given), choices)
    return f"{name} {' '.join(map(str, given)) if isinstance(given, list | tuple) else given}: {message}"
