"""Self-consistency and log-probability bounds, after the abstract of SpecGuard (Purohit et al., arXiv 2604.15244).

The draft samples k candidates for a step, and the most consistent one is selected. It is accepted if its score is at
least tau. Otherwise the target samples k steps, and the most consistent one becomes the step.

The paper's score is beta * confidence + (1 - beta) * grounding, with beta 0.3. Grounding needs attention weights, which
are not available here. This is therefore the paper's ablation "SC + LPBV" (table 1): self-consistency and confidence
only. It is less accurate than the full method.

The paper's full text was not consulted: this follows its abstract and reviews. Choices of this implementation:
- Log-probabilities are the draft's own, at temperature 1.
- Candidates are compared by shared words, numbers and symbols instead of a sentence encoder.
- Log-probabilities between l_min and 0 are scaled to a confidence.
- Steps end at a blank line or after 512 tokens.
- Sampling uses the run's settings (paper: temperature 0.7 and top-p 0.8). The paper's variant "greedy" is k = 1 at
  temperature 0.
- Of the target's samples, the trace contains the text of the selected one and the token count of all.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.chain import Chain
from harness.chain.step_candidates import as_candidates, most_consistent
from harness.engine import Completion, Role
from harness.methods.method import Method, check_range, parameter
from harness.recording import Model
from harness.trace import Decision


@dataclass(frozen=True)
class SpecGuard(Method):
    """SpecGuard: sample candidates for each step, select one, and accept it or let the target write the step."""

    k: int = parameter(
        16,
        help="Number of candidates per step from the draft and, after a rejection, from the target. The default is "
        "the paper's (SpecGuard section 4).",
    )
    tau: float = parameter(
        0.7, help="Minimum accepted confidence, from 0 to 1. The default is the paper's (SpecGuard section 4)."
    )
    l_min: float = parameter(
        -7.0,
        help="Log-probability, in nats, at which a step's least probable token gives confidence 0; log-probability 0 "
        "gives confidence 1. These bounds are not in the paper. With the defaults, every token of an accepted draft "
        "has a probability of at least 12 %.",
    )
    step_tokens: int = parameter(512, help="Maximum length of a step, in tokens. The paper's abstract gives no limit.")

    def __post_init__(self) -> None:
        check_range("k", self.k, 1, 64)
        check_range("tau", self.tau, 0, 1)
        check_range("l_min", self.l_min, -1000, -0.01)
        check_range("step_tokens", self.step_tokens, 1, None)

    @property
    def parallel(self) -> int:
        return self.k

    @property
    def target_parallel(self) -> int:
        return self.k

    def cached_tokens(self, role: Role, token_budget: int) -> int:
        """Return the default plus the other candidates for a step, which share the preceding text."""
        return super().cached_tokens(role, token_budget) + (self.k - 1) * min(self.step_tokens, token_budget)

    async def __call__(self, chain: Chain, draft: Model, target: Model) -> None:
        while not chain.answered:
            proposed = await chain.propose(draft, self.k, max_tokens=self.step_tokens, token_logprobs=True)
            candidates = as_candidates(proposed)
            chosen = most_consistent([completion.text for completion in proposed])
            decision = Decision.at_least("confidence", self.confidence(proposed[chosen]), self.tau)
            if decision.accepted:
                candidates[chosen].accepted = True
                chain.accept(draft, "draft", proposed[chosen], candidates, decision=decision)
            else:
                written = await chain.propose(target, self.k, max_tokens=self.step_tokens, purpose="fallback")
                own = written[most_consistent([completion.text for completion in written])]
                chain.accept(target, "fallback", own, candidates, decision=decision)

    def confidence(self, completion: Completion) -> float:
        """Return a step's confidence, 0 to 1, from its least probable token (LPBV); 1 without tokens."""
        assert completion.token_logprobs is not None
        return min(1.0, max(0.0, 1 - min(completion.token_logprobs, default=0.0) / self.l_min))
