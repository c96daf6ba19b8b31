"""Token-level speculation in a launch's plan: what is recorded and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import environment
from harness.settings.launch_settings import Launch
from jobs.run.plan import RunPlan, plan
from jobs.run.spec import RunSpec
from tests.harness.engines.heads import EAGLE3_CONFIG, save_config, target_config

Planned = Callable[..., RunPlan]


@pytest.fixture
def planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Planned:
    """Plans of specdecode on the bundled problems, with a target that an EAGLE-3 head could be for."""
    monkeypatch.setattr(environment, "accelerator", lambda: "gpu")
    target = save_config(tmp_path / "target", target_config())

    def planned(**flags: Any) -> RunPlan:
        common: dict[str, Any] = {
            "method": "specdecode",
            "dataset": "demo",
            "engine": "vllm",
            "draft": "demo-draft",
            "limit": 2,
        }
        return plan(Launch.from_flags(common | {"target": str(target)} | flags), "local")

    return planned


def test_a_head_is_recorded_and_the_draft_is_not_needed(planned: Planned, tmp_path: Path) -> None:
    head = save_config(tmp_path / "head", EAGLE3_CONFIG)
    made = planned(spec_decode="eagle3", spec_model=str(head), spec_sampling="probabilistic")
    spec = RunSpec.from_json(made.spec.to_json())
    assert (spec.engine.spec_decode, spec.engine.spec_tokens) == ("eagle3", 5)
    assert spec.engine.spec_sampling == "probabilistic"
    assert spec.draft is None
    assert spec.speculator is not None
    assert (spec.speculator.name, spec.speculator.path) == ("head", str(head))
    assert not [notice for notice in made.notices if "DRAFTS" in notice]


def test_another_draft_and_the_default_number_of_tokens(planned: Planned) -> None:
    spec = planned(spec_decode="draft", spec_model="demo-target").spec
    assert spec.draft is None
    assert spec.speculator is not None
    assert spec.speculator.name == "demo-target"
    assert planned(spec_decode="ngram").spec.engine.spec_tokens == 5
    assert planned(spec_decode="ngram", spec_tokens=3).spec.engine.spec_tokens == 3


def test_greedy_drafts_are_recorded_and_warned_of_where_the_target_samples(planned: Planned) -> None:
    sampled, greedy = planned(temperature=0.6), planned(temperature=0.0)
    assert sampled.spec.engine.spec_sampling == "greedy"
    assert [notice for notice in sampled.notices if notice.startswith("GREEDY DRAFTS")]
    assert not [notice for notice in greedy.notices if notice.startswith("GREEDY DRAFTS")]
    assert planned(spec_decode="ngram", temperature=0.6).spec.engine.spec_sampling is None


def test_a_head_of_another_target_is_refused_before_anything_is_written(planned: Planned, tmp_path: Path) -> None:
    head = save_config(tmp_path / "head", EAGLE3_CONFIG | {"hidden_size": 96})
    with pytest.raises(ValueError, match="--spec-model head is for a target with a hidden size of 96"):
        planned(spec_decode="eagle3", spec_model=str(head))
