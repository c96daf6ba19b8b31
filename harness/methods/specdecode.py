"""Token-level speculative decoding: the target alone, with proposed tokens verified inside its engine.

A baseline of SpecReason (section 5.1: the draft proposes five tokens at a time). Tokens are proposed inside the
target's engine (`--spec-decode`, `--spec-tokens`), so the text has the target's own distribution. For proposers and
draft sampling, see docs/engines.md.
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
    """The target writes chain and answer in one completion, with several tokens per forward pass if proposals match."""

    @property
    def roles(self) -> tuple[Role, ...]:
        """Return only the target: the draft runs inside the target's engine, not in a separate one."""
        return ("target",)

    async def __call__(self, chain: Chain, draft: Model | None, target: Model | None) -> None:
        await Vanilla("target")(chain, None, target)
