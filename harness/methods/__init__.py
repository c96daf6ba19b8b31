"""Algorithms over a draft and a target model: one file each, each reads as its paper.

A method is a frozen dataclass: its fields are the hyper-parameters under the paper's names (and the launcher's
flags), calling it fills a chain. It does no I/O, no retry, no logging and no batching: hundreds of samples are
hundreds of coroutines, and the engines batch them. To add one: a new file, and a line here.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from harness.methods.method import Method
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


SPEED_ONLY = frozenset({"lookahead"})
"""Hyper-parameters that change no text: a sample with them is the same sample, drawn with the same seed."""


def build(name: str, params: dict[str, Any]) -> Method:
    """The method of that name with the given hyper-parameters; raises KeyError or TypeError on unknown ones."""
    method: Method = METHODS[name](**params)
    return method


def defaults(name: str) -> dict[str, Any]:
    """A method's hyper-parameters and their defaults."""
    return {f.name: f.default for f in fields(METHODS[name])}


__all__ = ["METHODS", "SPEED_ONLY", "Method", "Model", "build", "defaults"]
