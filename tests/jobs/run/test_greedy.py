"""Which runs draw the same sample again and again, by their settings, and that a launch says so."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from harness.settings.launch_settings import Launch
from jobs.run.plan import RunPlan, plan

SPECCOT, SCOT, VANILLA, SPECDECODE, RSD = "speccot", "scot", "vanilla", "specdecode", "rsd"
PAIR = {"draft": "demo-draft"}
REWARDED = {"draft": "demo-draft", "reward": "demo-target,"}


def planned(method: str, **flags: Any) -> RunPlan:
    common: dict[str, Any] = {"dataset": "demo", "engine": "vllm", "limit": 2, "samples": 4}
    return plan(Launch.from_flags(common | {"method": method, "target": "demo-target,"} | flags), "slurm")


@pytest.mark.parametrize(
    ("method", "flags", "is_greedy"),
    [
        (VANILLA, {"temperature": 0}, True),
        (VANILLA, {"temperature": 0.6}, False),
        (VANILLA, {"temperature": 0.6, "target_temperature": 0}, True),
        (VANILLA, {"temperature": 0, "model": "draft", "draft": "demo-draft", "target": None}, True),
        (SPECCOT, {"temperature": 0, "draft": "demo-draft"}, True),
        (SPECCOT, {"temperature": 0, "draft": "demo-draft", "draft_temperature": 0.6}, False),
        (RSD, {"temperature": 0, **REWARDED}, True),
        # Clipping draws from each sample's seed whether a draft is kept.
        (RSD, {"temperature": 0, **REWARDED, "weighting": "clipping"}, False),
        # The target decodes greedily at any temperature, and the draft by its own.
        (SCOT, {"temperature": 0.6, **PAIR, "greedy_target": True, "draft_temperature": 0}, True),
        (SCOT, {"temperature": 0.6, **PAIR, "greedy_target": True}, False),
        # The draft only proposes what the target, which is greedy, would write by itself.
        (SPECDECODE, {"temperature": 0.6, "draft": "demo-draft", "target_temperature": 0}, True),
    ],
)
def test_samples_repeat_the_first_where_no_model_that_writes_is_sampled(
    method: str, flags: dict[str, Any], is_greedy: bool
) -> None:
    made = planned(method, **flags)
    assert made.spec.is_greedy is is_greedy
    said = [notice for notice in made.notices if notice.startswith("GREEDY:")]
    assert len(said) == is_greedy
    assert dataclasses.replace(made.spec, samples=1).is_greedy is is_greedy
