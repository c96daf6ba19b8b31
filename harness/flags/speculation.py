"""Token-level speculative decoding in the target's engine."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from harness.launch_flags import DraftSampling, Flag, Proposer


class SpeculationFlags(BaseModel):
    """Token-level speculative decoding in the target's engine."""

    spec_decode: Annotated[
        Proposer | None,
        Flag(
            "engine",
            "Token-level speculative decoding in the target's engine: who proposes tokens. draft: a model; ngram, "
            "suffix: earlier text; eagle3: a head (--spec-model); mtp: the target's own prediction layers.",
            default="draft for specdecode, otherwise none",
        ),
    ] = None
    spec_model: Annotated[
        str | None,
        Flag(
            "engine",
            "The weights that propose tokens: for eagle3 a head trained for the target (--list speculators), for draft "
            "another model than the run's, for mtp layers that are not in the target's own files.",
        ),
    ] = None
    spec_sampling: Annotated[
        DraftSampling | None,
        Flag(
            "engine",
            "How draft, eagle3 and mtp draw the tokens they propose. Greedy drafts are a weaker baseline at "
            "temperatures above 0.",
            default="greedy, as in vLLM",
        ),
    ] = None
    spec_tokens: Annotated[
        int | None,
        Flag(
            "engine",
            "Tokens proposed per step of token-level speculation; for suffix at most so many.",
            default="5; 24 for suffix, 1 for mtp",
        ),
        Field(ge=1),
    ] = None
