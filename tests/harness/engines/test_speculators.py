"""Which weights may propose tokens for a target, decided from configuration files alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.engines import speculators
from harness.engines.speculators import SPECULATORS, check_pair, config_at_hand, has_prediction_layers, resolve
from harness.weights.models import ModelRef
from tests.harness.engines.heads import EAGLE3_CONFIG, MTP_CONFIG, save_config, target_config

HARNESS = Path(speculators.__file__).parents[1]
PUBLISHED_FORMAT: dict[str, Any] = {
    "architectures": ["Eagle3Speculator"],
    "speculators_model_type": "eagle3",
    "draft_vocab_size": 16,
    "target_hidden_size": None,
    "speculators_config": {"algorithm": "eagle3", "verifier": {"name_or_path": "org/target"}},
    "transformer_layer_config": {"hidden_size": 64, "vocab_size": 384, "model_type": "llama"},
}
"""The layout of the speculators library: sizes are one level down, and the target is named."""


def _reference(folder: Path, config: dict[str, Any]) -> ModelRef:
    return ModelRef(folder.name, str(save_config(folder, config)), None, "fingerprint")


@pytest.fixture
def target(tmp_path: Path) -> ModelRef:
    return _reference(tmp_path / "target", target_config())


@pytest.mark.parametrize("config", [EAGLE3_CONFIG, PUBLISHED_FORMAT], ids=["plain", "speculators library"])
def test_a_head_of_the_targets_sizes_fits(config: dict[str, Any], target: ModelRef, tmp_path: Path) -> None:
    check_pair("eagle3", target, _reference(tmp_path / "head", config))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (EAGLE3_CONFIG | {"hidden_size": 96}, "with a hidden size of 96, and target has 64: a head works only with"),
        (EAGLE3_CONFIG | {"target_hidden_size": 128}, "with a hidden size of 128, and target has 64"),
        (EAGLE3_CONFIG | {"vocab_size": 400}, "with a vocabulary of 400, and target has 384"),
        (
            PUBLISHED_FORMAT | {"transformer_layer_config": {"hidden_size": 64, "vocab_size": 512}},
            "with a vocabulary of 512, and target has 384",
        ),
        (target_config(), "is not an EAGLE-3 head but LlamaForCausalLM: a whole model proposes"),
        ({"model_type": "llama", "architectures": 3}, "is not an EAGLE-3 head but llama"),
    ],
)
def test_a_head_of_another_target_or_no_head_is_refused_in_one_line(
    config: dict[str, Any], message: str, target: ModelRef, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message) as refusal:
        check_pair("eagle3", target, _reference(tmp_path / "head", config))
    assert "\n" not in str(refusal.value)


def test_a_head_with_its_own_hidden_size_fits_where_it_reads_the_targets(target: ModelRef, tmp_path: Path) -> None:
    check_pair(
        "eagle3", target, _reference(tmp_path / "head", EAGLE3_CONFIG | {"hidden_size": 96, "target_hidden_size": 64})
    )


def test_a_head_is_no_draft_and_a_draft_with_other_tokens_cannot_be_sampled(target: ModelRef, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is an EAGLE-3 head: give --spec-decode eagle3"):
        check_pair("draft", target, _reference(tmp_path / "head", EAGLE3_CONFIG))
    padded = _reference(tmp_path / "padded", target_config() | {"vocab_size": 512})
    check_pair("draft", target, padded)
    with pytest.raises(ValueError, match="probabilistic: padded and target have 512 and 384 tokens"):
        check_pair("draft", target, padded, samples_drafts=True)


def test_mtp_needs_a_target_with_prediction_layers(target: ModelRef, tmp_path: Path) -> None:
    check_pair("mtp", _reference(tmp_path / "mtp", MTP_CONFIG), None)
    check_pair("mtp", target, _reference(tmp_path / "layers", MTP_CONFIG))
    with pytest.raises(ValueError, match="target has no layers for multi-token prediction"):
        check_pair("mtp", target, None)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"num_nextn_predict_layers": 1}, True),
        ({"num_nextn_predict_layers": 0}, False),
        ({"text_config": {"mtp_num_hidden_layers": 1}}, True),
        ({"architectures": ["MiMoV2ForCausalLM"]}, True),
        ({"architectures": ["Qwen2ForCausalLM"]}, False),
    ],
)
def test_prediction_layers_are_read_from_the_configuration(config: dict[str, Any], expected: bool) -> None:
    assert has_prediction_layers(config) is expected


def test_what_is_not_on_this_machine_is_left_to_vllm(target: ModelRef) -> None:
    away = ModelRef("org/away", "org/away", "0" * 40, None)
    assert config_at_hand(away) is None
    check_pair("eagle3", target, away)
    check_pair("mtp", away, None)


def test_the_hubs_cache_is_at_hand(target: ModelRef, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    save_config(tmp_path / "hub" / "models--org--head" / "snapshots" / "abc", EAGLE3_CONFIG | {"vocab_size": 9})
    with pytest.raises(ValueError, match="with a vocabulary of 9"):
        check_pair("eagle3", target, ModelRef("org/head", "org/head", "abc", None))


@pytest.mark.parametrize("text", ["[]", "{", "[" * 100_000, '{"a": "' + "x" * (5 << 20) + '"}'])
def test_a_hostile_configuration_is_refused_in_one_line(text: str, target: ModelRef, tmp_path: Path) -> None:
    (tmp_path / "head").mkdir()
    (tmp_path / "head" / "config.json").write_text(text)
    with pytest.raises(ValueError, match="is not a valid configuration") as refusal:
        check_pair("eagle3", target, ModelRef("head", str(tmp_path / "head"), None, "f"))
    assert len(str(refusal.value)) < 400


def test_a_head_of_a_target_of_another_name_is_warned_of(tmp_path: Path) -> None:
    head = _reference(tmp_path / "head", PUBLISHED_FORMAT)
    named, other = (ModelRef(name, name, None, None) for name in ("org/target", "org/fine-tune"))
    assert speculators.other_target_notice(named, head) is None
    assert "trained for org/target, not for org/fine-tune" in str(speculators.other_target_notice(other, head))
    unnamed = _reference(tmp_path / "unnamed", EAGLE3_CONFIG)
    assert speculators.other_target_notice(other, unnamed) is None


def test_short_names_are_resolved_and_the_table_of_the_readme_has_them() -> None:
    assert resolve("Qwen3-32B-eagle3").path_or_hub_id == "RedHatAI/Qwen3-32B-speculator.eagle3"
    readme = (HARNESS / "engines" / "README.md").read_text(encoding="utf-8")
    for speculator in SPECULATORS.values():
        assert f"`{speculator.hub_id}`" in readme
        assert f"`{speculator.name}`" in readme


def test_checks_need_neither_torch_nor_vllm(tmp_path: Path) -> None:
    save_config(tmp_path / "target", target_config())
    save_config(tmp_path / "head", EAGLE3_CONFIG)
    program = (
        "import json, sys; from harness.engines import speculators; from harness.weights.models import ModelRef; "
        "target, head = (ModelRef(p, p, None, 'f') for p in sys.argv[1:]); "
        "speculators.check_pair('eagle3', target, head); "
        "print(json.dumps([m for m in ('torch', 'vllm', 'transformers') if m in sys.modules]))"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "target"), str(tmp_path / "head")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []
