"""Batched generation and verdicts of the pair's models, for the draft's mistakes and for the evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from harness import prompts
from harness.weights.tokenizer import HFTokenizer
from tools.demo_pair import network
from tools.demo_pair.stories import Story

MAX_TOKENS = 280
MAX_STEP_TOKENS = 64
"""Maximum number of tokens of a step; the longest right step has 52."""
_ROWS = 128


def solve(
    model: LlamaForCausalLM, tokenizer: HFTokenizer, stories: Sequence[Story], *, n: int, temperature: float, seed: int
) -> list[list[str]]:
    """Return `n` complete replies to each problem; temperature 0 is greedy. Shape (stories, n)."""
    prompt_ids = [prompts.opening(tokenizer, story.problem)[0] for story in stories]
    return _generate(model, tokenizer, prompt_ids, [], MAX_TOKENS, n=n, temperature=temperature, seed=seed)


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
    longest = min(MAX_TOKENS, MAX_STEP_TOKENS)
    return _generate(model, tokenizer, prompt_ids, step_end, longest, n=n, temperature=temperature, seed=seed)


def continued(
    model: LlamaForCausalLM, tokenizer: HFTokenizer, prompt_ids: Sequence[Sequence[int]], *, n: int, seed: int
) -> list[list[str]]:
    """Return `n` continuations of each chain to the end of the reply, sampled at temperature 1. Shape (chains, n)."""
    return _generate(model, tokenizer, prompt_ids, [], MAX_TOKENS, n=n, temperature=1.0, seed=seed)


def prompt_before_step(tokenizer: HFTokenizer, story: Story, steps: int, *, rubric: bool = False) -> list[int]:
    """Return the prompt ids of a problem followed by the first `steps` steps of its solution."""
    ids = prompts.opening(tokenizer, story.problem, rubric=rubric)[0]
    for number in range(steps):
        ids = ids + tokenizer.encode(story.step(number))
    return ids


def _generate(
    model: LlamaForCausalLM,
    tokenizer: HFTokenizer,
    prompt_ids: Sequence[Sequence[int]],
    stop: Sequence[int],
    max_tokens: int,
    *,
    n: int,
    temperature: float,
    seed: int,
) -> list[list[str]]:
    """Return `n` continuations of each prompt, each up to and including a token of `stop`, or up to the end of the
    sequence.
    """
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
            input_ids=ids, attention_mask=mask, max_new_tokens=max_tokens, num_return_sequences=n,
            pad_token_id=end, eos_token_id=[end, *stop], cache_implementation="static", disable_compile=True,
            **sampling,
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
    states = final_states(model, [prompt_ids for prompt_ids, _ in questions])
    logits = model.lm_head(states).detach()
    return [row[list(option_ids)].softmax(-1).tolist() for row, (_, option_ids) in zip(logits, questions, strict=True)]


def final_states(model: LlamaForCausalLM, prompt_ids: Sequence[Sequence[int]]) -> Tensor:
    """Return the hidden state after the last token of each prompt, after the final norm. Shape (prompts, width)."""
    order = sorted(range(len(prompt_ids)), key=lambda i: len(prompt_ids[i]))
    base: Any = model.model
    states: dict[int, Tensor] = {}
    for start in range(0, len(order), _ROWS):
        rows = order[start : start + _ROWS]
        width = max(len(prompt_ids[i]) for i in rows)
        padded = [[*prompt_ids[i], *[0] * (width - len(prompt_ids[i]))] for i in rows]
        last = torch.tensor([len(prompt_ids[i]) - 1 for i in rows], device=model.device)
        with torch.no_grad():
            hidden = network.hidden_states(model, torch.tensor(padded, device=model.device))[-1]
            states |= zip(rows, base.norm(hidden[torch.arange(len(rows)), last]), strict=True)
    return torch.stack([states[i] for i in range(len(prompt_ids))])
