"""ConfSpec: the draft judges its own step, the target only where the draft is unsure (Liu and He, arXiv 2602.18447).

The draft writes a step and verifies it. Where it is confident of its verdict, that verdict stands; otherwise the
verdict is escalated to the target. A refused step is written by the target. Published in the main proceedings of ACL
2026 (2026.acl-long.1221).

Its text has not been read: this follows its abstract and the beginning of its introduction (version 1), and no public
program of it was found. They say that decisions of high confidence are taken directly, that uncertain ones go to the
target, and that no other model judges. They leave open, and chosen here is:
- What is asked: SpecReason's question for a score from 0 to 9, of both models in the same words (`--prompts`, table
  score), and accepted from `threshold` on, SpecReason's 7. The score is the most probable digit.
- What confidence is: the probability, among the ten digits, of all digits on the same side of the threshold as the
  draft's score. It counts either way: a confident refusal is not escalated. The draft's verdict on a step that was
  escalated is recorded before the target's, which alone decides.
- From which confidence on a verdict stands: `confidence`, 0.9. At 0 the draft alone judges; at 1 nearly always the
  target, as in SpecReason.
- Where a step ends (the run's step separator, or 512 tokens) and who answers: both models take turns until the reply
  holds an answer, as in SpecReason here. Nothing depends on a thought, so plain models are judged in the same way.
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
    """ConfSpec's hyper-parameters. Calling it drafts, judges, and accepts or rewrites one step after the other."""

    confidence: float = parameter(
        0.9,
        help="Lowest probability, from 0 to 1, at which the draft's verdict on its own step stands; below it the "
        "target judges (the abstract names no value). 0: the draft judges every step.",
    )
    threshold: float = parameter(
        7.0, help="Lowest accepted score, from 0 to 9, of either model (SpecReason section 4.1)."
    )
    step_tokens: int = parameter(512, help="Maximum length of a step, in tokens (not in what was read of the paper).")

    def __post_init__(self) -> None:
        check_range("confidence", self.confidence, 0, 1)
        check_range("threshold", self.threshold, 0, 9)
        check_range("step_tokens", self.step_tokens, 1, None)

    def questions(self, role: Role, tokenizer: Tokenizer, wording: Prompts) -> Iterator[Question]:
        yield score_question(tokenizer, wording)

    def verdict_tokens(self, token_budget: int) -> int:
        return min(self.step_tokens, token_budget)

    def cached_tokens(self, role: Role, token_budget: int) -> int:
        """Both models read the new step with the question behind it."""
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
        """Return the probability that the judge gives to scores that decide as its verdict does."""
        scored = zip(verdict.options, verdict.probabilities, strict=True)
        return sum(p for digit, p in scored if (float(digit) >= self.threshold) == verdict.accepted)
