"""Vanilla inference: one model alone. The papers' accuracy baseline (the target) and latency baseline (the draft)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from harness.chain import Chain
from harness.engine import Role
from harness.methods.method import Method, parameter
from harness.recording import Model


@dataclass(frozen=True)
class Vanilla(Method):
    """One model writes the chain and the answer in a single completion."""

    model: Literal["draft", "target"] = parameter("target", help="The model of the pair that runs alone.")

    @property
    def roles(self) -> tuple[Role, ...]:
        """See Method.roles."""
        return (self.model,)

    async def __call__(self, chain: Chain, draft: Model | None, target: Model | None) -> None:
        """See Method.__call__."""
        model = target if self.model == "target" else draft
        assert model is not None
        if not chain.steps:
            await chain.write(model, "chain", max_tokens=chain.limits.token_budget, stop=())
