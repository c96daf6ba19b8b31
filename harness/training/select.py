"""Draft selection and error correction (section 3.4): the target learns which draft is right, or that none is.

The prompt is SCoT's own question (`prompts.chain_choice_question`), and the prediction is a single token. The label is
a set: every right draft, or "all are wrong" if there is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from harness.engine import Tokenizer
from harness.problems.problem import Problem
from harness.prompt_file import BUILT_IN, Prompts
from harness.prompts import chain_choice_question
from harness.training.examples import GRADED, Drafts, Example, Examples
from harness.training.tuning import Loss


def examples(
    offers: Iterable[Drafts],
    problems: Mapping[str, Problem],
    target: Tokenizer,
    max_tokens: int,
    wording: Prompts = BUILT_IN,
) -> Examples:
    """Return one example per sample whose drafts were all graded, in the wording of the run that wrote them."""
    collected = Examples()
    for offer in offers:
        if not offer.offered:
            collected.left_out["every draft cut off"] += 1
            continue
        if any(draft.verdict not in GRADED for draft in offer.offered):
            collected.left_out["a draft without a verdict of the grader"] += 1
            continue
        texts = [draft.text for draft in offer.offered]
        question = chain_choice_question(target, problems[offer.problem_id], texts, wording, may_reject=True)
        label_ids = tuple(question.option_ids[i] for i in labels(offer))
        collected.add(Example(offer.sample_id, question.ids, label_ids, 1), max_tokens)
    return collected


def labels(offer: Drafts) -> tuple[int, ...]:
    """Return the indexes of the right options: all right drafts, or the last option, "all are wrong"."""
    right = tuple(i for i, draft in enumerate(offer.offered) if draft.verdict == "correct")
    return right or (len(offer.offered),)


def best_label_loss(logits: Any, label_ids: Sequence[int]) -> Any:
    """Return the smallest −log p among the right options, in nats (equation 4); p is over the whole vocabulary.

    `logits`: float32, (1, vocabulary); `label_ids`: ids of the right options.
    """
    return -_logprobs(logits, label_ids).max()


def summed_label_loss(logits: Any, label_ids: Sequence[int]) -> Any:
    """Return −log of the total probability of the right options, which does not favor the most probable one.

    `logits`: float32, (1, vocabulary); `label_ids`: ids of the right options.
    """
    return -_logprobs(logits, label_ids).logsumexp(0)


LOSSES: Mapping[str, Loss] = {"best": best_label_loss, "sum": summed_label_loss}
"""Losses by the value of the setting `label_loss`."""


def _logprobs(logits: Any, label_ids: Sequence[int]) -> Any:
    import torch

    return torch.log_softmax(logits[-1], -1)[list(label_ids)]
