"""What the runner needs of a method, and what most methods answer alike."""

from __future__ import annotations

from typing import Any, Protocol

from harness.chain import Chain
from harness.engine import Role


class Method(Protocol):
    """An algorithm over a draft and a target; a frozen dataclass that inherits from this one."""

    @property
    def roles(self) -> tuple[Role, ...]:
        """The models that it needs."""
        return ("draft", "target")

    @property
    def parallel(self) -> int:
        """Completions of one sample drawn at once."""
        return 1

    @property
    def rubric(self) -> bool:
        """Whether the target's prompt has to say what a score is."""
        return False

    def verdict_tokens(self, token_budget: int) -> int:
        """Longest verdict prompt beyond problem and chain."""
        return 0

    async def __call__(self, chain: Chain, draft: Any, target: Any) -> None:
        """Fill the chain; `draft` and `target` are Models, None where not in `roles`."""
