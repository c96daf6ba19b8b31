"""Hyper-parameters carry their own documentation, and those that only change the speed leave sample ids alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from harness.methods import METHODS, build, defaults
from harness.methods.method import fields_of
from harness.methods.vanilla import Vanilla
from harness.trace import Call, Step


@pytest.mark.parametrize("method", METHODS)
def test_the_defaults_are_those_of_the_method_built_without_any(method: str) -> None:
    built = build(method, {})
    assert {name: getattr(built, name) for name in defaults(method)} == defaults(method)


def test_a_field_declared_without_help_is_an_error() -> None:
    @dataclass(frozen=True)
    class Undocumented(Vanilla):
        drafts: int = 5

    with pytest.raises(KeyError, match="help"):
        fields_of(Undocumented)


@pytest.mark.parametrize(
    ("method", "params", "reason"),
    [
        ("rsd", {"delta": 1.1}, "--delta must be from 0 to 1, not 1.1"),
        ("rsd", {"weighting": "clipping", "delta": 0.5}, "--delta requires --weighting binary"),
        ("lookahead", {"gamma": 0}, "--gamma must be from 1 to 32, not 0"),
        ("lookahead", {"verifier": "similarity", "judge": "reward"}, "--judge requires --verifier judge"),
        ("spec_thinking", {"n1": 0}, "--n1 must be at least 1, not 0"),
        ("spec_thinking", {"recap": "x" * 1001}, "--recap must have at most 1000 characters and no </think>"),
        ("spec_thinking", {"reflection_words": "a,</think>"}, "--reflection-words must have at most 1000 characters"),
        ("glimprouter", {"tau": -0.1}, "--tau must be at least 0, not -0.1"),
        ("specguard", {"k": 0}, "--k must be from 1 to 64, not 0"),
        ("specguard", {"l_min": 0.0}, "--l-min must be from -1000 to -0.01, not 0.0"),
        ("speccot", {"verdict": "none"}, "--verdict none requires --drafts 1"),
        ("confspec", {"confidence": 1.1}, "--confidence must be from 0 to 1, not 1.1"),
        ("early_exit", {"interval": 0}, "--interval must be at least 1, not 0"),
        ("early_exit", {"certainty": 0.9}, "--certainty requires --criterion confidence"),
    ],
)
def test_a_value_that_is_not_valid_is_refused_by_its_flag(method: str, params: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        build(method, params)


@pytest.mark.parametrize(
    ("method", "params", "cached"),
    [
        ("confspec", {"step_tokens": 100}, {"draft": 1100, "target": 1100}),
        ("early_exit", {"writer": "draft", "prober": "target"}, {"draft": 1000, "target": 1020}),
        ("lookahead", {"gamma": 3, "step_tokens": 100}, {"draft": 1000, "target": 1000 + 200 + 300}),
        ("rsd", {"step_tokens": 100}, {"draft": 1000, "target": 1000, "reward": 1100}),
        ("specguard", {"k": 4, "step_tokens": 100}, {"draft": 1300, "target": 1300}),
    ],
)
def test_whatever_a_model_reads_at_once_has_room(method: str, params: dict[str, Any], cached: dict[str, int]) -> None:
    built = build(method, params)
    assert {role: built.cached_tokens(role, 1000) for role in built.roles} == cached


def test_as_many_requests_are_planned_as_are_sent_at_once() -> None:
    methods = (build("lookahead", {"gamma": 3}), build("specguard", {"k": 4}))
    assert [(method.parallel, method.target_parallel) for method in methods] == [(1, 4), (4, 4)]


@pytest.mark.parametrize("word", ["", "Second look", "x" * 41, "a\nb"])
def test_a_word_that_is_none_is_refused(word: str) -> None:
    with pytest.raises(ValueError, match=r"role of a step: .*; valid: 1 to 40 characters"):
        Step(author="target", role=word, text="a", num_tokens=1, token_ids=(1,), finish="stop")
    with pytest.raises(ValueError, match=r"purpose of a call: .*; valid: 1 to 40 characters"):
        Call(word, "draft", 0, 1, 1, 0, 1, 1, 0.0, 0.0, 0.0, 0.0, 1)
