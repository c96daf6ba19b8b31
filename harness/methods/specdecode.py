"""Token-level speculative decoding: the target alone, checking tokens that are proposed to it.

A baseline of SpecReason (section 5.1: the draft proposes five tokens at a time). The proposing happens inside the
target's engine (`--spec-decode`, `--spec-tokens`), so the text is drawn as the target alone would draw it.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.chain import Chain
from harness.engine import Role
from harness.methods.vanilla import Vanilla
from harness.recording import Model


@dataclass(frozen=True)
class SpecDecode:
    """The target writes chain and answer in one go, several tokens a pass where the proposals are right."""

    @property
    def roles(self) -> tuple[Role, ...]:
        """The draft lives in the target's engine; it is none of its own."""
        return ("target",)

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
        await Vanilla("target")(chain, None, target)
