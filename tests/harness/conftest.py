"""Tiny models made on the spot: a random Llama and a byte-level tokenizer of its own. No hub, no network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
THINK_TEMPLATE = CHAT_TEMPLATE.replace("assistant\n{% endif %}", "assistant\n<think>\n{% endif %}")
_CORPUS = (
    "Score: 0 1 2 3 4 5 6 7 8 9. Answer: A B C D E F. First we add the numbers, then we check the result.\n\n",
    "User: What is 12 + 30? Assistant: The answer is 42. So the final answer is \\boxed{42}.\n\n",
)


def save_tokenizer(folder: Path, *, template: str | None = CHAT_TEMPLATE, added: tuple[str, ...] = ()) -> None:
    """A byte-level BPE tokenizer; `added` become tokens that are not marked as special."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    backend: Any = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=384,
        special_tokens=["<|bos|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(_CORPUS * 20, trainer)
    backend.add_tokens([AddedToken(token, special=False, normalized=False) for token in added])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<|bos|>", eos_token="<|im_end|>")
    tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)


def save_tiny_model(folder: Path, *, seed: int = 0, context: int = 512, vocabulary: int = 384) -> Path:
    """A random two-layer Llama in float32 with its tokenizer, as safetensors."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    save_tokenizer(folder)
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=context,
        initializer_range=0.3,
        bos_token_id=0,
        eos_token_id=2,
    )
    LlamaForCausalLM(config).float().save_pretrained(folder)
    return folder


def save_tiny_head(folder: Path, model: Path, kind: str, *, classes: int) -> Path:
    """The tiny model with a random head in place of its vocabulary: `SequenceClassification` or `Token…`."""
    import torch
    import transformers

    torch.manual_seed(7)
    loader = getattr(transformers, f"AutoModelFor{kind}")
    loader.from_pretrained(model, num_labels=classes, dtype=torch.float32).save_pretrained(folder)
    save_tokenizer(folder)
    return folder


def save_tiny_adapter(folder: Path, model: Path, *, seed: int = 0, rank: int = 8) -> Path:
    """Random LoRA weights on the query and value projections, far from zero."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(seed)
    config = LoraConfig(r=rank, lora_alpha=32, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    base: Any = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    get_peft_model(base, config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of a tiny draft and a tiny target model with the same tokenizer."""
    root = tmp_path_factory.mktemp("models")
    return {role: save_tiny_model(root / role, seed=seed) for seed, role in enumerate(("draft", "target"))}
