"""Arguments of vLLM and models that can write are told from what is installed, without an import of it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.engine import Json
from harness.engines import libraries, vllm
from harness.engines.libraries import unknown_here, writes_nothing
from harness.engines.settings import pair_settings
from harness.weights.models import BUNDLED, pair_folder

needs_vllm = pytest.mark.needs_tool("vllm")
_DECLARATIONS = """
from typing import Any, Literal
from vllm.config.cache import CacheDType

class EngineArgs:
    kv_cache_dtype: CacheDType = "auto"
    max_num_seqs: int | None = None
    cpu_offload_gb: float = 0
    enforce_eager: bool = False
    generation_config: str = "auto"
    backend: Literal["one", "two"] | None = None
    attention_config: AttentionConfig = None
    overrides: "dict[str, Any] | None" = None

class AsyncEngineArgs(EngineArgs):
    enable_log_requests: bool = False
"""


@pytest.fixture
def an_installed_vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package of that name which cannot be imported."""
    package = tmp_path / "vllm"
    for folder in (package, package / "engine", package / "config"):
        folder.mkdir()
        (folder / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (package / "engine" / "arg_utils.py").write_text(_DECLARATIONS)
    (package / "config" / "cache.py").write_text("from typing import Literal\nCacheDType = Literal['auto', 'fp8']\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "vllm", raising=False)
    _forget()
    yield
    _forget()


def _forget() -> None:
    for cached in (libraries._declared, libraries._source, libraries._known):
        cached.cache_clear()


@pytest.mark.usefixtures("an_installed_vllm")
@pytest.mark.parametrize(
    ("name", "value", "valid"),
    [
        ("kv_cache_dtype", "fp9", "valid: auto, fp8"),
        ("max_num_seqs", "many", "valid: a whole number"),
        ("max_num_seqs", True, "valid: a whole number"),
        ("max_num_seqs", 1.5, "valid: a whole number"),
        ("cpu_offload_gb", "all", "valid: a whole number or a number"),
        ("enforce_eager", 1, "valid: true or false"),
        ("generation_config", 3, "valid: text"),
        ("backend", "three", "valid: one, two"),
        ("overrides", "x", "valid: a JSON object"),
        ("max_num_seq", 8, "not an argument of this vLLM's engine; did you mean max_num_seqs?"),
    ],
)
def test_names_and_types_are_those_that_the_installed_vllm_declares(name: str, value: Any, valid: str) -> None:
    with pytest.raises(ValueError, match=r"^--target.engine ") as refused:
        libraries.check("target", {name: value})
    assert str(refused.value).endswith(valid)


@pytest.mark.usefixtures("an_installed_vllm")
def test_what_fits_its_declaration_is_accepted() -> None:
    values: dict[str, Json] = {
        "kv_cache_dtype": "fp8",
        "max_num_seqs": 8,
        "cpu_offload_gb": 2,
        "enforce_eager": True,
        "backend": "two",
    }
    libraries.check("draft", values | {"attention_config": {"backend": "x"}, "overrides": {"a": 1}})
    libraries.check("draft", {"enable_log_requests": True, "generation_config": "vllm"})


def test_without_vllm_only_what_the_harness_sets_itself_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    _forget()
    monkeypatch.setattr(libraries, "find_spec", lambda name: None)
    assert not libraries.is_known_here()
    libraries.check("target", {"no_such_argument": 1})
    with pytest.raises(ValueError, match=r"--target.engine max_model_len=9: give --max-context"):
        libraries.check("target", {"max_model_len": 9})
    _forget()


@needs_vllm
def test_everything_that_the_harness_sets_is_refused_or_may_be_overridden() -> None:
    declared = libraries._declared()
    assert set(libraries._RESERVED) <= set(declared)
    assert set(libraries.UNPLANNED) <= set(declared)
    for value in ("fp8", "auto"):
        libraries.check("target", {"kv_cache_dtype": value})
    with pytest.raises(ValueError, match="valid: auto, float16, bfloat16, fp8"):
        libraries.check("target", {"kv_cache_dtype": "int3"})
    with pytest.raises(ValueError, match="valid: awq, "):
        libraries.check("target", {"quantization": "nosuch"})


@needs_vllm
@pytest.mark.vllm
def test_arguments_reach_vllm_before_those_of_the_harness(tiny_models: dict[Any, Path]) -> None:
    settings = pair_settings("vllm", ("target",), dtype="float32", concurrency=4)["target"]
    own = replace(settings, arguments=(("generation_config", '"vllm"'), ("max_num_seqs", "3")))
    made = vllm.engine_arguments(str(tiny_models["target"]), None, own)
    assert (made.max_num_seqs, made.generation_config) == (3, "vllm")
    assert vllm.engine_arguments(str(tiny_models["target"]), None, settings).max_num_seqs == 4


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
    _forget()
    monkeypatch.setattr(libraries, "_source", lambda package, *files: "")
    assert unknown_here(folder_of(tmp_path, of("XForCausalLM", "x")), "vllm") is None
    libraries._known.cache_clear()


@pytest.mark.parametrize("name", BUNDLED)
def test_the_bundled_models_are_known(name: str) -> None:
    folder = pair_folder(name)
    assert [writes_nothing(folder), unknown_here(folder, "vllm"), unknown_here(folder, "transformers")] == [None] * 3


def test_no_library_is_imported_for_it() -> None:
    program = (
        "import sys; from harness.engines import libraries; from harness.weights.models import pair_folder; "
        "libraries.unknown_here(pair_folder('demo-draft'), 'vllm'); "
        "print([name for name in ('torch', 'transformers', 'vllm') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
