"""What a model of the pair writes and says, asked in batches: for the draft's mistakes, and for the results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import LlamaForCausalLM

from harness import prompts
from harness.demo_pair import network
from harness.demo_pair.stories import Story
from harness.tokenizer import HFTokenizer

MAX_TOKENS = 280
_ROWS = 128


def solve(
    model: LlamaForCausalLM, tokenizer: HFTokenizer, asked: Sequence[Story], *, n: int, temperature: float, seed: int
) -> list[list[str]]:
    """`n` whole replies to each problem; temperature 0 is greedy. (stories, n) texts."""
    prompt_ids = [prompts.opening(tokenizer, story.problem)[0] for story in asked]
    return _written(model, tokenizer, prompt_ids, [], n=n, temperature=temperature, seed=seed)


def propose(
    model: LlamaForCausalLM,
    tokenizer: HFTokenizer,
    asked: Sequence[tuple[Story, int]],
    *,
    n: int,
    temperature: float,
    seed: int,
) -> list[list[str]]:
    """`n` proposals for a step of each story behind the right ones before it. (stories, n) texts."""
    prompt_ids = [before(tokenizer, story, number) for story, number in asked]
    step_end = tokenizer.encode(prompts.STEP_END)
    return _written(model, tokenizer, prompt_ids, step_end, n=n, temperature=temperature, seed=seed)


def before(tokenizer: HFTokenizer, story: Story, steps: int) -> list[int]:
    """Problem and the first steps of its solution, as a model is shown them."""
    ids = prompts.opening(tokenizer, story.problem)[0]
    for number in range(steps):
        ids = ids + tokenizer.encode(story.step(number))
    return ids


def _written(
    model: LlamaForCausalLM,
    tokenizer: HFTokenizer,
    asked: Sequence[Sequence[int]],
    stop: Sequence[int],
    *,
    n: int,
    temperature: float,
    seed: int,
) -> list[list[str]]:
    """What is written behind prompts of ids, up to a token of `stop`, which is part of it, or to the end."""
    torch.manual_seed(seed)
    end = tokenizer.eos_token_id
    sampling: dict[str, Any] = {"do_sample": False}
    if temperature > 0:
        sampling = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
    written: list[list[str]] = []
    for start in range(0, len(asked), _ROWS):
        rows = asked[start : start + _ROWS]
        width = max(map(len, rows))
        ids = torch.tensor([[end] * (width - len(row)) + [*row] for row in rows], device=model.device)
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows], device=model.device)
        out: Any = model.generate(
            input_ids=ids, attention_mask=mask, max_new_tokens=MAX_TOKENS, num_return_sequences=n,
            pad_token_id=end, eos_token_id=[end, *stop], **sampling,
        )  # fmt: skip
        texts = [tokenizer.decode([i for i in row[width:].tolist() if i != end]) for row in out]
        written += [texts[i : i + n] for i in range(0, len(texts), n)]
    return written


def judge(model: LlamaForCausalLM, asked: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[list[float]]:
    """For each prompt and its options, in ids: the options' probabilities among themselves."""
    order = sorted(range(len(asked)), key=lambda i: len(asked[i][0]))
    found: dict[int, list[float]] = {}
    for start in range(0, len(order), _ROWS):
        rows = order[start : start + _ROWS]
        width = max(len(asked[i][0]) for i in rows)
        ids = torch.tensor([[*asked[i][0], *[0] * (width - len(asked[i][0]))] for i in rows], device=model.device)
        last = torch.tensor([len(asked[i][0]) - 1 for i in rows], device=model.device)
        with torch.no_grad():
            said = network.logits(model, network.streams(model, ids)[-1][torch.arange(len(rows)), last])
        for row, i in enumerate(rows):
            found[i] = said[row, list(asked[i][1])].softmax(-1).tolist()
    return [found[i] for i in range(len(asked))]
