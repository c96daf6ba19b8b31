"""Settings of one model of a run: what is recorded, what is refused, and which runs keep their ids."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.settings.declaration import ROLES
from harness.settings.launch_settings import Launch
from harness.weights.models import pair_folder
from harness.weights.templates import Conventions
from jobs.run.plan import RunPlan, check_prompts, plan
from jobs.run.spec import RunSpec
from tests.shared import with_settings
from tests.warehouse.runs import PROBLEMS, SPEC
from warehouse.loading.convert import spec_columns

Planned = Callable[..., RunPlan]
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


def test_engine_arguments_keep_the_type_that_was_written() -> None:
    words = ("kv_cache_dtype=fp8", "max_num_seqs=8", "enforce_eager=true", 'compilation_config={"level": 0}')
    spec = RunSpec.from_json(planned(target_engine=words).spec.to_json())
    assert spec.settings["target"].engine == {
        "kv_cache_dtype": "fp8",
        "max_num_seqs": 8,
        "enforce_eager": True,
        "compilation_config": {"level": 0},
    }
    assert spec.settings["draft"].engine == {}
    assert planned(target_engine={"max_num_seqs": 8}).spec == planned(target_engine=("max_num_seqs=8",)).spec


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"method": "vanilla", "draft_top_k": 5}, "--draft.top-k 5: vanilla --model target writes with the target"),
        ({"method": "vanilla", "draft_engine": "max_num_seqs=8"}, "--draft.engine max_num_seqs=8: vanilla"),
        ({"method": "vanilla", "model": "draft", "target_min_p": 0.1}, "writes with the draft alone; leave it out"),
        ({"method": "specdecode", "draft_temperature": 0.1}, "specdecode writes with the target alone"),
        ({"method": "specdecode", "temperature": 0, "min_p": 0.1}, "has no min-p under token-level speculation"),
        ({"top_k": -1}, "--top-k -1: "),
        ({"draft_min_p": 1.5}, "--draft.min-p 1.5: "),
        ({"repetition_penalty": 0}, "--repetition-penalty 0: "),
        ({"draft_template": ("effort=low",)}, "--draft demo-draft: its chat template does not read effort"),
        ({"method": "vanilla", "draft_template": ("a=1",)}, "--draft.template a=1: vanilla --model target"),
        ({"target_thinking_tags": "[THINK]"}, "--target.thinking-tags [THINK]: expected OPEN,CLOSE or none"),
        ({"draft_template": ("a=1",), "engine": "scripted"}, "scripted engines have no chat template"),
        ({"target_engine": ("max_num_seqs",)}, "--target.engine max_num_seqs: expected KEY=VALUE"),
        ({"target_engine": ("max num=8",)}, "expected KEY=VALUE"),
        ({"target_engine": ("max_num_seqs=",)}, "expected KEY=VALUE"),
        ({"target_engine": ("max_num_seqs=8", "max_num_seqs=9")}, "max_num_seqs is given twice"),
        ({"target_engine": ("dtype=float16",)}, "--target.engine dtype=float16: give --dtype"),
        ({"draft_engine": ("gpu_memory_utilization=0.5",)}, "give --draft.memory"),
        ({"draft_engine": ("model=other",)}, "--draft names the model"),
        ({"target_engine": ("trust_remote_code=true",)}, "code that is not part of the recorded code"),
        ({"target_engine": ("hf_token=hf_x",)}, "credentials come from the environment"),
        ({"target_engine": ("max_num_seqs=8",), "engine": "transformers"}, "needs --engine vllm, not transformers"),
    ],
)  # fmt: skip
def test_a_wrong_setting_of_one_model_gets_one_line(flags: dict[str, Any], message: str) -> None:
    assert message in refusal(**flags)


def test_a_model_without_a_chat_template_is_named(tmp_path: Path) -> None:
    folder = shutil.copytree(pair_folder("demo-draft"), tmp_path / "bare")
    for file in (folder / "chat_template.jinja", folder / "tokenizer_config.json"):
        if file.suffix == ".json":
            file.write_text(json.dumps({k: v for k, v in json.loads(file.read_text()).items() if k != "chat_template"}))
        else:
            file.unlink(missing_ok=True)
    told = list(check_prompts(LAUNCH, planned(draft=str(folder)).spec))
    assert [n for n in told if n.startswith("NO CHAT TEMPLATE: draft bare has none")]
    assert list(check_prompts(LAUNCH, planned().spec)) == []


def test_conventions_are_recorded_by_model() -> None:
    spec = RunSpec.from_json(
        planned(target_thinking_tags="none", draft_thinking_tags="[THINK],[/THINK]").spec.to_json()
    )
    assert tuple(spec.settings[role].thinking_tags for role in ROLES[:2]) == ("[THINK],[/THINK]", "none")
    assert spec.prompt_date is not None
    assert spec.conventions("target") == Conventions(thinking_tags="none", date=spec.prompt_date)
    assert with_settings(SPEC, "draft", template={"a": 1}).conventions("draft").values == {"a": 1}


def test_a_data_type_is_that_of_all_models_or_each_models_own() -> None:
    alike, apart = planned(dtype="float16").spec, planned(dtype="float16", target_dtype="float32").spec
    assert {model.dtype for model in alike.models.values() if model} == {"float16"}
    assert RunSpec.from_json(apart.to_json()) == apart
    row = spec_columns(apart)
    assert (row["engine_draft_dtype"], row["engine_target_dtype"]) == ("float16", "float32")
    assert (spec_columns(alike)["engine_dtype"], row["engine_dtype"]) == ("float16", "draft float16, target float32")
