"""GlimpRouter: route each step by the entropy of its first token (Zeng et al., arXiv 2601.05110, section 3).

The draft writes the first token of every step. If the draft's entropy at this token exceeds tau, the target writes the
step; otherwise the draft continues. The target writes the answer after the thought.

This follows the paper's abstract and introduction, and otherwise the authors' code (Zengwh02/GlimpRouter). The entropy
is that of the distribution at temperature 1, in nats; the threshold is 1.0. A step ends at a blank line or after 512
tokens. Differences from the code within a step:
- The code computes the entropy over the 20 most probable tokens, normalized to 1; here it covers as many tokens as the
  engine returns (Completion.entropies).
- The code discards the first token, and the step is written from its beginning; here the draft keeps the token if it
  continues.
- At an entropy of exactly tau, the target writes the step in the code, but the draft in the abstract and here.

Differences from the code at the end of a chain:
- After a repeated step or a spent thought budget (8,192 tokens), the code closes the thought, and the target answers in
  up to 2,048 tokens. Here both cases end the chain, as in every method.
- The code drops text after the end of the thought. Here the text is kept; an answer in it is the final answer.
- The code adds a blank line after a truncated step; here the next step continues the truncated one.
- Sampling uses the run's settings (code: temperature 0.6 and top-p 0.95).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from harness.chain import Chain
from harness.chain.step_candidates import as_candidates
from harness.methods.method import Method, check_range, parameter
from harness.recording import Model
from harness.trace import Decision


@dataclass(frozen=True)
class GlimpRouter(Method):
    """GlimpRouter: choose the writer of each step by the entropy of the step's first token."""

    tau: float = parameter(
        1.0,
        help="Maximum entropy at a step's first token, in nats, for the draft to write the step. The default is that "
        "of the authors' code, whose example script uses 0.9.",
    )
    first_steps: int = parameter(
        0,
        help="Number of steps that the target writes before the draft starts. The option is from the authors' code.",
    )
    step_tokens: int = parameter(
        512, help="Maximum length of a step, in tokens. The default is from the authors' code."
    )

    def __post_init__(self) -> None:
        check_range("tau", self.tau, 0, None)
        check_range("first_steps", self.first_steps, 0, None)
        check_range("step_tokens", self.step_tokens, 2, None)

    async def __call__(self, chain: Chain, draft: Model, target: Model) -> None:
        while chain.reasoning and not chain.answered:
            if len(chain.steps) < self.first_steps:
                await chain.write(target, "guidance", max_tokens=self.step_tokens)
                continue
            [first] = await chain.propose(draft, 1, max_tokens=1, entropies=True)
            assert first.entropies is not None
            entropy = first.entropies[0] if first.entropies else 0.0  # a server may omit the end-of-sequence token
            decision = Decision.at_most("entropy", entropy, self.tau)
            if decision.accepted:
                begun = replace(first, entropies=None)  # no entropies are requested for the other tokens
                step = await chain.continued(draft, begun, max_tokens=self.step_tokens - 1, purpose="draft")
                [candidate] = as_candidates([step])
                candidate.accepted = True
                chain.accept(draft, "draft", step, [candidate], decision=decision)
            else:
                refused = as_candidates([first])
                await chain.write(target, "fallback", max_tokens=self.step_tokens, refused=refused, decision=decision)
        if not chain.answered:
            await chain.answer(target)
