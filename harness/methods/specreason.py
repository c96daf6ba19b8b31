"""SpecReason: speculative reasoning (Pan et al., arXiv 2504.07891, section 4.1).

The small model (draft) speculates one step and the base model (target) scores it from 0 to 9 in one prefill-only pass.
At or above the threshold the step is accepted; below it the base model rewrites the step. The two models alternate,
even after the thought, until the reply contains an answer. The paper does not define the end of a chain; the authors'
code ends it at the first answer, even inside the thought (`ends_at`).

Steps end at a blank line and have at most 512 tokens, as in the authors' code (the paper has no limit). The next step
continues a truncated one, and is scored separately (code: a blank line separates them). The wording of the scoring
question is this project's: it asks whether a step is correct, valid and useful, like the paper's utility score. The
question in the authors' code asks the model to ignore usefulness; it can be set with --prompts
(harness/papers/prompts.toml).

Sections are those of arXiv version 1; of the version of NeurIPS 2025 (arXiv version 2), only the abstract was
consulted.

With `ends_at` "boxed" two differences from the code remain: a step is truncated where the token budget ends, and a step
that repeats the previous one ends the chain (code: only from the third step on).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from harness.chain import Chain
from harness.chain.step_candidates import as_candidates, mean_score
from harness.engine import Role, Tokenizer
from harness.methods.method import Method, check_range, parameter
from harness.prompts import Prompts, Question, score_question
from harness.recording import Model


@dataclass(frozen=True)
class SpecReason(Method):
    """SpecReason: draft and score each step; accept it, or let the target rewrite it."""

    threshold: float = parameter(
        7.0,
        help="Minimum accepted score, from 0 to 9. The default is from SpecReason section 4.1; figure 4 sweeps 3, 5 "
        "and 7.",
    )
    threshold_slope: float = parameter(
        0.0,
        help="Change of the threshold per step; the threshold stays within 0–9. If the change is negative, early steps "
        "have the highest threshold; if it is positive, late steps. This option is not in the paper.",
    )
    score: Literal["greedy", "average"] = parameter(
        "greedy",
        help="greedy: the most probable digit (the SpecReason authors' code gives 0 if another token is more "
        "probable). average: the probability-weighted mean of the digits, which is the second mode of that code.",
    )
    first_steps: int = parameter(
        0,
        help="Number of steps that the target writes before the draft may speculate. The option is from the SpecReason "
        "authors' code.",
    )
    step_tokens: int = parameter(
        512, help="Maximum length of a step, in tokens. The default is from the SpecReason authors' code."
    )
    lookahead: bool = parameter(
        False,
        help="Draft the next step while the target still scores the current one, and discard the early draft on a "
        "rejection. Changes the speed, not the text. This option is not in the paper.",
        changes_text=False,
    )
    """SpecCoT has no lookahead: it would have to guess the chosen candidate and spend N more drafts on each guess."""

    ends_at: Literal["answer", "boxed"] = parameter(
        "answer",
        help="answer: the chain ends with the answer after the thought. "
        "boxed: as in the SpecReason authors' code, it ends with the first step that contains 'boxed', 'Answer:' or "
        "'ANSWER:', even inside the thought; </think> is removed from all other steps.",
    )

    def __post_init__(self) -> None:
        check_range("threshold", self.threshold, 0, 9)
        check_range("first_steps", self.first_steps, 0, None)
        check_range("step_tokens", self.step_tokens, 1, None)

    @property
    def parallel(self) -> int:
        """Return 2 with lookahead, because a discarded completion may still be running next to the following one."""
        return 2 if self.lookahead else 1

    def questions(self, role: Role, tokenizer: Tokenizer, wording: Prompts) -> Iterator[Question]:
        if role == "target":
            yield score_question(tokenizer, wording)

    def verdict_tokens(self, token_budget: int) -> int:
        return min(self.step_tokens, token_budget)

    async def __call__(self, chain: Chain, draft: Model, target: Model) -> None:
        while not chain.answered:
            if len(chain.steps) < self.first_steps:
                await chain.write(target, "guidance", max_tokens=self.step_tokens)
                continue
            [speculated] = await chain.propose(draft, 1, max_tokens=self.step_tokens)
            if self.lookahead:
                chain.propose_behind(speculated, draft, max_tokens=self.step_tokens)
            verdict = await chain.score(target, speculated, draft)
            is_greedy = self.score == "greedy"
            verdict.score = float(verdict.options[verdict.decision]) if is_greedy else mean_score(verdict)
            verdict.accepted = verdict.score >= self.threshold_at(len(chain.steps))
            [candidate] = as_candidates([speculated])
            candidate.accepted = verdict.accepted
            if verdict.accepted:
                chain.accept(draft, "draft", speculated, [candidate], verdict)
            else:
                await chain.write(target, "fallback", max_tokens=self.step_tokens, refused=[candidate], verdict=verdict)

    def threshold_at(self, step: int) -> float:
        """Return the minimum accepted score of a step, with steps counted from 0."""
        return min(9.0, max(0.0, self.threshold + self.threshold_slope * step))
