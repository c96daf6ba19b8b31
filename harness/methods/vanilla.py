"""Vanilla inference: one model alone. Every paper's accuracy baseline (the target) and latency baseline (the draft)."""

from __future__ import annotations

from dataclasses import dataclass

from harness.chain import Chain
from harness.engine import Role
from harness.recording import Model


@dataclass(frozen=True)
class Vanilla:
    """One model writes chain and answer in one go."""

    model: Role = "target"
    """Which of the pair runs alone."""

    @property
    def roles(self) -> tuple[Role, ...]:
        """The models that this method needs."""
        return (self.model,)

    @property
    def parallel(self) -> int:
        """Completions of one sample drawn at once."""
        return 1

    @property
    def rubric(self) -> bool:
        """No verdict needs one in the target's prompt."""
        return False

    def verdict_tokens(self, token_budget: int) -> int:
        """Longest verdict prompt beyond problem and chain."""
        return 0

    async def __call__(self, chain: Chain, draft: Model | None, target: Model | None) -> None:
        """Fill the chain."""
        model = target if self.model == "target" else draft
        assert model is not None
        if not chain.steps:
            await chain.write(model, "chain", max_tokens=chain.limits.token_budget, stop=())
