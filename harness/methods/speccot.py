"""SpecCoT: speculative exploration (Shi et al., Findings of EMNLP 2025, section 3).

The target first writes k guidance tokens (3.2). For every further step the draft proposes N continuations in parallel
(3.3). With a single token, in one forward pass, the target chooses one of them or rejects them all. After a rejection,
the target writes the step itself (3.4).

No prompts or code are published. Choices of this implementation:
- The question asks for the proposal that is correct and takes the solution furthest, and for a rejection if every
  proposal contains a mistake. In the paper, candidates that fail to advance the reasoning are rejected, too (3.4). The
  wording can be changed with --prompts (table step_choice).
- Drafts that differ only in surrounding white space are one option, so a choice may have fewer than N.
- If the chain ends inside a step, as is usual after guidance, each proposal is shown with the step's beginning.
- Steps end at the run's step separator (a blank line) or after `step_tokens`.
- Two equal steps in a row end the chain without an answer, as in SpecReason's program; vanilla runs go on.
- The token budget includes the answer; the paper's 8,192 tokens are those of the reasoning (4.1).
- N, k and the model that answers are not stated either: see the parameters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from harness import prompts
from harness.chain import Chain
from harness.chain.step_candidates import as_candidates, mark_accepted, mean_score, offered_texts
from harness.engine import Completion, Role, Tokenizer
from harness.methods.method import Method, check_range, parameter
from harness.prompts import Prompts, Question
from harness.recording import Model
from harness.trace import Candidate, Verdict


@dataclass(frozen=True)
class SpecCoT(Method):
    """SpecCoT: write guidance, then draft and judge N candidates for every step."""

    drafts: int = parameter(
        5,
        help="N, the number of candidates per step (SpecCoT section 3.3). "
        "The paper sweeps it up to 10 (figure 4b) without stating its main setting.",
    )
    guidance_tokens: int = parameter(
        50,
        help="k, the number of tokens that the target writes first; 0 turns guidance off (SpecCoT section 3.2). "
        "The paper sweeps it (figure 4a) without stating its main setting.",
    )
    step_tokens: int = parameter(
        512,
        help="Maximum length of a step, in tokens. The SpecCoT paper gives no limit; the default is SpecReason's.",
    )
    verdict: Literal["joint", "separate", "none"] = parameter(
        "joint",
        help="joint (SpecCoT section 3.4): the target chooses one of all candidates, or rejects them all. "
        "separate (not in the paper): the target scores each candidate from 0 to 9, in a separate request. "
        "none (figure 1b): the single candidate is accepted without a verdict.",
    )
    """With separate verdicts the accepted candidate is already in the target's prefix cache, after the chain."""
    threshold: float = parameter(
        5.0, help="Minimum score, from 0 to 9, to accept a candidate with --verdict separate (not in the paper)."
    )
    skip_agreed: bool = parameter(
        False, help="Accept a step without a verdict when all N drafts are identical. This option is not in the paper."
    )
    """Steps on which several samples agree are right more often than others, and a verdict takes a third of a step's
    time."""

    answer_by: Literal["target", "draft"] = parameter(
        "target",
        help="The model that writes the answer after the thought, if the draft or target is a reasoning model. The "
        "SpecCoT paper does not specify it; its token counts include no answer by the target.",
    )

    def __post_init__(self) -> None:
        check_range("drafts", self.drafts, 1, 25)
        check_range("guidance_tokens", self.guidance_tokens, 0, None)
        check_range("step_tokens", self.step_tokens, 1, None)
        check_range("threshold", self.threshold, 0, 9)
        if self.verdict == "none" and self.drafts != 1:
            raise ValueError("--verdict none requires --drafts 1: several candidates need a verdict")
        if self.verdict != "separate" and self.threshold != SpecCoT.threshold:
            raise ValueError("--threshold requires --verdict separate: other verdicts have no score")

    @property
    def parallel(self) -> int:
        return self.drafts

    @property
    def target_parallel(self) -> int:
        return self.drafts if self.verdict == "separate" else 1

    @property
    def rubric(self) -> bool:
        """Whether the target's prompt explains the score: for separate verdicts, whose question is only `Score:`."""
        return self.verdict == "separate"

    def questions(self, role: Role, tokenizer: Tokenizer, wording: Prompts) -> Iterator[Question]:
        if role == "target" and self.verdict == "separate":
            yield prompts.short_score_question(tokenizer, wording)
        elif role == "target":
            yield prompts.step_choice_question(tokenizer, [str(i) for i in range(self.drafts)], wording)

    def verdict_tokens(self, token_budget: int) -> int:
        return {"joint": self.drafts, "separate": 1, "none": 0}[self.verdict] * min(self.step_tokens, token_budget)

    def cached_tokens(self, role: Role, token_budget: int) -> int:
        """Return the default plus, for the draft, the other candidates for a step, which share the preceding text."""
        candidates = (self.drafts - 1) * min(self.step_tokens, token_budget) if role == "draft" else 0
        return super().cached_tokens(role, token_budget) + candidates

    async def __call__(self, chain: Chain, draft: Model, target: Model) -> None:
        if self.guidance_tokens and not chain.steps:
            await chain.write(target, "guidance", max_tokens=self.guidance_tokens, stop=())

        while chain.reasoning and not chain.answered:
            proposed = await chain.propose(draft, self.drafts, max_tokens=self.step_tokens)
            candidates = as_candidates(proposed)
            agreed = self.skip_agreed and self.drafts > 1 and len(offered_texts(candidates)) == 1
            if agreed or self.verdict == "none":
                chain.accept(draft, "draft", proposed[mark_accepted(candidates, 0)], candidates)
                continue
            if self.verdict == "joint":
                verdict = await chain.choose(target, candidates)
                option = verdict.decision
                verdict.accepted = option < len(offered_texts(candidates))
            else:
                verdict, option = await self._separate(chain, target, candidates, proposed, draft)
            if verdict.accepted:
                chain.accept(draft, "draft", proposed[mark_accepted(candidates, option)], candidates, verdict)
            else:
                await chain.write(target, "fallback", max_tokens=self.step_tokens, refused=candidates, verdict=verdict)

        if not chain.answered:
            await chain.answer(target if self.answer_by == "target" else draft)

    async def _separate(
        self, chain: Chain, target: Model, candidates: list[Candidate], proposed: list[Completion], draft: Model
    ) -> tuple[Verdict, int]:
        """Score every candidate; return the verdict on the best one, and its option."""
        verdicts = await chain.score_each(target, candidates, proposed, draft)
        for verdict in verdicts:
            verdict.score = mean_score(verdict)
        for candidate in candidates:
            candidate.verdict_score = None if candidate.option is None else verdicts[candidate.option].score
        best = max(range(len(verdicts)), key=lambda option: verdicts[option].score or 0.0)
        verdicts[best].accepted = (verdicts[best].score or 0.0) >= self.threshold
        return verdicts[best], best
