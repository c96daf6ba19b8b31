"""What a model of the pair writes and says, asked in batches: for the draft's mistakes, and for the results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import LlamaForCausalLM

from harness import prompts
from harness.engine import Tokenizer
from harness.training import network
from harness.training.stories import Story

MAX_TOKENS = 200
_ROWS = 128


@torch.no_grad()
def write(
    model: LlamaForCausalLM, tokenizer: Tokenizer, asked: Sequence[Story], *, n: int, temperature: float, seed: int
) -> list[list[str]]:
    """`n` replies to each problem, up to their end; temperature 0 is greedy. (stories, n) texts."""
    torch.manual_seed(seed)
    end = tokenizer.eos_token_id
    written: list[list[str]] = []
    sampling: dict[str, Any] = {"do_sample": False}
    if temperature > 0:
        sampling = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
    for start in range(0, len(asked), _ROWS):
        opened = [prompts.opening(tokenizer, story.problem)[0] for story in asked[start : start + _ROWS]]
        width = max(map(len, opened))
        device = model.device
        ids = torch.tensor([[end] * (width - len(row)) + row for row in opened], device=device)
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in opened], device=device)
        out = model.generate(
            input_ids=ids, attention_mask=mask, max_new_tokens=MAX_TOKENS, num_return_sequences=n,
            pad_token_id=end, eos_token_id=end, **sampling,
        )  # fmt: skip
        texts = [tokenizer.decode([i for i in row[width:].tolist() if i != end]) for row in out]
        written += [texts[i : i + n] for i in range(0, len(texts), n)]
    return written


@torch.no_grad()
def judge(model: LlamaForCausalLM, asked: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[list[float]]:
    """For each prompt and its options, in ids: the options' probabilities among themselves."""
    order = sorted(range(len(asked)), key=lambda i: len(asked[i][0]))
    found: dict[int, list[float]] = {}
    for start in range(0, len(order), _ROWS):
        rows = order[start : start + _ROWS]
        width = max(len(asked[i][0]) for i in rows)
        ids = torch.tensor([[*asked[i][0], *[0] * (width - len(asked[i][0]))] for i in rows], device=model.device)
        last = torch.tensor([len(asked[i][0]) - 1 for i in rows], device=model.device)
        said = network.logits(model, network.streams(model, ids)[-1][torch.arange(len(rows)), last])
        for row, i in enumerate(rows):
            found[i] = said[row, list(asked[i][1])].softmax(-1).tolist()
    return [found[i] for i in range(len(asked))]
