"""Methods that accept drafts by other means than a verdict, as somebody's own would; run with scripted engines.

`python -m tests.warehouse.own_methods FOLDER METHOD,METHOD… [FLAG …]` launches them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from harness.chain import Chain
from harness.chain.step_candidates import as_candidates
from harness.engine import Completion
from harness.methods import METHODS
from harness.methods.method import Method, parameter
from harness.recording import Model
from harness.trace import Decision


def confidence_of(text: str) -> float:
    """A stand-in for a model's own confidence, from 0 to 1: low where the scripted model writes a wrong step."""
    return (0.1 if "roughly" in text else 0.6) + len(text) % 4 / 10


@dataclass(frozen=True)
class Confident(Method):
    """Accepts a step where the draft's own confidence reaches the threshold."""

    confidence: float = parameter(0.65, help="Lowest accepted confidence.")

    async def __call__(self, chain: Chain, draft: Model, target: Model) -> None:
        """See Method.__call__."""
        while not chain.answered:
            [proposed] = await chain.propose(draft, 1, max_tokens=512)
            await take(chain, (draft, target), proposed, self.decide(proposed.text))

    def decide(self, text: str) -> Decision:
        """How a step is decided about."""
        return Decision.at_least("confidence", confidence_of(text), self.confidence)


@dataclass(frozen=True)
class Certain(Confident):
    """The same decisions, by a number of which low values are accepted."""

    def decide(self, text: str) -> Decision:
        """See Confident.decide."""
        return Decision.at_most("entropy", 1 - confidence_of(text), 1 - self.confidence)


@dataclass(frozen=True)
class Silent(Confident):
    """The same decisions, of which nothing but the outcome is recorded."""

    async def __call__(self, chain: Chain, draft: Model, target: Model) -> None:
        """See Method.__call__."""
        while not chain.answered:
            [proposed] = await chain.propose(draft, 1, max_tokens=512)
            await take(chain, (draft, target), proposed, self.decide(proposed.text), is_recorded=False)


async def take(
    chain: Chain, models: tuple[Model, Model], proposed: Completion, decision: Decision, *, is_recorded: bool = True
) -> None:
    """Take the proposed step, or have the target write it."""
    draft, target = models
    [candidate] = as_candidates([proposed])
    candidate.accepted = decision.accepted
    recorded = decision if is_recorded else None
    if decision.accepted:
        chain.accept(draft, "draft", proposed, [candidate], decision=recorded)
    else:
        await chain.write(target, "fallback", max_tokens=512, refused=[candidate], decision=recorded)


OWN = {"confident": Confident, "certain": Certain, "silent": Silent}


def launch(folder: str, methods: Sequence[str], flags: Sequence[str]) -> None:
    """Launch methods on the demo with scripted engines, in this process."""
    METHODS.update(OWN)
    from harness.launch import main  # its flags are those of the methods that it finds

    for method in methods:
        arguments = ["--method", method, "--dataset", "demo", "--engine", "scripted", "--cluster", "debug", *flags]
        main([*arguments, "--output", folder], standalone_mode=False)


if __name__ == "__main__":
    launch(sys.argv[1], sys.argv[2].split(","), sys.argv[3:])
