"""ConfSpec: the draft judges its own step; unsure verdicts go to the target (Liu and He, arXiv 2602.18447).

The draft writes a step and judges it. A confident verdict is final; after an unsure one, the target judges. The target
rewrites rejected steps. Published in the main proceedings of ACL 2026 (2026.acl-long.1221).

This implementation follows the abstract and the beginning of the introduction (version 1), according to which no other
model judges. The full text was not consulted, and no public code was found. Choices of this implementation:
- Question: SpecReason's score from 0 to 9, with the same words for both models (`--prompts`, table score). The score is
  the most probable digit. Steps are accepted from `threshold` on (SpecReason: 7).
- Confidence: the total probability of all digits on the same side of the threshold as the draft's score. A confident
  rejection is final, too. If the target judges, its verdict decides; the draft's verdict is recorded before it.
- Minimum confidence: `confidence`, 0.9. At 0, only the draft judges; at 1, the target nearly always judges, as in
  SpecReason.
- Steps end at the run's step separator or after 512 tokens. Both models alternate until the reply contains an answer,
  as in SpecReason here. Plain models are judged in the same way as reasoning models.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from harness.chain import Chain, as_candidates
from harness.engine import Completion, Role, Tokenizer
from harness.methods.method import Method, check_range, parameter
from harness.prompts import Prompts, Question, score_question
from harness.recording import Model
from harness.trace import Verdict


@dataclass(frozen=True)
class ConfSpec(Method):
    """ConfSpec: draft and judge each step; accept it, or let the target rewrite it."""

    confidence: float = parameter(
        0.9,
        help="Minimum probability, from 0 to 1, for the draft's verdict on its own step to be final; below this "
        "probability, the target judges. 0: only the draft judges. The paper's abstract gives no value.",
    )
    threshold: float = parameter(
        7.0,
        help="Minimum score, from 0 to 9, to accept a step, whichever model judges it. The default is SpecReason's "
        "(section 4.1).",
    )
    step_tokens: int = parameter(512, help="Maximum length of a step, in tokens. The paper's abstract gives no limit.")

    def __post_init__(self) -> None:
        check_range("confidence", self.confidence, 0, 1)
        check_range("threshold", self.threshold, 0, 9)
        check_range("step_tokens", self.step_tokens, 1, None)

    def questions(self, role: Role, tokenizer: Tokenizer, wording: Prompts) -> Iterator[Question]:
        yield score_question(tokenizer, wording)

    def verdict_tokens(self, token_budget: int) -> int:
        return min(self.step_tokens, token_budget)

    def cached_tokens(self, role: Role, token_budget: int) -> int:
        """Return the budget plus one step, for both models, because both may read a step before it is accepted."""
        return token_budget + self.verdict_tokens(token_budget)

    async def __call__(self, chain: Chain, draft: Model, target: Model) -> None:
        while not chain.answered:
            [step] = await chain.propose(draft, 1, max_tokens=self.step_tokens)
            verdicts = [await self._judged(chain, draft, step, draft)]
            if self._certainty(verdicts[0]) < self.confidence:
                verdicts.append(await self._judged(chain, target, step, draft))
            [candidate] = as_candidates([step])
            candidate.accepted = verdicts[-1].accepted
            if candidate.accepted:
                chain.accept(draft, "draft", step, [candidate], verdicts)
            else:
                await chain.write(
                    target, "fallback", max_tokens=self.step_tokens, refused=[candidate], verdict=verdicts
                )

    async def _judged(self, chain: Chain, judge: Model, step: Completion, author: Model) -> Verdict:
        verdict = await chain.score(judge, step, author)
        verdict.score = float(verdict.options[verdict.decision])
        verdict.accepted = verdict.score >= self.threshold
        return verdict

    def _certainty(self, verdict: Verdict) -> float:
        """Return the total probability of the scores that lead to the verdict's decision."""
        scored = zip(verdict.options, verdict.probabilities, strict=True)
        return sum(p for digit, p in scored if (float(digit) >= self.threshold) == verdict.accepted)
