"""GlimpRouter: the entropy of a step's first token routes the step (Zeng et al., arXiv 2601.05110, section 3).

The draft writes the first token of every step. Where the entropy of that token's distribution exceeds tau, the target
writes the step, otherwise the draft goes on. The target writes the answer after the thought.

Read of the paper were its abstract and introduction; what they leave open follows the authors' program
(Zengwh02/GlimpRouter): the entropy is of the model's own distribution at temperature 1, in nats; its threshold is 1.0;
a step ends at a blank line or after 512 tokens; the target writes the answer. Three points of a step differ. The
program takes the entropy over the 20 most probable tokens, normalized to 1; here the engine says what it sees
(Completion.entropies). The program discards the first token and has the step written from its beginning; here a draft
that goes on keeps it.
The program sends a step of exactly tau to the target, the abstract to the draft, as here.

Ends differ too. Where a step repeats the one before or the budget of the thought (8,192 tokens) is spent, the program
closes the thought and has the target answer it, in up to 2,048 tokens; here either ends the chain, as in every method.
It drops what a step holds behind the end of the thought; here that is kept, and is the answer if it holds one. It puts
a blank line behind a step that its limit cut; here the next step goes on inside it. The sampling is the run's (the
program: temperature 0.6 and top-p 0.95).
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
    """GlimpRouter's hyper-parameters. Calling it routes one step after the other by its first token."""

    tau: float = parameter(
        1.0,
        help="Highest entropy of a step's first token, in nats, at which the draft writes the step (authors' program; "
        "its example script has 0.9).",
    )
    first_steps: int = parameter(
        0, help="Number of steps that the target writes before the draft begins (authors' program)."
    )
    step_tokens: int = parameter(512, help="Maximum length of a step, in tokens (authors' program).")

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
            entropy = first.entropies[0] if first.entropies else 0.0  # a server may keep the end of sequence to itself
            decision = Decision.at_most("entropy", entropy, self.tau)
            if decision.accepted:
                begun = replace(first, entropies=None)  # of the other tokens none is asked for
                step = await chain.continued(draft, begun, max_tokens=self.step_tokens - 1, purpose="draft")
                [candidate] = as_candidates([step])
                candidate.accepted = True
                chain.accept(draft, "draft", step, [candidate], decision=decision)
            else:
                refused = as_candidates([first])
                await chain.write(target, "fallback", max_tokens=self.step_tokens, refused=refused, decision=decision)
        if not chain.answered:
            await chain.answer(target)
