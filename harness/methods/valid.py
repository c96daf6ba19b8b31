"""Whether a class is a method that can be run: everything that is wrong with it is said before any model loads."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from harness.engine import Role
from harness.methods.method import Method

MODEL = (
    "a method is a @dataclass(frozen=True) class of harness.methods.Method with `async def __call__(self, chain, "
    "draft, target)`"
)
"""What is valid, for messages."""
_TYPES = (int, float, str, bool)
_NAME = re.compile("[a-z][a-z0-9_-]{0,29}")
_FIELD = re.compile("[a-z][a-z0-9_]*")


def problem_of(found: object) -> str | None:
    """Return what is wrong with a class as a method, in a few words that say what is valid; None where nothing is."""
    if not isinstance(found, type) or Method not in found.__mro__ or found is Method:
        return f"is not a method; {MODEL}"
    return next(_problems(found), None)


def name_of(method: type[Any]) -> str:
    """Return the name that a class gives itself (`name = "..."`), else its own in lower case.

    Raises ValueError where that is not valid.
    """
    declared = vars(method).get("name") if "name" not in _field_names(method) else None
    name = declared if isinstance(declared, str) else method.__name__.lower()
    check_name(name)
    return name


def check_name(name: str) -> None:
    """Raise ValueError where a name cannot be that of a method in run ids and tables."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            f'the name {name!r} is not 1 to 30 of a-z, 0-9, _ and -, a letter first; set one in the class: name = "..."'
        )


def _field_names(method: type[Any]) -> set[str]:
    return {declared.name for declared in fields(method)} if is_dataclass(method) else set()


def _problems(method: type[Any]) -> Iterator[str]:
    if not is_dataclass(method) or "__dataclass_params__" not in vars(method):
        yield "is not a dataclass: write @dataclass(frozen=True) above it"
        return
    if not vars(method)["__dataclass_params__"].frozen:
        yield "can be changed while it runs: write @dataclass(frozen=True) above it"
    if method.__call__ is Method.__call__ or not inspect.iscoroutinefunction(inspect.unwrap(method.__call__)):
        yield f"has no `async def __call__`; {MODEL}"
    yield from _problems_of_call(method)
    yield from _problems_of_fields(method)
    yield from _problems_of_roles(method)


def _problems_of_call(method: type[Any]) -> Iterator[str]:
    try:
        inspect.signature(method.__call__).bind(None, None, None, None)
    except TypeError:
        yield "takes other arguments than `async def __call__(self, chain, draft, target)`"


def _problems_of_fields(method: type[Any]) -> Iterator[str]:
    try:
        annotations = get_type_hints(method)
    except Exception as error:  # noqa: BLE001 a user's annotation may be anything
        yield f"has an annotation that cannot be read: {type(error).__name__}: {error}"
        return
    for declared in fields(method):
        name, kind = declared.name, annotations[declared.name]
        if "help" not in declared.metadata:
            yield f"declares {name} without `parameter`: write {name}: TYPE = parameter(DEFAULT, help=...)"
        elif not _FIELD.fullmatch(name):
            yield f"has a parameter {name!r}, whose name is not of a-z, 0-9 and _, a letter first"
        elif not _is_valid_type(kind):
            yield f"declares {name} as {_written(kind)}; valid: int, float, str, bool, or Literal of words"
        elif (problem := _problem_of_value(kind, declared.default)) is not None:
            yield f"has a default for {name} that is not valid: {problem}"


def _is_valid_type(kind: Any) -> bool:
    if get_origin(kind) is Literal:
        return all(isinstance(value, str) for value in get_args(kind))
    return kind in _TYPES


def _written(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind)


def _problem_of_value(kind: Any, value: object) -> str | None:
    if isinstance(value, bool) and kind is not bool:
        return f"{value} for {_written(kind)}"
    try:
        TypeAdapter(kind).validate_python(value, strict=kind is not float)
    except ValidationError as error:
        return str(error.errors()[0]["msg"])
    return None if not isinstance(value, float) or math.isfinite(value) else f"{value} is not a finite number"


def _problems_of_roles(method: type[Any]) -> Iterator[str]:
    try:
        roles = method().roles
    except Exception as error:  # noqa: BLE001 a user's code may raise anything
        yield f"cannot be built with its defaults: {type(error).__name__}: {error}"
        return
    valid = get_args(Role)
    if not isinstance(roles, tuple) or not roles or not set(roles) <= set(valid) or len(set(roles)) < len(roles):
        yield f"has the roles {roles!r}; valid: a tuple of one or more of {', '.join(map(repr, valid))}"
