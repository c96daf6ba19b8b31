"""Ids: made of what does not stand at its default and was not found at the launch."""

from __future__ import annotations

from dataclasses import make_dataclass, replace
from typing import Any

import pytest

from jobs.run.spec import EngineSpec, RunSpec, derived, identity_of
from tests.warehouse.runs import PROBLEMS, SPEC

VLLM = replace(SPEC, engine=EngineSpec("vllm", spec_decode="draft", spec_tokens=5, spec_sampling="greedy"))


def test_a_field_at_its_default_and_a_derived_one_are_left_out() -> None:
    inner = make_dataclass("Inner", [("a", int), ("b", int, 2)])
    later = make_dataclass("Inner", [("a", int), ("b", int, 2), ("c", str | None, None), ("found", int, derived(0))])
    assert identity_of(inner(1)) == identity_of(later(1, found=5)) == {"a": 1}
    assert identity_of(later(1, c="x")) == {"a": 1, "c": "x"}
    outer = make_dataclass("Outer", [("inner", object)])
    assert identity_of(outer(later(1, b=3))) == {"inner": {"a": 1, "b": 3}}


@pytest.mark.parametrize(
    "changes",
    [
        {"engine": replace(VLLM.engine, spec_sampling="probabilistic")},
        {"target": VLLM.target and replace(VLLM.target, tensor_parallel=2)},
        {"draft": VLLM.draft and replace(VLLM.draft, gpus=(0,))},
        {"engine": replace(VLLM.engine, logprobs=True)},
        {"speculator": VLLM.target},
        {"concurrency": 7},
    ],
    ids=str,
)
def test_what_changes_the_speed_alone_is_part_of_the_run_and_of_no_sample(changes: dict[str, Any]) -> None:
    other = replace(VLLM, **changes)
    assert other.run_id != VLLM.run_id
    assert other.sample_ids(PROBLEMS[0]) == VLLM.sample_ids(PROBLEMS[0])
    assert RunSpec.from_json(other.to_json()) == other


def test_ids_stay_what_they_are() -> None:
    assert SPEC.run_id == "toy-speccot-02f5f788"
    assert SPEC.sample_ids(PROBLEMS[0]) == ["dd58fb806064b9d1", "b142cb1bac9fe254"]
