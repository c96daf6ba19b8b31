"""Token-level speculation inside the target's engine: tokens are proposed, the target checks them all in one pass.

Speculative sampling (Leviathan et al., arXiv 2211.17192; Chen et al., arXiv 2302.01318) leaves the target's
distribution as it is; vLLM does it. Light: a login node imports this without torch or vLLM.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Proposer = Literal["draft", "ngram"]
PROPOSERS: tuple[Proposer, ...] = ("draft", "ngram")
_NGRAM_LONGEST, _NGRAM_SHORTEST = 4, 2
"""Tokens at the end of the text that are looked up in it."""


@dataclass(frozen=True)
class Speculation:
    """Who proposes tokens, and how many at a time."""

    proposer: Proposer
    tokens: int
    model: str | None = None
    """The draft's folder or hub id; its weights are loaded a second time, into the target's engine."""
    revision: str | None = None

    def config(self) -> dict[str, object]:
        """vLLM's `speculative_config`, for a draft with the target's vocabulary."""
        if self.proposer == "ngram":
            lookup = {"prompt_lookup_max": _NGRAM_LONGEST, "prompt_lookup_min": _NGRAM_SHORTEST}
            return {"method": "ngram", "num_speculative_tokens": self.tokens, **lookup}
        revision = {"revision": self.revision} if self.revision else {}
        return {"method": "draft_model", "model": self.model, "num_speculative_tokens": self.tokens, **revision}


def proposer(method: str, asked: str | None) -> Proposer | None:
    """Who proposes tokens under `--spec-decode asked` (None: not given). Raises ValueError where that contradicts the
    method."""
    chosen = asked or ("draft" if method == "specdecode" else "none")
    if method == "specdecode" and chosen == "none":
        raise ValueError("specdecode is token-level speculation: --spec-decode draft or ngram; without, it is vanilla")
    if method == "vanilla" and chosen != "none":
        raise ValueError("the target alone under token-level speculation is --method specdecode")
    return next((known for known in PROPOSERS if known == chosen), None)


def unsupported_reason(kind: str, device: str, temperature: float) -> str | None:
    """Why token-level speculation cannot be had, as one line that says what would be right; None where it can."""
    if kind != "vllm":
        return f"token-level speculation needs --engine vllm, not {kind}"
    if device == "cpu" and temperature > 0:
        return (
            "on a CPU vLLM draws wrong tokens under token-level speculation at any temperature above 0: "
            f"give --temperature 0 (not {temperature}), or run on a GPU"
        )
    return None
