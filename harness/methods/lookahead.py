"""Lookahead Reasoning: draft steps ahead, verify them in parallel (Fu et al., arXiv 2506.19830, section 3).

The draft writes gamma steps in a row. The target writes its own next step after each of the gamma + 1 prefixes, all in
parallel. Draft steps are kept until one differs in meaning from the target's step after the same prefix; the target's
step replaces it. If all draft steps are kept, the target's last step follows them.

This is the synchronous form (algorithm 1): the target starts once all steps are drafted. The authors' code
(hao-ai-lab/LookaheadReasoning) can also draft while the target works, and draft several steps after one prefix; neither
is implemented here. As in the code:
- A step has at most 100 tokens.
- Steps that differ only in white space and case count as equal, without asking the judge.
- The target writes the step after a truncated step, without a comparison. It also writes the step if only the target's
  version ends the reply.
- Gamma is 4 by default; the paper uses several values.

Differences from the code:
- The code never keeps a chain's first step, because the prompt does not end with a blank line; here it is compared.
- Sampling uses the run's settings (code: temperature 0.6, top-p 0.95 and, for its default pair, top-k 20).
- The paper's default judge is another model (Qwen2.5-7B-Instruct), whose most probable token decides. Here the target
  or the reward role's model (`judge`) judges each pair of steps in one forward pass. As in the code, the question
  contains only the two steps.
- The paper's sentence embeddings are replaced by shared words, numbers and symbols (`verifier`). The code's threshold,
  a cosine above 0.95 (all-mpnet-base-v2), does not apply to shared words.
- The wording of the question is this project's. The published one, which shows the target's step first, can be set with
  --prompts (table equivalence: {first} is the draft's step, {second} the target's).

For a kept draft step, the trace contains the tokens of the target's own step but not its text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal

from harness import prompts
from harness.chain import Chain, Proposal
from harness.chain.step_candidates import as_candidates, cosine
from harness.engine import Completion, Role, Tokenizer
from harness.methods.method import Method, Text, check_range, parameter
from harness.prompts import Prompts, Question
from harness.recording import Model
from harness.trace import Decision


@dataclass(frozen=True)
class Lookahead(Method):
    """Lookahead Reasoning: draft several steps ahead, and keep those with which the target agrees."""

    gamma: int = parameter(
        4, help="Number of steps drafted ahead. The default is from the authors' code; the paper uses several values."
    )
    verifier: Literal["judge", "similarity"] = parameter(
        "judge",
        help="judge: a model decides whether two steps mean the same thing. similarity: the cosine between the steps' "
        "counts of words, numbers and symbols decides; it replaces the paper's sentence embeddings.",
    )
    judge: Literal["target", "reward"] = parameter(
        "target",
        help="The model that compares steps with --verifier judge: the target, or the model set with --reward (in the "
        "paper, Qwen/Qwen2.5-7B-Instruct).",
    )
    threshold: float = parameter(
        0.5,
        help="Minimum agreement for keeping a draft step: with --verifier judge, the probability of the answer 'the "
        "same' (0.5: the more probable answer decides); with --verifier similarity, the cosine.",
    )
    step_tokens: int = parameter(
        100, help="Maximum length of a step, in tokens. The default is from the authors' code."
    )

    def __post_init__(self) -> None:
        check_range("gamma", self.gamma, 1, 32)
        check_range("threshold", self.threshold, 0, 1)
        check_range("step_tokens", self.step_tokens, 1, None)
        if self.verifier == "similarity" and self.judge != "target":
            raise ValueError("--judge requires --verifier judge: similarity uses no model")

    @property
    def roles(self) -> tuple[Role, ...]:
        """Return the draft and the target, and the reward role if its model is the judge."""
        return ("draft", "target", "reward") if self.judge == "reward" else ("draft", "target")

    @property
    def target_parallel(self) -> int:
        return self.gamma + 1

    @property
    def asks_equivalence(self) -> bool:
        return self.verifier == "judge"

    def questions(self, role: Role, tokenizer: Tokenizer, wording: Prompts) -> Iterator[Question]:
        if role == self.judge and self.asks_equivalence:
            yield prompts.equivalence_question(tokenizer, "1", "2", wording)

    def verdict_tokens(self, token_budget: int) -> int:
        """Return the maximum length of two steps, which a judge reads without problem and chain; 0 for similarity."""
        return 2 * min(self.step_tokens, token_budget) if self.verifier == "judge" else 0

    def texts(self, role: Role, token_budget: int) -> tuple[Text, ...]:
        """Return no text for the reward role: as the judge, its model reads only two steps at a time, no chain."""
        return () if role == "reward" else super().texts(role, token_budget)

    def cached_tokens(self, role: Role, token_budget: int) -> int:
        """Return the default, plus gamma more steps for the target, written in parallel from shared prefixes."""
        own = self.gamma * min(self.step_tokens, token_budget) if role == "target" else 0
        return super().cached_tokens(role, token_budget) + own

    async def __call__(self, chain: Chain, draft: Model, target: Model) -> None:
        while not chain.answered:
            drafted = await self._draft_ahead(chain, draft)
            beginnings = (drafted[:i] for i in range(1, len(drafted) + 1))
            prefixes = [[], *takewhile(lambda behind: chain.may_continue(behind, target), beginnings)]
            own = await chain.propose_each(target, prefixes, max_tokens=self.step_tokens, purpose="fallback")
            agreements = await self._agreements(chain, target, drafted, own)
            self._keep(chain, target, drafted, own, agreements)

    async def _draft_ahead(self, chain: Chain, draft: Model) -> list[Proposal]:
        """Return gamma consecutive steps, fewer if a resumed sample already has some of them or the chain ends."""
        drafted: list[Proposal] = []
        for _ in range(self.gamma - _num_kept(chain)):
            if not chain.may_continue(drafted, draft):
                break
            [step] = await chain.propose(draft, 1, max_tokens=self.step_tokens, behind=drafted)
            drafted.append((draft, step))
        return drafted

    async def _agreements(
        self, chain: Chain, target: Model, drafted: list[Proposal], own: list[Completion]
    ) -> list[float | None]:
        """Return the probability that each drafted step means the same as the target's; None: not compared."""
        pairs = [(step, mine) for (_, step), mine in zip(drafted, own, strict=False)]
        before = [chain.steps[-1].finish if chain.steps else None, *(step.finish for step, _ in pairs)]
        # No comparison after a truncated step, or if only the target's version ends the reply.
        compared = [
            finish != "length" and (mine.finish != "eos" or step.finish == "eos")
            for (step, mine), finish in zip(pairs, before, strict=False)
        ]
        values = [
            1.0 if is_compared and same(*pair) else None for pair, is_compared in zip(pairs, compared, strict=True)
        ]
        open_pairs = [i for i, value in enumerate(values) if compared[i] and value is None]
        for i, value in zip(open_pairs, await self._judged(chain, target, [pairs[i] for i in open_pairs]), strict=True):
            values[i] = value
        return values

    async def _judged(self, chain: Chain, target: Model, pairs: list[tuple[Completion, Completion]]) -> list[float]:
        if self.verifier == "similarity":
            return [cosine(step.text, mine.text) for step, mine in pairs]
        judge = target if self.judge == "target" else chain.model("reward")
        asked = [
            prompts.equivalence_question(judge.tokenizer, step.text, mine.text, chain.wording) for step, mine in pairs
        ]
        return [choice.probabilities[0] for choice in (await chain.ask_each(judge, asked) if asked else [])]

    def _keep(
        self,
        chain: Chain,
        target: Model,
        drafted: list[Proposal],
        own: list[Completion],
        agreements: list[float | None],
    ) -> None:
        """Accept the drafted steps before the first one that the target disagrees with, then the target's own step."""
        for (author, step), mine, agreement in zip(drafted, own, agreements, strict=False):
            decision = Decision("agreement", None, None, accepted=False)
            if agreement is not None:
                decision = Decision.at_least("agreement", agreement, self.threshold)
            [candidate] = as_candidates([step])
            candidate.accepted = decision.accepted
            if not decision.accepted:
                chain.accept(target, "fallback", mine, [candidate], decision=decision)
                return
            chain.accept(author, "draft", step, [candidate], decision=decision)
            if chain.answered:
                return
        if len(own) > len(drafted):
            chain.accept(target, "fallback", own[-1])


def same(one: Completion, other: Completion) -> bool:
    """Return whether two steps differ only in white space and case."""
    return "".join(one.text.split()).lower() == "".join(other.text.split()).lower()


def _num_kept(chain: Chain) -> int:
    """Return the number of drafted steps kept since the target's last step."""
    return sum(1 for _ in takewhile(lambda step: step.author == "draft", reversed(chain.steps)))
