"""What limits a sample, and how one that reaches a limit ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from harness.engine import Completion, Role
from harness.recording import Model
from harness.trace import StopReason


class Stop(Exception):
    """Ends a sample for a reason that is data, not an error."""

    def __init__(self, reason: StopReason) -> None:
        super().__init__(reason)
        self.reason: StopReason = reason


Proposal = tuple[Model, Completion]
"""A step that the chain does not hold, with its author."""


@dataclass(frozen=True)
class Limits:
    """Sampling and length limits, which are the same for every method of a comparison."""

    temperature: float
    top_p: float
    token_budget: int
    """Most tokens that a sample may emit, final answer included."""
    by_role: Mapping[Role, Mapping[str, float]] = field(default_factory=dict)
    """What a model draws by instead (fields of `Sampling`), where it differs from the other one or from vLLM's
    defaults."""
