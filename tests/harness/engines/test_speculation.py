"""Token-level speculation: where it cannot be had, which weights may propose tokens, and only the speed differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from harness.engine import Completion, Generation, Role, Sampling, Timing
from harness.engines import speculation
from harness.engines import speculation as speculation_module
from harness.engines.scripted import ScriptedEngine
from harness.engines.settings import EngineSettings, pair_settings
from harness.engines.speculation import (
    Proposer,
    Speculation,
    check_flags,
    check_pair,
    draft_sampling,
    greedy_drafts_notice,
    unsupported_reason,
)
from harness.engines.transformers import TransformersEngine
from harness.engines.vllm import VLLMEngine, numbers_listed
from harness.recording import Model
from harness.trace import Trace
from harness.weights.models import ModelRef
from harness.weights.tokenizer import verdict_options
from tests.harness.conftest import save_tiny_model
from tests.harness.engines.heads import (
    EAGLE3_CONFIG,
    save_config,
    save_eagle3_head,
    save_target,
    target_config,
)
from tests.requirements import skip_by_design

PROMPT = list(range(40, 140))
SAMPLING = Sampling(48, 0.0)


def test_it_is_refused_where_it_cannot_be_had() -> None:
    assert unsupported_reason("vllm", "cpu", 0.0) is None
    assert unsupported_reason("vllm", "gpu", 0.6) is None
    assert "--temperature 0" in str(unsupported_reason("vllm", "cpu", 0.6))
    assert "--engine vllm" in str(unsupported_reason("transformers", "gpu", 0.0))


def test_suffix_is_refused_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speculation_module, "find_spec", lambda name: None)
    assert "pip install arctic-inference" in str(unsupported_reason("vllm", "gpu", 0.6, "suffix"))
    assert unsupported_reason("vllm", "gpu", 0.6, "ngram") is None
    monkeypatch.setattr(speculation_module, "find_spec", lambda name: object())
    assert unsupported_reason("vllm", "gpu", 0.6, "suffix") is None


@pytest.mark.parametrize(
    ("proposer", "model", "sampling", "message"),
    [
        ("eagle3", None, None, "eagle3 needs --spec-model"),
        ("eagle3", "", None, "--spec-model is empty"),
        (None, " ", None, "--spec-model is empty"),
        ("ngram", "org/head", None, "--spec-model org/head: ngram uses no model"),
        ("suffix", None, "probabilistic", "--spec-sampling probabilistic: suffix samples nothing"),
        (None, "org/head", None, "--spec-model org/head: needs --spec-decode draft, eagle3 or mtp"),
        (None, None, "greedy", "--spec-sampling greedy: needs --spec-decode"),
    ],
)
def test_flags_that_do_not_fit_the_proposer_are_refused_in_one_line(
    proposer: Proposer | None, model: str | None, sampling: str | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message) as refusal:
        check_flags(proposer, model, sampling)
    assert "\n" not in str(refusal.value)


def test_drafts_are_greedy_unless_asked_and_only_then_a_weaker_baseline() -> None:
    assert [draft_sampling(p, None) for p in ("draft", "eagle3", "mtp", "ngram", "suffix", None)] == [
        *["greedy"] * 3,
        *[None] * 3,
    ]
    assert "temperature 0.6" in str(greedy_drafts_notice("greedy", 0.6))
    assert greedy_drafts_notice("greedy", 0.0) is None
    assert greedy_drafts_notice("probabilistic", 0.6) is None
    assert greedy_drafts_notice(None, 0.6) is None


async def test_what_was_proposed_and_confirmed_is_summed_over_the_completions_of_a_call() -> None:
    class Counting(ScriptedEngine):
        async def generate(self, prompt: Sequence[int], sampling: Sampling) -> Generation:
            plain = Completion((1,), "a", "length", 1)
            completions = (replace(plain, proposed_tokens=5, confirmed_tokens=3), replace(plain, proposed_tokens=4))
            counted = (replace(completions[1], confirmed_tokens=0), completions[0])
            return Generation(counted if sampling.n == 2 else (plain,), 1, 0, Timing(0, 0, 0, 0, 1))

    trace = Trace("s", "p", 0, 0)
    engine = Counting(lambda prompt, sampling: [""], lambda prompt, labels: [])
    model = Model(engine, "target", trace)
    for n in (2, 1):
        await model.generate([1], Sampling(1, n=n), purpose="chain", step=0)
    assert [(call.proposed_tokens, call.confirmed_tokens) for call in trace.calls] == [(9, 3), (None, None)]


def test_a_verdict_asks_for_all_tokens_only_after_many() -> None:
    assert numbers_listed(152_064) == [20, 1000, 10_000, -1]
    assert numbers_listed(512) == [20, -1]


def _settings(speculation: Speculation) -> EngineSettings:
    settings = pair_settings("vllm", ("target",), dtype="float32", concurrency=4, speculation=speculation)["target"]
    return replace(settings, kv_cache_bytes=32 << 20 if settings.device == "cpu" else None)


@pytest.mark.vllm
@pytest.mark.needs_tool("vllm")
@pytest.mark.parametrize("proposer", ["itself", "another vocabulary", "ngram", "suffix"])
async def test_greedy_text_and_verdicts_are_those_without_it(
    proposer: str, tiny_models: dict[Role, Path], tmp_path: Path
) -> None:
    if proposer == "suffix" and find_spec("arctic_inference") is None:
        skip_by_design("arctic-inference has no wheels, and building it downloads another torch")
    path = tiny_models["target"]
    drafts = {"itself": path, "another vocabulary": tmp_path / "draft"}
    if proposer == "another vocabulary":
        save_tiny_model(tmp_path / "draft", seed=7, vocabulary=512)
    kinds: dict[str, Proposer] = {"ngram": "ngram", "suffix": "suffix"}
    kind: Proposer = kinds.get(proposer, "draft")
    speculation = Speculation(kind, 3, str(drafts[proposer]) if kind == "draft" else None)
    reference = await TransformersEngine.start(str(path), "target", EngineSettings(dtype="float32"))
    engine = await VLLMEngine.start(str(path), "target", _settings(speculation), tmp_path / "engine.log")
    try:
        [written] = (await engine.generate(PROMPT, SAMPLING)).completions
        prefix, options = verdict_options(engine.tokenizer, "Score:", "0123456789")
        choice = await engine.choose(PROMPT + prefix, options)
    finally:
        await engine.close()
    [expected] = (await reference.generate(PROMPT, SAMPLING)).completions
    assert written.token_ids == expected.token_ids
    assert written.proposed_tokens is not None
    assert written.confirmed_tokens is not None
    assert 0 <= written.confirmed_tokens <= written.proposed_tokens
    if proposer == "itself":
        assert written.confirmed_tokens > 0.8 * written.proposed_tokens > 0
    assert engine.draft_sample_method == ("greedy" if kind == "draft" else None)
    expected_choice = await reference.choose(PROMPT + prefix, options)
    assert choice.logprobs == pytest.approx(expected_choice.logprobs, abs=1e-3)


@pytest.mark.vllm
@pytest.mark.needs_tool("vllm")
async def test_an_eagle3_head_changes_no_greedy_token_and_what_it_gets_right_is_confirmed(tmp_path: Path) -> None:
    target = save_target(tmp_path / "target")
    reference = await TransformersEngine.start(str(target), "target", EngineSettings(dtype="float32"))
    [expected] = (await reference.generate(PROMPT, SAMPLING)).completions
    most_of_them = EAGLE3_CONFIG["vocab_size"] - EAGLE3_CONFIG["draft_vocab_size"]
    frequent = Counter(token for token in expected.token_ids[1:] if token <= most_of_them).most_common(1)[0]
    head = save_eagle3_head(tmp_path / "head", proposes=frequent[0])
    speculation = Speculation("eagle3", 2, str(head))
    engine = await VLLMEngine.start(str(target), "target", _settings(speculation), tmp_path / "engine.log")
    try:
        [written] = (await engine.generate(PROMPT, SAMPLING)).completions
    finally:
        await engine.close()
    assert written.token_ids == expected.token_ids
    assert written.proposed_tokens is not None
    assert written.confirmed_tokens is not None
    assert 0 < written.confirmed_tokens <= frequent[1] < written.proposed_tokens
    assert engine.draft_sample_method == "greedy"


HARNESS = Path(speculation.__file__).parents[1]
PUBLISHED_FORMAT: dict[str, Any] = {
    "architectures": ["Eagle3Speculator"],
    "speculators_model_type": "eagle3",
    "draft_vocab_size": 16,
    "target_hidden_size": None,
    "speculators_config": {"algorithm": "eagle3", "verifier": {"name_or_path": "org/target"}},
    "transformer_layer_config": {"hidden_size": 64, "vocab_size": 384, "model_type": "llama"},
}
"""The layout of the speculators library: sizes are one level down, and the target is named."""


TARGET_AWAY = ModelRef("org/away", "org/away", "0" * 40, None)
"""A model that is not on this machine."""


def _reference(folder: Path, config: dict[str, Any]) -> ModelRef:
    return ModelRef(folder.name, str(save_config(folder, config)), None, "fingerprint")


def test_a_head_is_no_draft_and_a_draft_no_head(tmp_path: Path) -> None:
    target = _reference(tmp_path / "target", target_config())
    for number, config in enumerate((EAGLE3_CONFIG, PUBLISHED_FORMAT)):
        head = _reference(tmp_path / f"head-{number}", config)
        check_pair("eagle3", target, head)
        with pytest.raises(ValueError, match="is an EAGLE-3 head: give --spec-decode eagle3"):
            check_pair("draft", target, head)
    draft = _reference(tmp_path / "draft", target_config())
    check_pair("draft", target, draft)
    with pytest.raises(ValueError, match="is not an EAGLE-3 head but LlamaForCausalLM: use --spec-decode draft"):
        check_pair("eagle3", target, draft)


@pytest.mark.parametrize(
    "config",
    [EAGLE3_CONFIG | {"hidden_size": 96}, EAGLE3_CONFIG | {"target_hidden_size": 96}],
    ids=["its own", "the target's"],
)
def test_a_head_of_another_target_is_refused(config: dict[str, Any], tmp_path: Path) -> None:
    target = _reference(tmp_path / "target", target_config())
    with pytest.raises(ValueError, match="is for a target with a hidden size of 96, and target has 64"):
        check_pair("eagle3", target, _reference(tmp_path / "head", config))


def test_what_is_not_on_this_machine_is_left_to_vllm() -> None:
    check_pair("eagle3", TARGET_AWAY, TARGET_AWAY)
    check_pair("mtp", TARGET_AWAY, None)


def test_the_hubs_cache_is_at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    save_config(tmp_path / "hub" / "models--org--head" / "snapshots" / "abc", target_config())
    with pytest.raises(ValueError, match="is not an EAGLE-3 head"):
        check_pair("eagle3", TARGET_AWAY, ModelRef("org/head", "org/head", "abc", None))


@pytest.mark.parametrize("text", ["[]", "{", "[" * 100_000])
def test_a_hostile_configuration_is_refused_in_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "head").mkdir()
    (tmp_path / "head" / "config.json").write_text(text)
    with pytest.raises(ValueError, match="is not a valid configuration") as refusal:
        check_pair("eagle3", TARGET_AWAY, ModelRef("head", str(tmp_path / "head"), None, "f"))
    assert len(str(refusal.value)) < 400
