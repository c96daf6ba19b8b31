"""Thinking behaviour alignment (section 3.3): the draft learns to write the target's chains.

The loss is the mean cross-entropy of the chain's tokens given the question (equation 2). The chain is what SCoT asks of
the draft: a thought up to and including its `</think>`, or, for a draft that does not think, the whole reply up to its
end of sequence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from harness.problems.problem import Problem
from harness.prompt_file import BUILT_IN, Prompts
from harness.prompts import THINK_END, opening
from harness.training.examples import Example, Examples, TargetChain
from harness.weights.tokenizer import HFTokenizer


def examples(
    chains: Iterable[TargetChain],
    problems: Mapping[str, Problem],
    draft: HFTokenizer,
    target: HFTokenizer,
    max_tokens: int,
    wording: Prompts = BUILT_IN,
) -> Examples:
    """Return one example per complete chain, in the draft's vocabulary and in the wording that the chain answered."""
    collected = Examples()
    for chain in chains:
        if chain.finish == "length" or (target.thinks and THINK_END not in chain.text):
            collected.left_out["cut off"] += 1
            continue
        prompt, _ = opening(draft, problems[chain.problem_id], wording)
        reply = _reply(chain, draft, target)
        collected.add(Example(chain.sample_id, (*prompt, *reply[:-1]), reply, len(reply)), max_tokens)
    return collected


def _reply(chain: TargetChain, draft: HFTokenizer, target: HFTokenizer) -> tuple[int, ...]:
    """Return the ids that the draft learns to write: the target's own if both models share their vocabulary."""
    ids = _thought(chain.token_ids, target) if target.thinks else chain.token_ids
    text = chain.text.partition(THINK_END)[0] if target.thinks else chain.text
    if draft.thinks == target.thinks and draft.fingerprint == target.fingerprint:
        return ids if draft.thinks else (*ids, *_end(draft))
    if draft.thinks:
        return tuple(draft.encode(text + (THINK_END if target.thinks else draft.thought.closing.rstrip())))
    return (*draft.encode(text.rstrip()), *_end(draft))


def _thought(ids: Sequence[int], target: HFTokenizer) -> tuple[int, ...]:
    """Return the ids up to and including the tokens of the first `</think>`."""
    end = target.encode(THINK_END)
    for place in range(len(ids) - len(end) + 1):
        if list(ids[place : place + len(end)]) == end:
            return tuple(ids[: place + len(end)])
    raise ValueError("a chain's text holds </think> and its ids do not")


def _end(draft: HFTokenizer) -> tuple[int, ...]:
    if draft.eos_token_id is None:
        raise ValueError("the draft's tokenizer has no end-of-sequence token, so the draft cannot learn to stop")
    return (draft.eos_token_id,)


def chain_loss(logits: Any, label_ids: Sequence[int]) -> Any:
    """Return the mean of −log p over the chain's tokens, in nats (equation 2).

    `logits`: float32, (predictions, vocabulary); `label_ids`: one id per prediction.
    """
    import torch

    return torch.nn.functional.cross_entropy(logits, torch.tensor(list(label_ids), device=logits.device))
