"""RSD: reward-guided speculative decoding (Liao et al., arXiv 2501.19324, section 3, algorithm 1).

The draft writes a step and a process reward model rates it. A weighting function maps the reward to the probability of
keeping the step (algorithm 2). If the step is not kept, the target writes it. The chain is thus drawn from a mixture of
both models that prefers steps with a high reward, not from the target's distribution. The paper shows that the best
function under a budget for the target is a step function with threshold delta, and uses 0.7 for every model.

Choices of this implementation, compared with the authors' code (BaohaoLiao/RSD):
- Steps end at the run's step separator (code: at a blank line) or after `step_tokens` (code: only the reply's limit
  applies).
- The reward model reads the chain as the other models do (code: problem and reply, without the models' prompt).
  A prompt file (`--prompts`, table reward) can adapt the question to the reward model: a causal model with two labels,
  a value head, or a classifier like the paper's (Skywork-o1-Open-PRM). As in the code, the target's steps are not
  rated.
- The reward is that of the step alone, as in the code: no product or minimum over the chain.
- Chains end with a repeated step, the budget or the context, as in every method here. The code also ends a chain after
  100 steps, and a batch that finishes no problem for five steps; both limits are omitted.
- Both models use the run's sampling (code: greedy, temperature 0, one sample).
- The weighting function is the threshold, as in the paper's experiments, or clipping.
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
    """RSD: draft and rate each step; keep it, or let the target rewrite it."""

    delta: float = parameter(
        0.7,
        help="Minimum reward of accepted steps, from 0 to 1; 0 accepts all steps. The default is from RSD's paper and "
        "code.",
    )
    weighting: Literal["binary", "clipping"] = parameter(
        "binary",
        help="binary: a step is kept if its reward is at least --delta; this is the best function, according to the "
        "RSD paper. clipping: a step is kept with a probability equal to its reward, without --delta (RSD section 3).",
    )
    step_tokens: int = parameter(512, help="Maximum length of a step, in tokens. The paper has no such limit.")

    def __post_init__(self) -> None:
        check_range("delta", self.delta, 0, 1)
        check_range("step_tokens", self.step_tokens, 1, None)
        if self.weighting != "binary" and self.delta != RSD.delta:
            raise ValueError("--delta requires --weighting binary: clipping has no threshold")

    @property
    def roles(self) -> tuple[Role, ...]:
        return ("draft", "target", "reward")

    def verdict_tokens(self, token_budget: int) -> int:
        """Return the maximum length of a step; only the reward model reads a step before it is accepted."""
        return min(self.step_tokens, token_budget)

    def cached_tokens(self, role: Role, token_budget: int) -> int:
        """Return the budget, plus one step for the reward model; the other models read only accepted steps."""
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
        """Return the minimum accepted reward: delta or, under clipping, a random number between 0 and 1.

        With a uniformly random threshold, a step is kept with a probability equal to its reward. The number depends
        only on the sample's seed and the step's index, so a resumed sample repeats its decisions.
        """
        if self.weighting == "binary":
            return self.delta
        drawn = hashlib.sha256(f"{chain.trace.seed}/{len(chain.steps)}/reward".encode()).digest()
        return (int.from_bytes(drawn[:6], "big") + 1) / (2**48 + 1)
