"""Token-level speculation inside the target's engine: proposed tokens are verified by the target in one forward pass.

Speculative sampling (Leviathan et al., arXiv 2211.17192; Chen et al., arXiv 2302.01318) leaves the target's
distribution unchanged; vLLM implements it. A login node can import this module: it needs neither torch nor vLLM.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Proposer = Literal["draft", "ngram"]
PROPOSERS: tuple[Proposer, ...] = ("draft", "ngram")
_NGRAM_LONGEST, _NGRAM_SHORTEST = 4, 2
"""Longest and shortest suffix of the text, in tokens, that is looked up in the text itself."""


@dataclass(frozen=True)
class Speculation:
    """The source of proposed tokens, and how many are proposed at a time."""

    proposer: Proposer
    tokens: int
    model: str | None = None
    """The draft's folder or hub id (None for ngram); the target's engine loads these weights too."""
    revision: str | None = None

    def config(self) -> dict[str, object]:
        """Return vLLM's `speculative_config`, for a draft with the target's vocabulary."""
        if self.proposer == "ngram":
            lookup = {"prompt_lookup_max": _NGRAM_LONGEST, "prompt_lookup_min": _NGRAM_SHORTEST}
            return {"method": "ngram", "num_speculative_tokens": self.tokens, **lookup}
        revision = {"revision": self.revision} if self.revision else {}
        return {"method": "draft_model", "model": self.model, "num_speculative_tokens": self.tokens, **revision}


def proposer(method: str, spec_decode: str | None) -> Proposer | None:
    """Return the source of proposed tokens under `--spec-decode` (None: the flag was not used).

    Raises ValueError where the flag contradicts the method.
    """
    chosen = spec_decode or ("draft" if method == "specdecode" else "none")
    if method == "specdecode" and chosen == "none":
        raise ValueError("specdecode is token-level speculation: --spec-decode draft or ngram; without, it is vanilla")
    if method == "vanilla" and chosen != "none":
        raise ValueError("the target alone under token-level speculation is --method specdecode")
    return next((candidate for candidate in PROPOSERS if candidate == chosen), None)


def unsupported_reason(kind: str, device: str, temperature: float) -> str | None:
    """Return why token-level speculation cannot be used, as one line that says what is valid; None where it can."""
    if kind != "vllm":
        return f"token-level speculation needs --engine vllm, not {kind}"
    if device == "cpu" and temperature > 0:
        return (
            "on a CPU vLLM draws wrong tokens under token-level speculation at any temperature above 0: "
            f"give --temperature 0 (not {temperature}), or run on a GPU"
        )
    return None
