"""The sizes that are calculated from a configuration, beside those of the libraries that load the model."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.harness.sizing.shapes import QWEN3_1_7B, QWEN3_8B, QWQ_32B, R1_1_5B, R1_7B, shape

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
            tensor_parallel_size=width,
            pipeline_parallel_size=1,
            decode_context_parallel_size=1,
            enable_expert_parallel=False,
            enable_hc_sp=False,
        )
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
