"""Tiny heads that propose tokens for a tiny target, made on the spot: random weights, real configuration files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.harness.conftest import save_tokenizer

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
    "architectures": ["MiMoForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "vocab_size": 384,
    "num_nextn_predict_layers": 1,
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "torch_dtype": "float32",
}


def save_config(folder: Path, config: dict[str, Any]) -> Path:
    """Write a model folder without weights."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def target_config() -> dict[str, Any]:
    """The configuration of a Llama with enough layers for an EAGLE-3 head."""
    left_out = ("draft_vocab_size", "architectures", "torch_dtype")
    common = {key: value for key, value in EAGLE3_CONFIG.items() if key not in left_out}
    return common | {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": LAYERS, "initializer_range": 0.3}


def save_target(folder: Path) -> Path:
    """A random Llama with enough layers for an EAGLE-3 head."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    save_tokenizer(folder)
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(**target_config())).float().save_pretrained(folder)
    return folder


def save_eagle3_head(folder: Path, proposes: int) -> Path:
    """An EAGLE-3 head that proposes the same token again and again; its vocabulary begins with that token."""
    import torch
    from safetensors.torch import save_file

    save_config(folder, EAGLE3_CONFIG)
    torch.manual_seed(0)
    size, inner, vocabulary = (EAGLE3_CONFIG[key] for key in ("hidden_size", "intermediate_size", "draft_vocab_size"))
    shapes = {
        "fc.weight": (size, 3 * size),
        "midlayer.self_attn.q_proj.weight": (size, 2 * size),
        "midlayer.self_attn.k_proj.weight": (size, 2 * size),
        "midlayer.self_attn.v_proj.weight": (size, 2 * size),
        "midlayer.self_attn.o_proj.weight": (size, size),
        "midlayer.mlp.gate_proj.weight": (inner, size),
        "midlayer.mlp.up_proj.weight": (inner, size),
        "midlayer.mlp.down_proj.weight": (size, inner),
        "lm_head.weight": (vocabulary, size),
    }
    weights = {name: 0.3 * torch.randn(shape) for name, shape in shapes.items()}
    norms = ("midlayer.hidden_norm", "midlayer.input_layernorm", "midlayer.post_attention_layernorm")
    weights |= {f"{name}.weight": torch.ones(size) for name in norms}
    weights["norm.weight"] = torch.zeros(size)  # all logits are equal, so that the first token of the vocabulary wins
    weights["d2t"] = torch.full((vocabulary,), proposes, dtype=torch.int64)
    weights["t2d"] = torch.tensor([proposes <= i < proposes + vocabulary for i in range(EAGLE3_CONFIG["vocab_size"])])
    save_file(weights, folder / "model.safetensors")
    return folder
