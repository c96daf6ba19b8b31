"""Hyper-parameters carry their own documentation, and those that only change the speed leave sample ids alone."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

import pytest

from harness.methods import METHODS, build, defaults, parameter_fields, speed_only_parameters
from harness.methods.method import ParameterField, parameter


@pytest.mark.parametrize("method", METHODS)
def test_every_hyper_parameter_says_in_whole_sentences_what_it_does(method: str) -> None:
    for declared in parameter_fields(method):
        assert declared.help.endswith((".", ")")), declared
        assert len(declared.help) > 20, declared


def test_a_parameter_is_read_with_type_default_and_help() -> None:
    by_name = {declared.name: declared for declared in parameter_fields("specreason")}
    assert by_name["threshold"].type is float
    assert by_name["threshold"].default == 7.0
    assert by_name["score"].type == Literal["greedy", "average"]
    assert "section 4.1" in by_name["threshold"].help


@pytest.mark.parametrize("method", METHODS)
def test_the_defaults_are_those_of_the_method_built_without_any(method: str) -> None:
    built = build(method, {})
    assert {name: getattr(built, name) for name in defaults(method)} == defaults(method)


def test_lookahead_alone_changes_the_speed_only() -> None:
    assert {m: speed_only_parameters(m) for m in METHODS if speed_only_parameters(m)} == {
        "specreason": frozenset({"lookahead"})
    }


def test_a_method_that_is_not_there_has_no_speed_only_parameters() -> None:
    assert speed_only_parameters("retired") == frozenset()
    with pytest.raises(KeyError):
        parameter_fields("retired")


def test_a_field_declared_without_help_is_an_error() -> None:
    @dataclass(frozen=True)
    class Undocumented:
        drafts: int = 5

    with pytest.raises(KeyError, match="help"):
        ParameterField.read(fields(Undocumented)[0], int)


def test_a_parameter_is_an_ordinary_dataclass_field() -> None:
    @dataclass(frozen=True)
    class Documented:
        drafts: int = parameter(5, help="Number of drafts.", changes_text=False)

    assert Documented().drafts == 5
    assert Documented.drafts == 5
    assert ParameterField.read(fields(Documented)[0], int) == ParameterField(
        "drafts", int, 5, "Number of drafts.", changes_text=False
    )
