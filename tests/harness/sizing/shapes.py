"""Shapes of models that the tests of planning share, with the figures of their configurations."""

from __future__ import annotations

from harness.sizing.card_plan import Demand
from harness.sizing.memory import ModelShape, read_shape

R1_1_5B = {
    "model_type": "qwen2", "num_hidden_layers": 28, "hidden_size": 1536, "num_attention_heads": 12,
    "num_key_value_heads": 2, "intermediate_size": 8960, "vocab_size": 151936, "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16", "tie_word_embeddings": False,
}  # fmt: skip
R1_7B = {
    **R1_1_5B, "hidden_size": 3584, "num_attention_heads": 28, "num_key_value_heads": 4, "intermediate_size": 18944,
    "vocab_size": 152064,
}  # fmt: skip
QWQ_32B = {
    **R1_1_5B, "num_hidden_layers": 64, "hidden_size": 5120, "num_attention_heads": 40, "num_key_value_heads": 8,
    "intermediate_size": 27648, "vocab_size": 152064, "max_position_embeddings": 40960,
}  # fmt: skip
LLAMA_3_8B = {
    "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16", "tie_word_embeddings": False,
}  # fmt: skip
QWEN3_1_7B = {
    "model_type": "qwen3", "num_hidden_layers": 28, "hidden_size": 2048, "num_attention_heads": 16,
    "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 6144, "vocab_size": 151936,
    "max_position_embeddings": 40960, "torch_dtype": "bfloat16", "tie_word_embeddings": True,
}  # fmt: skip
QWEN3_8B = {
    **QWEN3_1_7B, "num_hidden_layers": 36, "hidden_size": 4096, "num_attention_heads": 32, "intermediate_size": 12288,
    "tie_word_embeddings": False,
}  # fmt: skip


def shape(config: dict[str, object], name: str = "model") -> ModelShape:
    return read_shape(name, config)


def demand(name: str, config: dict[str, object], **changes: object) -> Demand:
    """Return what an engine has to hold for 64 samples of 9,000 tokens."""
    values = {"context_tokens": 9000, "sample_tokens": 9000, "num_samples": 64, "num_logits": 64, **changes}
    return Demand(name=name, shape=shape(config, name), **values)  # type: ignore[arg-type]
