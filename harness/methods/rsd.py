"""RSD: reward-guided speculative decoding (Liao et al., arXiv 2501.19324, section 3, algorithm 1).

The draft writes a step and a process reward model rates it. A weighting function of the reward says with which
probability the step is kept (algorithm 2); otherwise the target writes the step instead. The chain is so drawn from a
mixture of both models that prefers steps of high reward, and is not the target's distribution. The paper shows that
the best function under a budget for the target is a step at a threshold delta, and uses it with 0.7 for every model.

What the paper leaves open, and what is done here:
- Where a step ends: its program ends steps at a blank line; here it is the run's step separator.
- How long a step may be: its program sets no limit below that of the whole reply; `step_tokens` is this project's.
- What is rated: its program sends the problem and the reply so far to the reward model, without the models' prompt;
  a step of the target is not rated, there or here.
  Here the reward model continues the chain as the other models read it, and what it is asked is data (`--prompts`,
  table reward), so that reward models of other formats can be described: a causal model with two labels, or one with a
  value head or a classifier, as the paper's own (Skywork-o1-Open-PRM) has.
- The reward of a step is the one of this step alone, as in the program, neither a product nor a minimum over the chain.
- Repeated steps, budget and context end a chain as they do in every method here. Its program (BaohaoLiao/RSD) ends one
  after 100 steps, which is left out, and a batch that finishes no problem for five steps, which depends on the batch.
- The sampling of both models is the run's; its program decodes greedily (temperature 0, one sample).
- Of the weighting functions besides the threshold, clipping is offered; the paper's experiments use the threshold.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal

from harness.chain import Chain
from harness.chain.step_candidates import as_candidates
from harness.engine import Role
from harness.methods.method import Method, check_range, parameter
from harness.recording import Model
from harness.trace import Decision


@dataclass(frozen=True)
class RSD(Method):
    """RSD's hyper-parameters. Calling it drafts a step, asks for its reward, and keeps or rewrites it, step by step."""

    delta: float = parameter(
        0.7, help="Lowest accepted reward, from 0 to 1 (RSD and its authors' program: 0.7). 0 accepts every draft."
    )
    weighting: Literal["binary", "clipping"] = parameter(
        "binary",
        help="binary: a step is kept if its reward is at least --delta (RSD's optimal function). "
        "clipping: it is kept with a probability that equals its reward, and --delta is not used (RSD section 3).",
    )
    step_tokens: int = parameter(512, help="Maximum length of a step, in tokens (not in the paper).")

    def __post_init__(self) -> None:
        check_range("delta", self.delta, 0, 1)
        check_range("step_tokens", self.step_tokens, 1, None)
        if self.weighting != "binary" and self.delta != RSD.delta:
            raise ValueError("--delta belongs to --weighting binary: clipping compares no reward with a threshold")

    @property
    def roles(self) -> tuple[Role, ...]:
        return ("draft", "target", "reward")

    def verdict_tokens(self, token_budget: int) -> int:
        """It is the reward model that reads the new step."""
        return min(self.step_tokens, token_budget)

    def cached_tokens(self, role: Role, token_budget: int) -> int:
        """The target reads accepted steps only."""
        return token_budget + (self.verdict_tokens(token_budget) if role == "reward" else 0)

    async def __call__(self, chain: Chain, draft: Model, target: Model) -> None:
        while not chain.answered:
            [proposed] = await chain.propose(draft, 1, max_tokens=self.step_tokens)
            verdict = await chain.reward(proposed, draft)
            decision = Decision.at_least("reward", verdict.score or 0.0, self._threshold(chain))
            [candidate] = as_candidates([proposed])
            candidate.accepted = verdict.accepted = decision.accepted
            if decision.accepted:
                chain.accept(draft, "draft", proposed, [candidate], verdict, decision=decision)
            else:
                await chain.write(
                    *(target, "fallback"),
                    max_tokens=self.step_tokens,
                    refused=[candidate],
                    verdict=verdict,
                    decision=decision,
                )

    def _threshold(self, chain: Chain) -> float:
        """Return the lowest reward that is accepted now; under clipping a number drawn from (0, 1).

        A step is kept with a probability that equals its reward where the reward is at least a uniformly drawn number.
        It is drawn from the sample's seed and the step's number, so that a resumed step is decided as it was.
        """
        if self.weighting == "binary":
            return self.delta
        drawn = hashlib.sha256(f"{chain.trace.seed}/{len(chain.steps)}/reward".encode()).digest()
        return (int.from_bytes(drawn[:6], "big") + 1) / (2**48 + 1)
