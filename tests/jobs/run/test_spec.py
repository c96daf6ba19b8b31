"""What a run is: its ids, the settings of its models, whether it is greedy, and its shards."""

from __future__ import annotations

import hashlib
import random
from dataclasses import make_dataclass, replace
from typing import Any

import pytest

from harness.settings.launch_settings import Launch
from jobs.run.plan import RunPlan, check_prompts, plan
from jobs.run.spec import EngineSpec, RunSpec, Unit, assign_to_shards, derived, identity_of
from tests.shared import with_settings
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


OFFERED = {"top_k": 20, "repetition_penalty": 1.1}


def planned(**flags: Any) -> RunPlan:
    """A plan of speccot on the bundled problems with the bundled pair."""
    common: dict[str, Any] = {"method": "speccot", "dataset": "demo", "engine": "vllm", "limit": 2}
    common |= {"draft": "demo-draft", "target": "demo-target"}
    return plan(Launch.from_flags(common | flags), "local")


LAUNCH = Launch.from_flags({"method": "speccot", "dataset": "demo"})


def refusal(**flags: Any) -> str:
    """The line that a plan is refused with."""
    with pytest.raises(ValueError) as refused:  # noqa: PT011 of which the callers say
        list(check_prompts(LAUNCH, planned(**flags).spec))
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_sampling_is_recorded_for_the_models_that_it_is_for() -> None:
    both = RunSpec.from_json(planned(top_k=20, target_temperature=0.8).spec.to_json())
    assert both.sampling["draft"] == {"top_k": 20}
    assert both.sampling["target"] == {"temperature": 0.8, "top_k": 20}
    assert isinstance(both.settings["draft"].top_k, int)


def test_what_says_the_same_in_other_words_is_the_same_run() -> None:
    plain = planned().spec
    said = planned(draft_temperature=0.6, target_top_p=0.95, top_k=0, min_p=0.0, repetition_penalty=1.0).spec
    assert said == plain
    assert planned(draft_top_k=20, target_top_k=20).spec.run_id == planned(top_k=20).spec.run_id


def test_sampling_and_conventions_make_other_samples_and_engine_arguments_another_run() -> None:
    ids = SPEC.sample_ids(PROBLEMS[0])
    changed = [
        with_settings(SPEC, "draft", **OFFERED),
        with_settings(SPEC, "target", **OFFERED),
        with_settings(SPEC, "target", template={"enable_thinking": False}),
        with_settings(SPEC, "draft", thinking_tags="none"),
    ]
    assert len({spec.run_id for spec in (SPEC, *changed)}) == 5
    assert len({spec.sample_ids(PROBLEMS[0])[0] for spec in (SPEC, *changed)}) == 5
    other_engine = with_settings(SPEC, "target", engine={"quantization": "fp8"})
    assert other_engine.run_id != SPEC.run_id
    assert other_engine.sample_ids(PROBLEMS[0]) == ids


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"method": "vanilla", "draft_top_k": 5}, "--draft.top-k 5: vanilla --model target generates only"),
        ({"method": "vanilla", "model": "draft", "target_min_p": 0.1}, "generates only with the draft; omit this flag"),
        ({"method": "specdecode", "temperature": 0, "min_p": 0.1}, "does not support min-p with"),
        ({"top_k": -1}, "--top-k -1: "),
        ({"engine": "transformers", "draft_gpus": "0", "target_gpus": "1"}, "this machine has 0 GPUs"),
        ({"draft_template": ("effort=low",)}, "--draft demo-draft: the chat template does not use effort"),
        ({"target_thinking_tags": "[THINK]"}, "--target.thinking-tags [THINK]: expected OPEN,CLOSE or none"),
        ({"target_engine": ("max_num_seqs",)}, "--target.engine max_num_seqs: expected KEY=VALUE"),
        ({"target_engine": ("max_num_seqs=8", "max_num_seqs=9")}, "max_num_seqs occurs twice"),
        ({"target_engine": ("dtype=float16",)}, "--target.engine dtype=float16: use --dtype"),
        ({"target_engine": ("trust_remote_code=true",)}, "it would run code that is not recorded"),
        ({"target_engine": ("max_num_seqs=8",), "engine": "transformers"}, "needs --engine vllm, not transformers"),
    ],
)  # fmt: skip
def test_a_wrong_setting_of_one_model_gets_one_line(flags: dict[str, Any], message: str) -> None:
    assert message in refusal(**flags)


@pytest.mark.parametrize(
    ("method", "flags", "is_greedy"),
    [
        ("vanilla", {"temperature": 0}, True),
        ("vanilla", {}, False),
        ("vanilla", {"target_temperature": 0}, True),
        ("vanilla", {"temperature": 0, "model": "draft", "target": None}, True),
        ("speccot", {"temperature": 0}, True),
        ("speccot", {"temperature": 0, "draft_temperature": 0.6}, False),
        ("rsd", {"temperature": 0, "reward": "demo-target"}, True),
        # Clipping draws from each sample's seed whether a draft is kept.
        ("rsd", {"temperature": 0, "reward": "demo-target", "weighting": "clipping"}, False),
        # The target decodes greedily at any temperature, and the draft by its own.
        ("scot", {"greedy_target": True, "draft_temperature": 0}, True),
        ("scot", {"greedy_target": True}, False),
        # The draft only proposes what the target, which is greedy, would write by itself.
        ("specdecode", {"target_temperature": 0}, True),
    ],
)
def test_samples_repeat_the_first_where_no_model_that_writes_is_sampled(
    method: str, flags: dict[str, Any], is_greedy: bool
) -> None:
    made = planned(method=method, samples=4, **flags)
    assert made.spec.is_greedy is is_greedy
    said = [notice for notice in made.notices if notice.startswith("GREEDY:")]
    assert len(said) == is_greedy
    assert replace(made.spec, samples=1).is_greedy is is_greedy


def units_of(problems: int, samples: int) -> list[Unit]:
    """Units as a run plans them: sample index first."""
    names = [(f"d/{p}", i) for i in range(samples) for p in range(problems)]
    return [Unit(hashlib.sha256(f"{name}/{i}".encode()).hexdigest()[:16], name, i) for name, i in names]


@pytest.mark.parametrize(
    ("problems", "samples", "shards"), [(40, 16, 7), (40, 16, 8), (5, 3, 15), (3, 1, 50), (0, 2, 3)]
)
def test_every_unit_is_assigned_once_and_no_shard_is_empty(problems: int, samples: int, shards: int) -> None:
    units = units_of(problems, samples)
    assigned = assign_to_shards(units, shards)
    assert sorted(u.sample_id for shard in assigned for u in shard) == sorted(u.sample_id for u in units)
    assert len(assigned) == min(shards, len(units))
    assert all(assigned)


@pytest.mark.parametrize(("problems", "samples", "shards"), [(200, 16, 8), (200, 16, 24), (400, 1, 4)])
def test_no_shard_has_all_the_long_problems(problems: int, samples: int, shards: int) -> None:
    draw = random.Random(0)
    tokens = {f"d/{p}": int(draw.lognormvariate(6.0, 1.0)) for p in range(problems)}
    assigned = assign_to_shards(units_of(problems, samples), shards, tokens)
    spent = [sum(tokens[unit.problem_id] for unit in shard) for shard in assigned]
    assert max(spent) <= sum(spent) / shards + max(tokens.values())
