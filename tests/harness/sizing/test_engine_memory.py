"""The memory that weights and caches take, from a model's configuration."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.sizing.memory import read_shape, shape_of
from tests.harness.sizing.shapes import LLAMA_3_8B, QWEN3_1_7B, QWEN3_8B, QWQ_32B, R1_1_5B, R1_7B, shape

GIB = 1 << 30


@pytest.mark.parametrize(
    ("config", "width", "measured_gib"),
    [
        # vLLM's logs: PR vllm-project/vllm#10511 for Llama-3-8B, issue #15815 for Qwen2.5-32B, which has QwQ's sizes.
        (LLAMA_3_8B, 1, 14.96),
        (LLAMA_3_8B, 2, 7.48),
        (QWQ_32B, 2, 30.71),
    ],
)
def test_weights_are_those_that_vllm_reports(config: dict[str, Any], width: int, measured_gib: float) -> None:
    assert shape(config).weight_bytes(width) / GIB == pytest.approx(measured_gib, rel=0.01)


def test_a_token_takes_what_vllm_reports() -> None:
    # 7.71 GiB held 3,947 blocks of 16 tokens on each of two cards (vllm-project/vllm#15815).
    assert 7.71 * GIB / shape(QWQ_32B).kv_bytes_per_token(2) == pytest.approx(3947 * 16, rel=0.001)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"kv_lora_rank": 512}, "latent attention"),
        ({"layer_types": ["full_attention", "linear_attention"]}, "some layers"),
        ({"model_type": "mistral", "sliding_window": 4096}, "sliding-window attention (4096 tokens)"),
        ({"model_type": "jamba"}, "unknown model type 'jamba'"),
    ],
)
def test_a_cache_that_is_not_the_same_for_every_token_is_unknown(changes: dict[str, Any], reason: str) -> None:
    assert reason in (shape({**QWEN3_8B, **changes}).kv_unknown or "")


@pytest.mark.parametrize("wrong", [None, 0, True, "40", 1 << 40, 2.5])
def test_a_size_that_is_none_is_refused_in_one_line(wrong: object) -> None:
    with pytest.raises(ValueError, match="has no valid num_attention_heads"):
        read_shape("model", {**QWQ_32B, "num_attention_heads": wrong})


def test_float32_is_loaded_in_two_bytes_unless_it_is_asked_for() -> None:
    stored = shape({**R1_1_5B, "torch_dtype": "float32"})
    assert stored.weight_bytes(1) == shape(R1_1_5B).weight_bytes(1)
    assert stored.weight_bytes(1, "float32") == 2 * stored.weight_bytes(1)
    assert stored.kv_bytes_per_token(1, "float32") == 2 * stored.kv_bytes_per_token(1)


def a_folder(folder: Path, config: dict[str, Any], **files: int) -> str:
    (folder / "config.json").write_text(json.dumps(config))
    for name, size in files.items():
        with (folder / f"{name}.safetensors").open("wb") as file:
            file.truncate(size)
    return str(folder)


def test_the_files_of_a_quantized_model_decide(tmp_path: Path) -> None:
    config = {**QWQ_32B, "quantization_config": {"quant_method": "awq"}}
    known = shape_of("awq", a_folder(tmp_path, config, one=10 * GIB, two=9 * GIB))
    assert known is not None
    assert not known.is_assumed
    assert known.weight_bytes(1) == pytest.approx(19 * GIB, rel=0.001)
    assert known.weight_bytes(2) == pytest.approx(9.5 * GIB, rel=0.01)


def test_the_configuration_in_the_cache_decides(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    snapshot = tmp_path / "models--Qwen--QwQ-32B" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    a_folder(snapshot, {**QWQ_32B, "num_hidden_layers": 3})
    known = shape_of("qwq-32b", "Qwen/QwQ-32B", "abc")
    assert known is not None
    assert (known.layers, known.is_assumed) == (3, False)


MIXTURE = {
    **QWEN3_8B, "model_type": "qwen3_moe", "num_hidden_layers": 2, "hidden_size": 512, "num_key_value_heads": 4,
    "num_experts": 16, "moe_intermediate_size": 256, "num_experts_per_tok": 4, "vocab_size": 6400,
}  # fmt: skip


@pytest.mark.parametrize("config", [R1_1_5B, QWQ_32B, QWEN3_1_7B, MIXTURE], ids=["1.5B", "32B", "1.7B", "experts"])
def test_parameters_are_as_many_as_the_model_has(config: dict[str, Any]) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    with torch.device("meta"):  # nothing is allocated
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config))
    number = sum(parameter.numel() for parameter in model.parameters())
    assert number <= shape(config).parameters(1) <= number * 1.001


@pytest.mark.vllm
@pytest.mark.parametrize("config", [R1_1_5B, R1_7B, QWQ_32B], ids=["12 heads", "28 heads", "40 heads"])
def test_vllm_takes_the_same_widths_and_the_same_bytes_per_token(tmp_path: Path, config: dict[str, Any]) -> None:
    import torch
    from vllm.config import ModelConfig
    from vllm.v1.kv_cache_interface import FullAttentionSpec

    (tmp_path / "config.json").write_text(json.dumps({**config, "architectures": ["Qwen2ForCausalLM"]}))
    model = ModelConfig(str(tmp_path), skip_tokenizer_init=True, max_model_len=4096)
    for width in range(1, 9):
        parallel: Any = SimpleNamespace(
            tensor_parallel_size=width, pipeline_parallel_size=1, decode_context_parallel_size=1,
            enable_expert_parallel=False, enable_hc_sp=False,
        )  # fmt: skip
        reason = shape(config).refusal(width)
        if reason is not None and "attention heads" in reason:
            with pytest.raises(ValueError, match="must be divisible by tensor parallel size"):
                model.verify_with_parallel_config(parallel)
        elif reason is None:  # other reasons are those of the layers, which are not made here
            model.verify_with_parallel_config(parallel)
            heads, size = model.get_num_kv_heads(parallel), model.get_head_size()
            block = FullAttentionSpec(block_size=16, num_kv_heads=heads, head_size=size, dtype=torch.bfloat16)
            layers = model.get_total_num_hidden_layers()
            assert block.page_size_bytes * layers == 16 * shape(config).kv_bytes_per_token(width)
