"""What a step is worth: the probability that a chain with it still ends right, estimated by rollouts of the solver.

A rollout continues the chain behind the step, sampled at temperature 1. A solution has one wording, so behind a right
step the expected share of rollouts that write it is the product of its tokens' probabilities, which one forward pass
gives without the noise of sampling; only behind wrong steps rollouts are sampled.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from harness import prompts
from harness.demo_pair import inference, network
from harness.demo_pair.mistakes import Mistakes
from harness.demo_pair.stories import Story
from harness.demo_pair.values import Values
from harness.weights.tokenizer import HFTokenizer

_ROWS = 64


def estimated_values(
    solver: LlamaForCausalLM,
    tokenizer: HFTokenizer,
    stories: Sequence[Story],
    mistakes: Mistakes,
    rolled: int,
    samples: int,
    seed: int,
) -> Values:
    """Return the values of all right steps of the stories, and of `rolled` of the mistakes in them."""
    own = [(at, n, text) for at in range(len(stories)) for n, texts in mistakes.steps(at).items() for text in texts]
    own = random.Random(seed).sample(own, min(rolled, len(own)))
    starts = [
        (stories[at], [*inference.prompt_before_step(tokenizer, stories[at], n), *tokenizer.encode(text)])
        for at, n, text in own
    ]
    replies = inference.continued(solver, tokenizer, [ids for _, ids in starts], n=samples, seed=seed)
    shares = [
        sum(text.endswith(story.conclusion) for text in texts) / samples
        for (story, _), texts in zip(starts, replies, strict=True)
    ]
    wrong = [(*step, share) for step, share in zip(own, shares, strict=True)]
    return Values(right_values(solver, tokenizer, stories), wrong)


def right_values(solver: LlamaForCausalLM, tokenizer: HFTokenizer, stories: Sequence[Story]) -> list[list[float]]:
    """Return, for each story and each of its steps, the probability that the solver writes the right rest behind it."""
    values: dict[int, list[float]] = {}
    order = sorted(range(len(stories)), key=lambda i: len(stories[i].text) + sum(map(len, stories[i].steps)))
    for start in range(0, len(order), _ROWS):
        rows = order[start : start + _ROWS]
        values |= zip(rows, _values_of(solver, tokenizer, [stories[i] for i in rows]), strict=True)
    return [values[i] for i in range(len(stories))]


def _values_of(solver: LlamaForCausalLM, tokenizer: HFTokenizer, stories: Sequence[Story]) -> list[list[float]]:
    solutions = [Solution.of(story, tokenizer) for story in stories]
    ids, logits = solution_logits(solver, solutions)
    log_probabilities = logits.log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0].double()
    return [
        [round(float(row[end - 1 : len(solution.ids) - 1].sum().exp()), 4) for end in solution.ends[1:-1]]
        for row, solution in zip(log_probabilities, solutions, strict=True)
    ]


@dataclass(frozen=True)
class Solution:
    """The token ids of a problem with its whole solution."""

    ids: list[int]
    ends: list[int]
    """How many ids there are up to the end of the prompt, of each step, and of the conclusion."""

    @classmethod
    def of(cls, story: Story, tokenizer: HFTokenizer) -> Solution:
        """Return the solution of a story."""
        end = tokenizer.eos_token_id
        assert end is not None
        ids, ends = prompts.opening(tokenizer, story.problem)[0], []
        for number in range(len(story.steps) + 1):
            ends.append(len(ids))
            ids = [*ids, *tokenizer.encode(story.step(number))]
        return cls([*ids, end], [*ends, len(ids) + 1])


def solution_logits(model: LlamaForCausalLM, solutions: Sequence[Solution]) -> tuple[Tensor, Tensor]:
    """Return ids, (solutions, tokens), padded on the right, and the logits of all but the first of them."""
    width = max(len(solution.ids) for solution in solutions)
    rows = [solution.ids + [0] * (width - len(solution.ids)) for solution in solutions]
    ids = torch.tensor(rows, device=model.device)
    with torch.no_grad():
        return ids, network.logits(model, network.hidden_states(model, ids)[-1])[:, :-1]


def sampled_mistakes(
    draft: LlamaForCausalLM,
    tokenizer: HFTokenizer,
    stories: Sequence[Story],
    temperatures: Sequence[float],
    seed: int,
) -> list[dict[int, list[str]]]:
    """Return, for each story, the draft's wrong texts by step, one sample of each step at each temperature.

    The right steps stand before each. A sample is drawn from one forward pass over the right solution up to its first
    wrong token, and generated from there; the distribution is that of generating the whole step.
    """
    generator = torch.Generator().manual_seed(seed)
    solutions = [Solution.of(story, tokenizer) for story in stories]
    begun: list[tuple[int, int, list[int]]] = []
    for start in range(0, len(solutions), _ROWS):
        rows = solutions[start : start + _ROWS]
        ids, logits = solution_logits(draft, rows)
        for temperature in temperatures:
            noise = torch.empty(logits.shape).exponential_(generator=generator)
            drawn = ((logits / temperature).softmax(-1) / noise).argmax(-1)
            for row, solution in enumerate(rows):
                wrong = (drawn[row] != ids[row, 1:]).nonzero()[:, 0] + 1
                for number, (first, last) in enumerate(pairwise(solution.ends[:-1])):
                    at = next((at for at in wrong.tolist() if first <= at < last), None)
                    if at is not None:
                        begun.append((start + row, number, [*solution.ids[:at], int(drawn[row, at - 1])]))
    texts: list[dict[int, list[str]]] = [{} for _ in stories]
    continuations = inference.continued_steps(draft, tokenizer, [ids for *_, ids in begun], seed=seed)
    for (at, number, ids), text in zip(begun, continuations, strict=True):
        whole = tokenizer.decode(ids[solutions[at].ends[number] :]) + text
        texts[at].setdefault(number, []).append(whole)
    return texts
