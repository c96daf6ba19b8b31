"""Engines by name: every class can be started the same way, and `auto` finds one."""

from __future__ import annotations

import pytest

from harness.engines import registry
from harness.engines.registry import EngineClass
from harness.engines.scripted import ScriptedEngine
from harness.engines.served.served_engine import ServedEngine
from harness.engines.transformers import TransformersEngine
from harness.engines.vllm import VLLMEngine

CLASSES: dict[str, EngineClass] = {
    "vllm": VLLMEngine,
    "transformers": TransformersEngine,
    "scripted": ScriptedEngine,
    registry.SERVED: ServedEngine,
}
"""mypy checks that each has what is asked of an engine's class."""


def test_every_engine_is_registered() -> None:
    assert {name: registry.engine_class(name) for name in registry._ENGINES} == CLASSES
    assert registry.uncounted() == ["scripted"]


@pytest.mark.parametrize(
    ("installed", "is_here", "expected"),
    [
        (("vllm", "transformers", "torch"), True, "vllm"),
        (("transformers", "torch"), True, "transformers"),
        ((), True, "transformers"),
        ((), False, "vllm"),
    ],
)
def test_auto_is_the_first_engine_that_is_installed(
    installed: tuple[str, ...], is_here: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "find_spec", lambda name: name if name in installed else None)
    assert registry.resolved(registry.AUTO, is_here=is_here) == expected
    assert registry.resolved("scripted", is_here=is_here) == "scripted"
