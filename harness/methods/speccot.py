"""SpecCoT: speculative exploration (Shi et al., Findings of EMNLP 2025, section 3).

The target opens with k guidance tokens (3.2). For every further step the draft proposes N continuations in parallel
(3.3); the target chooses one or rejects them all in one forward pass with one token, and on a rejection writes the
step itself (3.4).
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.chain import Chain, as_candidates, offer, take
from harness.engine import Role
from harness.methods.ranges import within
from harness.recording import Model


@dataclass(frozen=True)
class SpecCoT:
    """Guidance, N drafts a step, choice or rejection, fallback."""

    drafts: int = 5
    """N, candidates per step. The paper sweeps it up to 10 (figure 4b) and does not state the main setting."""
    guidance_tokens: int = 50
    """k, tokens that the target writes first; 0: none. Swept in figure 4a, main setting not stated."""
    step_tokens: int = 512
    """Longest step. Not stated by the paper; SpecReason's value."""

    def __post_init__(self) -> None:
        within("drafts", self.drafts, 1, 25)
        within("guidance_tokens", self.guidance_tokens, 0, None)
        within("step_tokens", self.step_tokens, 1, None)

    @property
    def roles(self) -> tuple[Role, ...]:
        """The models that this method needs."""
        return ("draft", "target")

    @property
    def parallel(self) -> int:
        """Completions of one sample drawn at once."""
        return self.drafts

    def verdict_tokens(self, token_budget: int) -> int:
        """Longest verdict prompt beyond problem and chain."""
        return self.drafts * min(self.step_tokens, token_budget)

    async def __call__(self, chain: Chain, draft: Model, target: Model) -> None:
        """Fill the chain."""
        if self.guidance_tokens and not chain.steps:
            await chain.write(target, "guidance", max_tokens=self.guidance_tokens, stop=())

        while chain.reasoning and not chain.answered:
            proposed = await chain.propose(draft, self.drafts, max_tokens=self.step_tokens)
            candidates = as_candidates(proposed)
            verdict = await chain.choose(target, candidates)
            verdict.accepted = verdict.decision < len(offer(candidates))
            if verdict.accepted:
                chosen = take(candidates, verdict.decision)
                chain.accept(draft, "draft", proposed[chosen], candidates, verdict)
            else:
                await chain.write(target, "fallback", max_tokens=self.step_tokens, refused=candidates, verdict=verdict)

        if not chain.answered:
            await chain.answer(target)
