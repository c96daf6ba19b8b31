"""vLLM's own configuration is built for every proposer: a field that a version renames or refuses fails here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.engine import EngineDied
from harness.engines.settings import pair_settings
from harness.engines.speculation import DEFAULT_TOKENS, PROPOSERS, DraftSampling, Proposer, Speculation
from harness.engines.vllm_arguments import engine_arguments
from harness.engines.vllm_process import model_runner_of
from tests.harness.conftest import save_tiny_model, save_tokenizer
from tests.harness.engines.heads import EAGLE3_CONFIG, MTP_CONFIG, save_config, target_config

pytestmark = [pytest.mark.vllm, pytest.mark.needs_tool("vllm")]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Model folders with real configuration files; only the draft has weights, and none are read."""
    root = tmp_path_factory.mktemp("models")
    made = {
        "target": save_config(root / "target", target_config()),
        "eagle3": save_config(root / "eagle3", EAGLE3_CONFIG),
        "mtp": save_config(root / "mtp", MTP_CONFIG),
        "draft": save_tiny_model(root / "draft", seed=3),
        "padded": save_config(root / "padded", target_config() | {"vocab_size": 512}),
    }
    for name in ("target", "mtp", "padded"):
        save_tokenizer(made[name])
    return made


def _arguments(target: Path, speculation: Speculation) -> Any:
    settings = pair_settings("vllm", ("target",), dtype="float32", concurrency=4, speculation=speculation)["target"]
    return engine_arguments(str(target), None, replace(settings, kv_cache_bytes=32 << 20))


def _speculation(proposer: Proposer, folders: dict[str, Path], sampling: DraftSampling = "greedy") -> Speculation:
    model = {"draft": folders["draft"], "eagle3": folders["eagle3"]}.get(proposer)
    return Speculation(proposer, DEFAULT_TOKENS[proposer], str(model) if model else None, sampling=sampling)


@pytest.mark.parametrize("proposer", PROPOSERS)
def test_vllm_builds_its_configuration_for_every_proposer(
    proposer: Proposer, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    if proposer == "suffix":  # vLLM asks only whether the package is there
        import vllm.config.speculative

        monkeypatch.setattr(vllm.config.speculative, "has_arctic_inference", lambda: True)
    target = folders["mtp" if proposer == "mtp" else "target"]
    built = _arguments(target, _speculation(proposer, folders)).create_engine_config().speculative_config
    assert built.method == {"draft": "draft_model"}.get(proposer, proposer)
    assert built.num_speculative_tokens == DEFAULT_TOKENS[proposer]
    assert built.draft_sample_method == "greedy"
    assert built.rejection_sample_method == "standard"
    if proposer == "suffix":
        assert built.suffix_decoding_max_cached_requests == 0
    architectures = built.draft_model_config.architectures if proposer in ("draft", "eagle3", "mtp") else None
    expected = {"draft": ["LlamaForCausalLM"], "eagle3": ["LlamaForCausalLMEagle3"], "mtp": ["MiMoMTPModel"]}
    assert architectures == expected.get(proposer)


@pytest.mark.parametrize("proposer", ["draft", "eagle3", "mtp"])
def test_sampled_drafts_reach_vllm(proposer: Proposer, folders: dict[str, Path]) -> None:
    target = folders["mtp" if proposer == "mtp" else "target"]
    arguments = _arguments(target, _speculation(proposer, folders, "probabilistic"))
    assert arguments.create_engine_config().speculative_config.draft_sample_method == "probabilistic"


def test_sampled_drafts_of_another_vocabulary_are_refused_in_one_line(folders: dict[str, Path]) -> None:
    with pytest.raises(EngineDied, match=r"384 and 512 tokens, where vLLM cannot sample drafts: leave out"):
        _arguments(folders["padded"], _speculation("draft", folders, "probabilistic"))


@pytest.mark.parametrize(
    ("proposer", "target", "runner"),
    [("ngram", "target", "v2"), ("draft", "target", "v2"), ("suffix", "target", "v1"), ("draft", "padded", "v1")],
)
def test_the_model_runner_is_what_the_configuration_says(
    proposer: Proposer, target: str, runner: str, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    import vllm.config.speculative
    import vllm.config.vllm

    monkeypatch.delenv("VLLM_USE_V2_MODEL_RUNNER", raising=False)
    monkeypatch.setattr(vllm.config.speculative, "has_arctic_inference", lambda: True)
    config = _arguments(folders[target], _speculation(proposer, folders)).create_engine_config()
    monkeypatch.setattr(vllm.config.vllm, "HAS_TRITON", False)
    assert model_runner_of(config) == "v1", "as on a CPU"
    monkeypatch.setattr(vllm.config.vllm, "HAS_TRITON", True)
    assert model_runner_of(config) == runner
    assert model_runner_of(object()) is None, "a version that does not say"


def test_a_setting_that_this_vllm_lacks_is_named(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.engines.speculation.SAMPLING_FIELD", "sampling_of_another_version")
    with pytest.raises(EngineDied, match="this vLLM has no sampling_of_another_version"):
        _arguments(folders["target"], _speculation("eagle3", folders, "probabilistic"))


def test_models_that_also_read_images_are_loaded_for_text_alone(folders: dict[str, Path]) -> None:
    arguments = engine_arguments(
        str(folders["target"]), None, pair_settings("vllm", ("target",), device="gpu")["target"]
    )
    assert arguments.language_model_only
