"""Settings of one model of a run: what is recorded, what is refused, and which runs keep their ids."""

from __future__ import annotations

from typing import Any

import pytest

from harness.settings.launch_settings import Launch
from jobs.run.plan import RunPlan, check_prompts, plan
from jobs.run.spec import RunSpec
from tests.shared import with_settings
from tests.warehouse.runs import PROBLEMS, SPEC

OFFERED = {"top_k": 20, "repetition_penalty": 1.1}


def planned(**flags: Any) -> RunPlan:
    """A plan of speccot on the bundled problems with the bundled pair."""
    common: dict[str, Any] = {"method": "speccot", "dataset": "demo", "engine": "vllm", "limit": 2}
    common |= {"draft": "demo-draft", "target": "demo-target,"}
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
        ({"draft_template": ("effort=low",)}, "--draft demo-draft: the chat template does not use effort"),
        ({"target_thinking_tags": "[THINK]"}, "--target.thinking-tags [THINK]: expected OPEN,CLOSE or none"),
        ({"target_engine": ("max_num_seqs",)}, "--target.engine max_num_seqs: expected KEY=VALUE"),
        ({"target_engine": ("max_num_seqs=8", "max_num_seqs=9")}, "max_num_seqs occurs twice"),
        ({"target_engine": ("dtype=float16",)}, "--target.engine dtype=float16: use --dtype"),
        ({"target_engine": ("trust_remote_code=true",)}, "code outside the recorded code"),
        ({"target_engine": ("max_num_seqs=8",), "engine": "transformers"}, "needs --engine vllm, not transformers"),
    ],
)  # fmt: skip
def test_a_wrong_setting_of_one_model_gets_one_line(flags: dict[str, Any], message: str) -> None:
    assert message in refusal(**flags)
