"""Token-level speculative decoding: the target alone, checking tokens that are proposed to it.

A baseline of SpecReason (section 5.1: the draft proposes five tokens at a time). The proposing happens inside the
target's engine (`--spec-decode`, `--spec-tokens`), so the text is drawn as the target alone would draw it.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.chain import Chain
from harness.engine import Role
from harness.methods.method import Method
from harness.methods.vanilla import Vanilla
from harness.recording import Model


@dataclass(frozen=True)
class SpecDecode(Method):
    """The target writes chain and answer in one go, several tokens a pass where the proposals are right."""

    @property
    def roles(self) -> tuple[Role, ...]:
        """The draft lives in the target's engine; it is none of its own."""
        return ("target",)

    async def __call__(self, chain: Chain, draft: Model | None, target: Model | None) -> None:
        """Fill the chain."""
        await Vanilla("target")(chain, None, target)
