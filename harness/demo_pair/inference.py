"""Batched generation and verdicts of the pair's models, for the draft's mistakes and for the evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import LlamaForCausalLM

from harness import prompts
from harness.demo_pair import network
from harness.demo_pair.stories import Story
from harness.weights.tokenizer import HFTokenizer

MAX_TOKENS = 280
_ROWS = 128


def solve(
    model: LlamaForCausalLM, tokenizer: HFTokenizer, stories: Sequence[Story], *, n: int, temperature: float, seed: int
) -> list[list[str]]:
    """Return `n` complete replies to each problem; temperature 0 is greedy. Shape (stories, n)."""
    prompt_ids = [prompts.opening(tokenizer, story.problem)[0] for story in stories]
    return _generate(model, tokenizer, prompt_ids, [], n=n, temperature=temperature, seed=seed)


def propose(
    model: LlamaForCausalLM,
    tokenizer: HFTokenizer,
    steps: Sequence[tuple[Story, int]],
    *,
    n: int,
    temperature: float,
    seed: int,
) -> list[list[str]]:
    """Return `n` proposals for each step (a story and a step number), given the right steps before it.

    Shape (steps, n).
    """
    prompt_ids = [prompt_before_step(tokenizer, story, number) for story, number in steps]
    step_end = tokenizer.encode(prompts.STEP_END)
    return _generate(model, tokenizer, prompt_ids, step_end, n=n, temperature=temperature, seed=seed)


def prompt_before_step(tokenizer: HFTokenizer, story: Story, steps: int) -> list[int]:
    """Return the prompt ids of a problem followed by the first `steps` steps of its solution."""
    ids = prompts.opening(tokenizer, story.problem)[0]
    for number in range(steps):
        ids = ids + tokenizer.encode(story.step(number))
    return ids


def _generate(
    model: LlamaForCausalLM,
    tokenizer: HFTokenizer,
    prompt_ids: Sequence[Sequence[int]],
    stop: Sequence[int],
    *,
    n: int,
    temperature: float,
    seed: int,
) -> list[list[str]]:
    """Return `n` continuations of each prompt, up to and including a token of `stop`, or to the end of sequence."""
    torch.manual_seed(seed)
    end = tokenizer.eos_token_id
    sampling: dict[str, Any] = {"do_sample": False}
    if temperature > 0:
        sampling = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
    continuations: list[list[str]] = []
    for start in range(0, len(prompt_ids), _ROWS):
        rows = prompt_ids[start : start + _ROWS]
        width = max(map(len, rows))
        ids = torch.tensor([[end] * (width - len(row)) + [*row] for row in rows], device=model.device)
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows], device=model.device)
        out: Any = model.generate(
            input_ids=ids, attention_mask=mask, max_new_tokens=MAX_TOKENS, num_return_sequences=n,
            pad_token_id=end, eos_token_id=[end, *stop], **sampling,
        )  # fmt: skip
        texts = [tokenizer.decode([i for i in row[width:].tolist() if i != end]) for row in out]
        continuations += [texts[i : i + n] for i in range(0, len(texts), n)]
    return continuations


def verdict_probabilities(
    model: LlamaForCausalLM, questions: Sequence[tuple[Sequence[int], Sequence[int]]]
) -> list[list[float]]:
    """Return, for each question (prompt ids and option ids), the probability of each option.

    Probabilities are normalised over the question's options.
    """
    order = sorted(range(len(questions)), key=lambda i: len(questions[i][0]))
    probabilities: dict[int, list[float]] = {}
    for start in range(0, len(order), _ROWS):
        rows = order[start : start + _ROWS]
        prompt_ids = [questions[i][0] for i in rows]
        width = max(map(len, prompt_ids))
        ids = torch.tensor([[*row, *[0] * (width - len(row))] for row in prompt_ids], device=model.device)
        last = torch.tensor([len(row) - 1 for row in prompt_ids], device=model.device)
        with torch.no_grad():
            logits = network.logits(model, network.hidden_states(model, ids)[-1][torch.arange(len(rows)), last])
        for row, i in enumerate(rows):
            probabilities[i] = logits[row, list(questions[i][1])].softmax(-1).tolist()
    return [probabilities[i] for i in range(len(questions))]
