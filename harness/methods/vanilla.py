"""Vanilla inference: one model alone. The papers' accuracy baseline (the target) and latency baseline (the draft)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from harness.chain import Chain, Stop
from harness.engine import Role
from harness.methods.method import Method, parameter
from harness.prompts import THINK_END
from harness.recording import Model


@dataclass(frozen=True)
class Vanilla(Method):
    """One model writes the chain and the answer in a single completion.

    Where a problem has a beginning, it continues that, within what the beginning leaves of the token budget.
    """

    model: Literal["draft", "target"] = parameter("target", help="The model of the pair that runs alone.")

    @property
    def roles(self) -> tuple[Role, ...]:
        return (self.model,)

    async def __call__(self, chain: Chain, draft: Model | None, target: Model | None) -> None:
        model = target if self.model == "target" else draft
        assert model is not None
        if not chain.steps:
            beginning = chain.problem.beginning
            if not model.tokenizer.thinks:  # a plain model is not shown the end of a thought
                beginning = beginning.replace(THINK_END, "")
            room = chain.limits.token_budget - len(model.tokenizer.encode(beginning))
            if room <= 0:
                raise Stop("budget")
            await chain.write(model, "chain", max_tokens=room, stop=(), opening=beginning)
