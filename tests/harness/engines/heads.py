"""Tiny heads that propose tokens for a tiny target, made on the spot: random weights, real configuration files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

LAYERS = 8
"""Layers of the target: an EAGLE-3 head reads the hidden states of the third, the middle and the third from last."""
EAGLE3_CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "vocab_size": 384,
    "draft_vocab_size": 16,
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "torch_dtype": "float32",
}
MTP_CONFIG: dict[str, Any] = {
    **{key: value for key, value in EAGLE3_CONFIG.items() if key not in ("draft_vocab_size", "head_dim")},
    "architectures": ["MiMoForCausalLM"],
    "model_type": "qwen2",
    "num_hidden_layers": 2,
    "num_nextn_predict_layers": 1,
}


def save_config(folder: Path, config: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def target_config() -> dict[str, Any]:
    """The configuration of a Llama with enough layers for an EAGLE-3 head."""
    left_out = ("draft_vocab_size", "architectures", "torch_dtype")
    common = {key: value for key, value in EAGLE3_CONFIG.items() if key not in left_out}
    return common | {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": LAYERS, "initializer_range": 0.3}
