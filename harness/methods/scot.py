"""SCoT: speculative chain of thought (Wang et al., arXiv 2504.19095, section 3).

The draft writes N whole chains in parallel (3.2). In one forward pass the target picks the most probable of N + 1
numbers, the last of which rejects all chains (3.4, equation 3). The target then answers from the problem and the chosen
chain. If it has rejected all chains, it rethinks the problem and answers.

Sections are those of arXiv version 1; of the version in Findings of ACL 2026, only the abstract was consulted. Choices
of this implementation:
- Chains that differ only in surrounding white space are one option.
- Truncated chains are not offered (code: offered, see `offer_cut_drafts`). If no chain is left, the target rethinks.
- The target answers right after the chosen chain's `</think>` (code: after a line break, the tag and a blank line).
- The wording of the selection prompt is this project's; the authors' can be set with --prompts
  (harness/papers/prompts.toml).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from harness.chain import Chain, Stop
from harness.chain.step_candidates import as_candidates, mark_accepted, offered_texts
from harness.engine import Completion, Role, Tokenizer
from harness.methods.method import SAMPLE, Method, Text, check_range, parameter
from harness.problems.problem import Problem
from harness.prompts import THINK_END, Prompts, Question, chain_choice_question
from harness.recording import Model
from harness.trace import Candidate


@dataclass(frozen=True)
class SCoT(Method):
    """SCoT: draft N whole chains and select one; answer from it, or rethink."""

    drafts: int = parameter(
        5,
        help="N, the number of chains drafted in parallel. The default is the paper's (SCoT section 4.1); 1 is the "
        "paper's single-draft ablation.",
    )
    draft_tokens: int = parameter(
        5000, help="Maximum length of a drafted chain, in tokens. The default is the paper's (SCoT section 4.1)."
    )
    error_correction: bool = parameter(
        True,
        help="Allow the target to reject all drafts and rethink the problem (SCoT section 3.4). "
        "The ablation in section 4.3 turns this off.",
    )
    greedy_target: bool = parameter(
        False,
        help="Decode greedily when the target answers or rethinks, as the SCoT authors' code does. "
        "Drafts are still sampled.",
    )

    offer_cut_drafts: bool = parameter(
        False,
        help="Also offer chains truncated at --draft-tokens for selection, as the SCoT authors' code does. The paper "
        "does not specify this.",
    )

    def __post_init__(self) -> None:
        check_range("drafts", self.drafts, 1, 25)
        check_range("draft_tokens", self.draft_tokens, 1, None)

    @property
    def parallel(self) -> int:
        return self.drafts

    @property
    def drafts_whole_chains(self) -> bool:
        return True

    def questions(self, role: Role, tokenizer: Tokenizer, wording: Prompts) -> Iterator[Question]:
        if role == "target":
            drafts = [str(i) for i in range(self.drafts)]
            yield chain_choice_question(tokenizer, SAMPLE, drafts, wording, may_reject=self.error_correction)

    def verdict_tokens(self, token_budget: int) -> int:
        return self.drafts * min(self.draft_tokens, token_budget)

    def texts(self, role: Role, token_budget: int) -> tuple[Text, ...]:
        """Return one drafted chain for the draft; for the target, the default and all drafts in one question."""
        longest = "draft_tokens" if self.draft_tokens <= token_budget else "token_budget"
        if role == "draft":
            return (Text(min(self.draft_tokens, token_budget), (longest,)),)
        drafts = Text(self.verdict_tokens(token_budget), ("drafts", longest), self._question_tokens)
        return (*super().texts(role, token_budget), drafts)

    def cached_tokens(self, role: Role, token_budget: int) -> int:
        """Return, for the draft, all its chains; for the target, the budget or all drafts, whichever is longer.

        The target first selects a draft and then answers, so the two lengths do not add up.
        """
        if role == "draft":
            return self.drafts * min(self.draft_tokens, token_budget)
        return max(token_budget, self.verdict_tokens(token_budget))

    async def __call__(self, chain: Chain, draft: Model, target: Model) -> None:
        temperature = 0.0 if self.greedy_target else None
        if not chain.steps:
            await self._think(chain, draft, target, temperature)
        if chain.steps[-1].role == "draft":
            await chain.answer(target, temperature)

    async def _think(self, chain: Chain, draft: Model, target: Model, temperature: float | None) -> None:
        drafts = await chain.propose(
            draft, self.drafts, max_tokens=self.draft_tokens, stop=(THINK_END,) if chain.thinks else ()
        )
        is_short = chain.room(draft) < min(self.draft_tokens, chain.limits.token_budget)
        if is_short and any(completion.finish == "length" for completion in drafts):
            raise Stop("context")  # truncated before the requested length
        candidates = as_candidates(drafts)
        if not self.offer_cut_drafts:
            self._withdraw_unfinished(drafts, candidates)
        texts = offered_texts(candidates)
        verdict = None
        if texts:  # otherwise every chain was truncated and there is no choice
            verdict = await chain.choose_chain(target, candidates, may_reject=self.error_correction)
            verdict.accepted = verdict.decision < len(texts)
        if verdict is not None and verdict.accepted:
            chosen = drafts[mark_accepted(candidates, verdict.decision)]
            chain.accept(draft, "draft", chosen, candidates, verdict, closing=True)
        else:
            await chain.write(
                target,
                "rethink",
                max_tokens=chain.limits.token_budget,
                stop=(),
                refused=candidates,
                verdict=verdict,
                temperature=temperature,
            )

    def _withdraw_unfinished(self, drafts: list[Completion], candidates: list[Candidate]) -> None:
        """Exclude truncated chains from the selection, because they have no conclusion.

        If every chain was truncated and the target is not allowed to reject all of them, none is excluded.
        """
        if not self.error_correction and all(d.finish == "length" for d in drafts):
            return
        finished: dict[int, int] = {}
        for completion, candidate in zip(drafts, candidates, strict=True):
            assert candidate.option is not None
            is_cut_off = completion.finish == "length"
            candidate.option = None if is_cut_off else finished.setdefault(candidate.option, len(finished))

    def _question_tokens(self, tokenizer: Tokenizer, problem: Problem, wording: Prompts) -> int:
        """Return the number of tokens of a selection's question without the drafts, plus one for the reply."""
        drafts = ["0"] * self.drafts
        question = chain_choice_question(tokenizer, problem, drafts, wording, may_reject=self.error_correction)
        return len(question.ids) - self.drafts + 1
