"""SpecCoT: speculative exploration (Shi et al., Findings of EMNLP 2025, section 3).

The target opens with k guidance tokens (3.2). For every further step the draft proposes N continuations in parallel
(3.3); the target chooses one or rejects them all in one forward pass with one token, and on a rejection writes the
step itself (3.4).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from harness.candidates import as_candidates, mean_score, offer, take
from harness.chain import Chain
from harness.engine import Completion
from harness.methods.method import Method
from harness.methods.ranges import within
from harness.recording import Model
from harness.trace import Candidate, Verdict


@dataclass(frozen=True)
class SpecCoT(Method):
    """Guidance, N drafts a step, choice or rejection, fallback."""

    drafts: int = 5
    """N, candidates per step. The paper sweeps it up to 10 (figure 4b) and does not state the main setting."""
    guidance_tokens: int = 50
    """k, tokens that the target writes first; 0: none. Swept in figure 4a, main setting not stated."""
    step_tokens: int = 512
    """Longest step. Not stated by the paper; SpecReason's value."""
    verdict: Literal["joint", "separate"] = "joint"
    """joint: one choice among all candidates and «reject», the paper's. separate: each candidate is scored where it
    would stand, with two words of question behind it, and what is taken is in the cache already."""
    threshold: float = 5.0
    """Of separate verdicts: the lowest score that is not a rejection."""
    skip_agreed: bool = False
    """Take a step that all N drafts write alike without a verdict. Not in the paper: where samples of one model agree
    they are more often right, and the verdict, a third of a step's time, decides nothing."""

    def __post_init__(self) -> None:
        within("drafts", self.drafts, 1, 25)
        within("guidance_tokens", self.guidance_tokens, 0, None)
        within("step_tokens", self.step_tokens, 1, None)
        within("threshold", self.threshold, 0, 9)
        if self.verdict == "joint" and self.threshold != SpecCoT.threshold:
            raise ValueError("--threshold belongs to --verdict separate: a joint verdict rejects by choice")

    @property
    def parallel(self) -> int:
        """Completions of one sample drawn at once."""
        return self.drafts

    @property
    def rubric(self) -> bool:
        """Separate verdicts ask with two words; what they mean stands in the target's prompt."""
        return self.verdict == "separate"

    def verdict_tokens(self, token_budget: int) -> int:
        """Longest verdict prompt beyond problem and chain."""
        return (self.drafts if self.verdict == "joint" else 1) * min(self.step_tokens, token_budget)

    async def __call__(self, chain: Chain, draft: Model, target: Model) -> None:
        """Fill the chain."""
        if self.guidance_tokens and not chain.steps:
            await chain.write(target, "guidance", max_tokens=self.guidance_tokens, stop=())

        while chain.reasoning and not chain.answered:
            proposed = await chain.propose(draft, self.drafts, max_tokens=self.step_tokens)
            candidates = as_candidates(proposed)
            if self.skip_agreed and self.drafts > 1 and len(offer(candidates)) == 1:
                chain.accept(draft, "draft", proposed[take(candidates, 0)], candidates)
                continue
            judge = self._joint if self.verdict == "joint" else self._separate
            verdict, option = await judge(chain, draft, target, proposed, candidates)
            if verdict.accepted:
                chain.accept(draft, "draft", proposed[take(candidates, option)], candidates, verdict)
            else:
                await chain.write(target, "fallback", max_tokens=self.step_tokens, refused=candidates, verdict=verdict)

        if not chain.answered:
            await chain.answer(target)

    async def _joint(
        self, chain: Chain, draft: Model, target: Model, proposed: list[Completion], candidates: list[Candidate]
    ) -> tuple[Verdict, int]:
        verdict = await chain.choose(target, candidates)
        verdict.accepted = verdict.decision < len(offer(candidates))
        return verdict, verdict.decision

    async def _separate(
        self, chain: Chain, draft: Model, target: Model, proposed: list[Completion], candidates: list[Candidate]
    ) -> tuple[Verdict, int]:
        """The verdict on the best candidate; the scores of all are kept with them."""
        verdicts = await chain.score_each(target, candidates, proposed, draft)
        for verdict in verdicts:
            verdict.score = mean_score(verdict)
        for candidate in candidates:
            candidate.verdict_score = None if candidate.option is None else verdicts[candidate.option].score
        best = max(range(len(verdicts)), key=lambda option: verdicts[option].score or 0.0)
        verdicts[best].accepted = (verdicts[best].score or 0.0) >= self.threshold
        return verdicts[best], best
