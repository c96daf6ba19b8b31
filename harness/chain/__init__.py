"""The chain of thought that a method fills, and the candidates for its steps."""

from __future__ import annotations

from harness.chain.chain import Chain, Limits, Proposal, Stop
from harness.chain.step_candidates import as_candidates

__all__ = ["Chain", "Limits", "Proposal", "Stop", "as_candidates"]
