"""Step value: the probability that a chain with the step still ends right, estimated by rollouts of the solver.

A rollout continues the chain after the step, sampled at one temperature. A solution has one wording. So after a right
step, the expected share of rollouts that write the solution is the product of its tokens' probabilities, which one
forward pass gives without sampling noise. Rollouts are sampled only after wrong steps.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from harness import prompts
from harness.weights.tokenizer import HFTokenizer
from tools.demo_pair import branches, inference, network
from tools.demo_pair.branches import Branch
from tools.demo_pair.mistakes import Mistakes
from tools.demo_pair.stories import Story
from tools.demo_pair.values import Values

_ROWS = 64
_BOTH = (False, True)


def estimated_values(
    solver: LlamaForCausalLM,
    tokenizer: HFTokenizer,
    stories: Sequence[Story],
    mistakes: Mistakes,
    rolled: int,
    samples: int,
    temperature: float,
    seed: int,
) -> Values:
    """Return the values of all right steps of the stories, and of `rolled` randomly chosen mistakes.

    `samples`: number of rollouts after each chosen mistake; `temperature`: the solver's temperature in these rollouts.
    """
    own = [
        (at, number, text)
        for at, story in enumerate(stories)
        for number, texts in mistakes.steps(at).items()
        for text in texts
        if number < len(story.steps)
    ]
    own = random.Random(seed).sample(own, min(rolled, len(own)))
    starts = [
        [*inference.prompt_before_step(tokenizer, stories[at], n), *tokenizer.encode(text)] for at, n, text in own
    ]
    shares = [
        sum(text.endswith(stories[at].conclusion) for text in texts) / samples
        for (at, *_), texts in zip(own, _ended(solver, tokenizer, starts, samples, temperature, seed), strict=True)
    ]
    wrong = [(*step, share) for step, share in zip(own, shares, strict=True)]
    return Values(right_values(solver, tokenizer, stories, temperature), wrong)


def _ended(
    solver: LlamaForCausalLM,
    tokenizer: HFTokenizer,
    chains: Sequence[Sequence[int]],
    samples: int,
    temperature: float,
    seed: int,
) -> list[list[str]]:
    """Return the solver's continuations of each chain, (chains, samples)."""
    assert tokenizer.eos_token_id is not None
    generator, ends = torch.Generator().manual_seed(seed), {tokenizer.eos_token_id}
    texts: list[list[str]] = []
    for start in range(0, len(chains), _ROWS):
        rows = chains[start : start + _ROWS]
        _, cache = branches.read(solver, rows)
        begun = [Branch(i, len(row) - 1, row[-1]) for i, row in enumerate(rows) for _ in range(samples)]
        written = branches.continued(solver, cache, begun, ends, inference.MAX_TOKENS, generator, temperature)
        whole = [tokenizer.decode([i for i in ids[1:] if i not in ends]) for ids in written]
        texts += [whole[i : i + samples] for i in range(0, len(whole), samples)]
    return texts


def right_values(
    solver: LlamaForCausalLM, tokenizer: HFTokenizer, stories: Sequence[Story], temperature: float = 1.0
) -> list[list[float]]:
    """Return, per story and step, the probability that the solver continues correctly to the end."""
    values: dict[int, list[float]] = {}
    order = sorted(range(len(stories)), key=lambda i: len(stories[i].text) + sum(map(len, stories[i].steps)))
    for start in range(0, len(order), _ROWS):
        rows = order[start : start + _ROWS]
        values |= zip(rows, _values_of(solver, tokenizer, [stories[i] for i in rows], temperature), strict=True)
    return [values[i] for i in range(len(stories))]


def _values_of(
    solver: LlamaForCausalLM, tokenizer: HFTokenizer, stories: Sequence[Story], temperature: float
) -> list[list[float]]:
    solutions = [Solution.of(story, tokenizer) for story in stories]
    ids, logits = solution_logits(solver, solutions)
    log_probabilities = (logits / temperature).log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0].double()
    return [
        [round(float(row[end - 1 : len(solution.ids) - 1].sum().exp()), 4) for end in solution.ends[1:-1]]
        for row, solution in zip(log_probabilities, solutions, strict=True)
    ]


@dataclass(frozen=True)
class Solution:
    """The token ids of a problem with its whole solution."""

    ids: list[int]
    ends: list[int]
    """Number of ids up to the end of the prompt, of each step, and of the conclusion."""

    @classmethod
    def of(cls, story: Story, tokenizer: HFTokenizer) -> Solution:
        """Return the solution of a story."""
        end = tokenizer.eos_token_id
        assert end is not None
        ids, ends = prompts.opening(tokenizer, story.problem)[0], []
        for number in range(story.end + 1):
            ends.append(len(ids))
            ids = [*ids, *tokenizer.encode(story.step(number))]
        return cls([*ids, end], [*ends, len(ids) + 1])


def solution_logits(model: LlamaForCausalLM, solutions: Sequence[Solution]) -> tuple[Tensor, Tensor]:
    """Return ids, (solutions, tokens), padded on the right, and the logits for all ids except the first."""
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

    Each step is sampled after the right steps. A text sampled after a last step without the end of the thought has the
    number after that step's. A sample is drawn from one forward pass over the right solution up to its first wrong
    token, and generated from there; the distribution is that of generating the whole step.
    """
    generator = torch.Generator().manual_seed(seed)
    texts: list[dict[int, list[str]]] = [{} for _ in stories]
    read = [(at, replace(story, is_unclosed=is_unclosed)) for at, story in enumerate(stories) for is_unclosed in _BOTH]
    read.sort(key=lambda one: len(one[1].text) + sum(map(len, one[1].steps)))
    for start in range(0, len(read), _ROWS):
        rows = read[start : start + _ROWS]
        for row, number, text in _mistakes(draft, tokenizer, [story for _, story in rows], temperatures, generator):
            texts[rows[row][0]].setdefault(number, []).append(text)
    return texts


def _mistakes(
    draft: LlamaForCausalLM,
    tokenizer: HFTokenizer,
    stories: Sequence[Story],
    temperatures: Sequence[float],
    generator: torch.Generator,
) -> list[tuple[int, int, str]]:
    """Return story, step number and text of each wrong step; for unclosed stories, only of the closing step."""
    solutions = [Solution.of(story, tokenizer) for story in stories]
    states, cache = branches.read(draft, [solution.ids for solution in solutions])
    begun: list[tuple[Branch, int]] = []
    for row, (story, solution) in enumerate(zip(stories, solutions, strict=True)):
        first = len(story.steps) if story.is_unclosed else 0
        places = range(solution.ends[first], solution.ends[story.end])
        expected = torch.tensor(solution.ids[places.start : places.stop])
        logits = draft.lm_head(states[row, places.start - 1 : places.stop - 1]).detach().float().cpu()
        for temperature in temperatures:
            drawn = torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator)[:, 0]
            wrong = [places.start + at for at in (drawn != expected).nonzero()[:, 0].tolist()]
            for number in range(first, story.end):
                at = next((at for at in wrong if solution.ends[number] <= at < solution.ends[number + 1]), None)
                if at is not None:
                    begun.append((Branch(row, at, int(drawn[at - places.start])), number))
    end = tokenizer.eos_token_id
    assert end is not None
    ends = {*tokenizer.encode(prompts.STEP_END), end}
    longest = min(inference.MAX_TOKENS, inference.MAX_STEP_TOKENS) + 1
    written = branches.continued(draft, cache, [branch for branch, _ in begun], ends, longest, generator)
    mistakes = []
    for (branch, number), ids in zip(begun, written, strict=True):
        solution = solutions[branch.text]
        whole = [*solution.ids[solution.ends[number] : branch.place], *ids]
        mistakes.append((branch.text, number, tokenizer.decode([i for i in whole if i != end])))
    return mistakes
