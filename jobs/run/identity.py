"""The identity of a specification: how its fields are declared, and which of them the run id is made of.

A field that is declared without any of these functions is always part of the identity.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import field, fields, is_dataclass
from typing import Any, TypeVar

_T = TypeVar("_T")


def added_later(default: _T, *equal_to_default: _T) -> _T:
    """Declare a field that was added after runs existed: at its default it is left out of the run id.

    Every field that is added from now on is declared so. `equal_to_default` are values that say in words what the
    default means, and are left out of the run id too.
    """
    metadata = {"identity": "unless default", "equal_to_default": equal_to_default}
    declared: _T = field(default=default, metadata=metadata)
    return declared


def chosen_on_the_node(counts_as: int) -> int | None:
    """Declare a field whose default was `counts_as` before nodes chose it: the run id still counts None as that.

    Where it is None it is left out of spec.json, so that earlier versions read their own default.
    """
    declared: int | None = field(default=None, metadata={"none_counts_as": counts_as})
    return declared


def derived(default: _T) -> _T:
    """Declare a field that follows from the others, and so is never part of the run id."""
    declared: _T = field(default=default, metadata={"identity": "never"})
    return declared


def identity_of(record: Any) -> dict[str, Any]:
    """Return the fields that tell specifications apart, by name, without those that their metadata leaves out."""
    identity = {}
    for declared in fields(record):
        value, rule = getattr(record, declared.name), declared.metadata.get("identity", "always")
        if value is None:
            value = declared.metadata.get("none_counts_as")
        as_before = (declared.default, *declared.metadata.get("equal_to_default", ()))
        if rule == "never" or (rule == "unless default" and value in as_before):
            continue
        identity[declared.name] = identity_of(value) if is_dataclass(value) else value
    return identity


def digest_of(value: object) -> str:
    """Return the SHA-256 of a value as JSON with sorted keys, in hexadecimal."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=dict).encode()).hexdigest()
