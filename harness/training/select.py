"""Draft selection and error correction (section 3.4): the target learns which draft is right, or that none is.

The prompt is the one that SCoT asks (`prompts.chain_choice_question`), the prediction is its one token. The label is a
set: every right draft, or «all are wrong» where none is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from harness.engine import Tokenizer
from harness.problem import Problem
from harness.prompts import chain_choice_question
from harness.training.data import GRADED, Drafts, Example, Examples
from harness.training.tuning import Loss


def examples(offers: Iterable[Drafts], problems: Mapping[str, Problem], target: Tokenizer, max_tokens: int) -> Examples:
    """One example per sample whose drafts were all graded."""
    found = Examples()
    for offer in offers:
        if not offer.offered:
            found.left_out["every draft cut off"] += 1
            continue
        if any(draft.verdict not in GRADED for draft in offer.offered):
            found.left_out["a draft without a verdict of the grader"] += 1
            continue
        texts = [draft.text for draft in offer.offered]
        question = chain_choice_question(target, problems[offer.problem_id], texts, may_reject=True)
        wanted = tuple(question.option_ids[i] for i in labels(offer))
        found.add(Example(offer.sample_id, question.ids, wanted, 1), max_tokens)
    return found


def labels(offer: Drafts) -> tuple[int, ...]:
    """Indexes of the right options: all right drafts, or the last option, «all are wrong»."""
    right = tuple(i for i, draft in enumerate(offer.offered) if draft.verdict == "correct")
    return right or (len(offer.offered),)


def best_label_loss(logits: Any, wanted: Sequence[int]) -> Any:
    """Equation 4: the least of −log p over the right labels, in nats; p over the whole vocabulary.

    `logits`: float32, 1 × vocabulary; `wanted`: ids of the right labels.
    """
    return -_logprobs(logits, wanted).max()


def summed_label_loss(logits: Any, wanted: Sequence[int]) -> Any:
    """−log of the probability of all right labels together: it does not favour the one that is ahead already."""
    return -_logprobs(logits, wanted).logsumexp(0)


LOSSES: Mapping[str, Loss] = {"best": best_label_loss, "sum": summed_label_loss}
"""By the setting `label_loss`."""


def _logprobs(logits: Any, wanted: Sequence[int]) -> Any:
    import torch

    return torch.log_softmax(logits[-1], -1)[list(wanted)]
