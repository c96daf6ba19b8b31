"""Which models engines can write with is told from their configuration, with what is installed and without."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.engines import architectures
from harness.engines.architectures import unknown_here, writes_nothing
from harness.weights.models import BUNDLED, pair_folder

OWN_CODE = {"AutoConfig": "configuration_x.XConfig", "AutoModelForCausalLM": "modeling_x.XForCausalLM"}


def folder_of(tmp_path: Path, config: dict[str, Any], tokenizer: dict[str, Any] | None = None) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "tokenizer.json").write_text("{}")
    if tokenizer is not None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    return tmp_path


def of(architecture: str, model_type: str, **more: Any) -> dict[str, Any]:
    return {"architectures": [architecture], "model_type": model_type, **more}


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (of("BertForMaskedLM", "bert"), "BertForMaskedLM writes no text"),
        (of("XLMRobertaModel", "xlm-roberta"), "writes no text"),
        (of("CLIPModel", "clip"), "writes no text"),
        (of("Qwen2ForProcessRewardModel", "qwen2", auto_map={"AutoModel": "x.X"}), "writes no text"),
        (of("LlamaForSequenceClassification", "llama"), "writes no text"),
        (of("T5ForConditionalGeneration", "t5", is_encoder_decoder=True), "is an encoder with a decoder"),
        (of("WhisperForConditionalGeneration", "whisper", is_encoder_decoder=True), "is an encoder with a decoder"),
        (of("Qwen2ForCausalLM", "qwen2", is_encoder_decoder=False), None),
        (of("Gemma3ForConditionalGeneration", "gemma3"), None),
        (of("XForCausalLM", "x", auto_map=OWN_CODE), None),
        ({"model_type": "llama"}, None),
    ],
)
def test_what_writes_no_text_is_known_from_its_name_alone(
    tmp_path: Path, config: dict[str, Any], reason: str | None
) -> None:
    found = writes_nothing(folder_of(tmp_path, config))
    assert (found is None) if reason is None else (found is not None and reason in found)


@pytest.mark.needs_tool("vllm")
@pytest.mark.parametrize("engine", ["vllm", "transformers"])
@pytest.mark.parametrize(
    ("config", "tokenizer", "reason"),
    [
        (of("Qwen2ForCausalLM", "qwen2"), None, None),
        (of("Qwen3ForCausalLM", "qwen3"), {"tokenizer_class": "Qwen2Tokenizer"}, None),
        (of("LlamaForCausalLM", "llama"), {"tokenizer_class": "PreTrainedTokenizerFast"}, None),
        (of("Gemma3ForConditionalGeneration", "gemma3"), {"tokenizer_class": "GemmaTokenizerFast"}, None),
        # Phi-3 comes with code that the libraries do not need.
        (of("Phi3ForCausalLM", "phi3", auto_map=OWN_CODE), {"tokenizer_class": "LlamaTokenizer"}, None),
        ({"model_type": "llama"}, None, None),
        (of("XForCausalLM", "x"), None, "write with no XForCausalLM of type x"),
        (of("XForCausalLM", "x", auto_map=OWN_CODE), None, "needs the code that comes with the model"),
        (
            of("LlamaForCausalLM", "llama"),
            {"tokenizer_class": "XTokenizer", "auto_map": {"AutoTokenizer": ["tokenization_x.XTokenizer", None]}},
            "tokenizer_config.json: XTokenizer needs the code that comes with the model",
        ),
        (
            of("LlamaForCausalLM", "llama"),
            {"tokenizer_class": "LlamaTokenizerFast", "auto_map": {"AutoTokenizer": ["tokenization_x.XTokenizer"]}},
            None,
        ),
    ],
)
def test_what_the_installed_packages_load_without_code_of_the_model(
    tmp_path: Path, engine: str, config: dict[str, Any], tokenizer: dict[str, Any] | None, reason: str | None
) -> None:
    found = unknown_here(folder_of(tmp_path, config, tokenizer), engine)
    assert (found is None) if reason is None else (found is not None and reason in found)


@pytest.mark.needs_tool("vllm")
def test_an_encoder_is_none_of_the_models_that_write(tmp_path: Path) -> None:
    assert unknown_here(folder_of(tmp_path, of("MistralModel", "mistral")), "vllm") is not None


def test_nothing_is_unknown_where_no_library_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for known in (architectures._written_with, architectures._model_types, architectures._tokenizer_classes):
        known.cache_clear()
    monkeypatch.setattr(architectures, "source", lambda module: None)
    assert unknown_here(folder_of(tmp_path, of("XForCausalLM", "x")), "vllm") is None
    for known in (architectures._written_with, architectures._model_types, architectures._tokenizer_classes):
        known.cache_clear()


@pytest.mark.parametrize("name", BUNDLED)
def test_the_bundled_models_are_known(name: str) -> None:
    folder = pair_folder(name)
    assert [writes_nothing(folder), unknown_here(folder, "vllm"), unknown_here(folder, "transformers")] == [None] * 3


def test_no_library_is_imported_for_it() -> None:
    program = (
        "import sys; from harness.engines import architectures; from harness.weights.models import pair_folder; "
        "architectures.unknown_here(pair_folder('demo-draft'), 'vllm'); "
        "print([name for name in ('torch', 'transformers', 'vllm') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
