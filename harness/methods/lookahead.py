"""Lookahead Reasoning: steps drafted ahead, verified in parallel (Fu et al., arXiv 2506.19830, section 3).

The draft writes gamma steps in a row. The target writes its own next step behind each of the gamma + 1 prefixes, all at
the same time. Draft steps are kept as long as each means the same as the target's step behind the same prefix; the
target's step replaces the first one that does not, or follows where all are kept.

This is the synchronous form (algorithm 1): the target begins once all steps are drafted. The authors' program
(hao-ai-lab/LookaheadReasoning) also overlaps the two and can draft several steps behind one prefix; neither is here.
What follows it: a step has at most 100 tokens; two steps that differ in spaces, line breaks and case only are equal
without a question; a step behind one that its limit cut is not compared, but is the target's, and so is a step with
which the target ends its reply and the draft does not. Gamma is 4 as the program's default; the paper varies it. One
point differs: the program compares nothing behind a prompt that ends without a blank line, and so never keeps the
first step of a chain; here it is compared. The sampling is the run's (the program: temperature 0.6, top-p 0.95 and, for
its default pair, top-k 20).

Who decides whether two steps mean the same: the paper's default is another model as judge (Qwen2.5-7B-Instruct), whose
most probable token decides. Here the target is asked, or the third model of the run (`judge`), in one forward pass for
each pair, which like the program's question holds the two steps alone. The paper's comparison by sentence embeddings
has a stand-in, the words, numbers and signs that two steps share (`verifier`); the program keeps steps whose embeddings
(all-mpnet-base-v2) have a cosine above 0.95, a threshold that says nothing about the stand-in. The wording of the
question is this project's own; the published one, which shows the target's step first, can be set with --prompts
(table equivalence: {first} is the draft's step, {second} the target's). Where a draft's step is kept, the trace has the
tokens of the target's own, and not its text.
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
    """Lookahead Reasoning's hyper-parameters. Calling it drafts ahead and keeps what the target agrees with."""

    gamma: int = parameter(4, help="Number of steps that are drafted ahead (authors' program; the paper varies it).")
    verifier: Literal["judge", "similarity"] = parameter(
        "judge",
        help="judge: a model is asked whether two steps mean the same. similarity: the cosine between their words, "
        "numbers and signs (a stand-in for the paper's sentence embeddings).",
    )
    judge: Literal["target", "reward"] = parameter(
        "target",
        help="Who judges: the target, or the third model of the run (--reward), such as the paper's "
        "Qwen/Qwen2.5-7B-Instruct.",
    )
    threshold: float = parameter(
        0.5,
        help="Lowest accepted probability of 'the same' by the judge, or lowest accepted cosine (0.5: the likelier).",
    )
    step_tokens: int = parameter(100, help="Maximum length of a step, in tokens (authors' program).")

    def __post_init__(self) -> None:
        check_range("gamma", self.gamma, 1, 32)
        check_range("threshold", self.threshold, 0, 1)
        check_range("step_tokens", self.step_tokens, 1, None)
        if self.verifier == "similarity" and self.judge != "target":
            raise ValueError("--judge belongs to --verifier judge: similarity asks no model")

    @property
    def roles(self) -> tuple[Role, ...]:
        """The third model is the judge."""
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
        """A question holds two steps, and neither problem nor chain."""
        return 2 * min(self.step_tokens, token_budget) if self.verifier == "judge" else 0

    def texts(self, role: Role, token_budget: int) -> tuple[Text, ...]:
        """A third model as judge reads two steps at a time, and no chain."""
        return () if role == "reward" else super().texts(role, token_budget)

    def cached_tokens(self, role: Role, token_budget: int) -> int:
        """The target's steps behind the prefixes share everything before them."""
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
        """Return up to gamma steps in a row; fewer where a sample is resumed among them, and none behind an end."""
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
        """Return how probably each drafted step means the same as the target's, from 0 to 1; None: not compared."""
        pairs = [(step, mine) for (_, step), mine in zip(drafted, own, strict=False)]
        before = [chain.steps[-1].finish if chain.steps else None, *(step.finish for step, _ in pairs)]
        # Not behind a step that its limit cut, nor where the target alone ends its reply with its step.
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
        """Return how probably each of these pairs of steps means the same, from 0 to 1."""
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
        """Accept drafted steps up to the first that the target does not agree with, and then the target's own step."""
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
    """Return True where two steps differ in white space and case only."""
    return "".join(one.text.split()).lower() == "".join(other.text.split()).lower()


def _num_kept(chain: Chain) -> int:
    """Return how many drafted steps were kept since the target wrote its last step."""
    return sum(1 for _ in takewhile(lambda step: step.author == "draft", reversed(chain.steps)))
