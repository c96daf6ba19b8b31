"""Token-level speculation: where it cannot be had, which weights may propose tokens, and only the speed differs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transformers import LlamaForCausalLM

from harness.engine import Sampling
from harness.engines import speculation
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
from harness.weights.models import ModelRef
from harness.weights.tokenizer import verdict_options
from tests.harness.conftest import save_tiny_model, save_tokenizer
from tests.harness.engines.heads import (
    EAGLE3_CONFIG,
    save_config,
    target_config,
)

PROMPT = list(range(40, 140))
SAMPLING = Sampling(48, 0.0)


@pytest.mark.parametrize(
    ("engine", "device", "temperature", "proposer", "named"),
    [
        ("vllm", "cpu", 0.0, "draft", None),
        ("vllm", "gpu", 0.6, "ngram", None),
        ("vllm", "cpu", 0.6, "draft", "--temperature"),
        ("transformers", "gpu", 0.0, "draft", "--engine"),
        ("vllm", "gpu", 0.6, "suffix", "arctic-inference"),
    ],
)
def test_it_is_refused_where_it_cannot_be_had(
    engine: Any, device: Any, temperature: float, proposer: Proposer, named: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speculation, "find_spec", lambda name: None)
    reason = unsupported_reason(engine, device, temperature, proposer)
    assert reason is None if named is None else named in str(reason)


@pytest.mark.parametrize(
    ("proposer", "model", "sampling", "named"),
    [
        ("eagle3", None, None, "--spec-model"),
        (None, " ", None, "--spec-model"),
        ("ngram", "org/head", None, "--spec-model"),
        ("suffix", None, "probabilistic", "--spec-sampling"),
        (None, "org/head", None, "--spec-decode"),
        (None, None, "greedy", "--spec-decode"),
    ],
)
def test_flags_that_do_not_fit_the_proposer_are_refused_in_one_line(
    proposer: Proposer | None, model: str | None, sampling: str | None, named: str
) -> None:
    with pytest.raises(ValueError, match=named) as refusal:
        check_flags(proposer, model, sampling)
    assert "\n" not in str(refusal.value)


def test_drafts_are_greedy_unless_asked_and_only_then_a_weaker_baseline() -> None:
    assert [draft_sampling(p, None) for p in ("draft", "eagle3", "mtp", "ngram", "suffix", None)] == [
        *["greedy"] * 3,
        *[None] * 3,
    ]
    noticed = [("greedy", 0.6), ("greedy", 0.0), ("probabilistic", 0.6), (None, 0.6)]
    assert [greedy_drafts_notice(*one) is not None for one in noticed] == [True, False, False, False]


def test_a_verdict_asks_for_all_tokens_only_after_many() -> None:
    assert numbers_listed(152_064) == [20, 1000, 10_000, -1]
    assert numbers_listed(512) == [20, -1]


@pytest.mark.vllm
@pytest.mark.needs_tool("vllm")
async def test_greedy_text_and_verdicts_are_those_without_it(tmp_path: Path) -> None:
    """The draft is the target itself with a padded vocabulary: vLLM proposes tokens that both tokenizers have."""
    path, folder = str(save_tiny_model(tmp_path / "target", seed=1, vocabulary=336)), tmp_path / "draft"
    save_tokenizer(folder)
    padded = LlamaForCausalLM.from_pretrained(path)
    padded.resize_token_embeddings(512)
    padded.save_pretrained(folder)
    reference = await TransformersEngine.start(path, "target", EngineSettings(dtype="float32"))
    asked: dict[str, Any] = {"dtype": "float32", "concurrency": 4, "speculation": Speculation("draft", 3, str(folder))}
    settings = pair_settings("vllm", ("target",), **asked)["target"]
    settings = replace(settings, kv_cache_bytes=32 << 20 if settings.device == "cpu" else None)
    engine = await VLLMEngine.start(path, "target", settings, tmp_path / "engine.log")
    try:
        [written] = (await engine.generate(PROMPT, SAMPLING)).completions
        prefix, options = verdict_options(engine.tokenizer, "Score:", "0123456789")
        choice = await engine.choose(PROMPT + prefix, options)
    finally:
        await engine.close()
    [expected] = (await reference.generate(PROMPT, SAMPLING)).completions
    assert written.token_ids == expected.token_ids
    assert written.proposed_tokens is not None
    assert written.accepted_tokens is not None
    assert 0.7 * written.proposed_tokens < written.accepted_tokens <= written.proposed_tokens
    assert engine.draft_sample_method == "greedy"
    expected_choice = await reference.choose(PROMPT + prefix, options)
    assert choice.logprobs == pytest.approx(expected_choice.logprobs, abs=1e-3)


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
        with pytest.raises(ValueError, match="is an EAGLE-3 head: use --spec-decode eagle3"):
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
    with pytest.raises(ValueError, match="is for a target with a hidden size of 96, but target has 64"):
        check_pair("eagle3", target, _reference(tmp_path / "head", config))


@pytest.mark.parametrize("text", ["[]", "{", "[" * 100_000])
def test_a_hostile_configuration_is_refused_in_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "head").mkdir()
    (tmp_path / "head" / "config.json").write_text(text)
    with pytest.raises(ValueError, match="is not a valid configuration") as refusal:
        check_pair("eagle3", TARGET_AWAY, ModelRef("head", str(tmp_path / "head"), None, "f"))
    assert len(str(refusal.value)) < 400
