"""Algorithms over a draft and a target model: one file each, each reads as its paper.

A method is a frozen dataclass: its fields are the hyper-parameters under the paper's names (and the launcher's
flags), calling it fills a chain. It does no I/O, no retry, no logging and no batching: hundreds of samples are
hundreds of coroutines, and the engines batch them. To add one: a new file, and a line here.
"""

from __future__ import annotations

from dataclasses import fields
from functools import lru_cache
from typing import Any, get_type_hints

from harness.methods.method import Method, ParameterField
from harness.methods.scot import SCoT
from harness.methods.speccot import SpecCoT
from harness.methods.specdecode import SpecDecode
from harness.methods.specreason import SpecReason
from harness.methods.vanilla import Vanilla
from harness.recording import Model

METHODS: dict[str, type] = {
    "vanilla": Vanilla,
    "specdecode": SpecDecode,
    "speccot": SpecCoT,
    "specreason": SpecReason,
    "scot": SCoT,
}


def build(name: str, params: dict[str, Any]) -> Method:
    """Build a method from its hyper-parameters.

    Raises KeyError on an unknown method, TypeError on an unknown parameter, ValueError on a value out of range.
    """
    method: Method = METHODS[name](**params)
    return method


def defaults(name: str) -> dict[str, Any]:
    """Return the default of each of a method's hyper-parameters."""
    return {parameter.name: parameter.default for parameter in parameter_fields(name)}


@lru_cache
def parameter_fields(name: str) -> tuple[ParameterField, ...]:
    """Return a method's hyper-parameters in the order of their declaration: name, type, default and help.

    Raises KeyError on an unknown method.
    """
    annotations = get_type_hints(METHODS[name])
    return tuple(ParameterField.read(declared, annotations[declared.name]) for declared in fields(METHODS[name]))


def speed_only_parameters(name: str) -> frozenset[str]:
    """Return the hyper-parameters of a method that change its speed but not its text (see `parameter`).

    Empty for a method that this version does not have, so that the ids of its recorded runs can still be computed.
    """
    if name not in METHODS:
        return frozenset()
    return frozenset(parameter.name for parameter in parameter_fields(name) if not parameter.changes_text)


__all__ = [
    "METHODS",
    "Method",
    "Model",
    "ParameterField",
    "build",
    "defaults",
    "parameter_fields",
    "speed_only_parameters",
]
