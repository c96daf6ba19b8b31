"""One sample's chain of thought while it grows: both models' contexts, what ends it, and what is recorded of it.

The method decides and the chain executes: it holds the prompt of each model in token ids, appends accepted steps to
both (as ids where the tokenizers agree, as text where they do not), and is the only place where budget, context,
repetition and completion are checked, so that these mean the same for every method.
"""

from __future__ import annotations

from harness.chain.chain import Limits, Proposal, Stop
from harness.chain.judgements import Questions
from harness.chain.proposals import Proposals
from harness.chain.step_candidates import as_candidates

__all__ = ["Chain", "Limits", "Proposal", "Stop", "as_candidates"]


class Chain(Proposals, Questions):
    """A chain of thought shared by a draft and a target model: what is asked of the models about it, and its steps."""
