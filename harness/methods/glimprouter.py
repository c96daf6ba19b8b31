"""GlimpRouter: route each step by the entropy of its first token (Zeng et al., arXiv 2601.05110, section 3).

The draft writes the first token of every step. If the entropy of the token's distribution exceeds tau, the target
writes the step; otherwise the draft continues. The target writes the answer after the thought.

The abstract and introduction of the paper were consulted; other details follow the authors' code
(Zengwh02/GlimpRouter). The entropy is that of the model's distribution at temperature 1, in nats, with threshold 1.0. A
step ends at a blank line or after 512 tokens. Differences within a step:
- The code computes the entropy over the 20 most probable tokens, normalized to 1; here it depends on the engine
  (Completion.entropies).
- The code discards the first token and has the step written from its beginning; here a draft that continues keeps it.
- A step of exactly tau goes to the target in the code, and to the draft in the abstract and here.

Differences at the end of a chain:
- After a repeated step or a spent thought budget (8,192 tokens), the code closes the thought and lets the target answer
  in up to 2,048 tokens. Here either ends the chain, as in every method.
- The code drops text after the end of the thought; here it is kept, and is the answer if it contains one.
- The code adds a blank line after a truncated step; here the next step continues inside it.
- Sampling follows the run (code: temperature 0.6 and top-p 0.95).
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
    """GlimpRouter's hyper-parameters; calling it routes each step by its first token."""

    tau: float = parameter(
        1.0,
        help="Maximum entropy of a step's first token, in nats, at which the draft writes the step (authors' code; "
        "its example script uses 0.9).",
    )
    first_steps: int = parameter(
        0, help="Number of steps that the target writes before the draft starts (authors' code)."
    )
    step_tokens: int = parameter(512, help="Maximum length of a step, in tokens (authors' code).")

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
