"""How completions are sampled."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from harness.launch_flags import Flag


class SamplingFlags(BaseModel):
    """How completions are sampled."""

    temperature: Annotated[float, Flag("sampling", "Sampling temperature; 0 is greedy decoding."), Field(ge=0)] = 0.6
    top_p: Annotated[float, Flag("sampling", "Nucleus sampling threshold."), Field(gt=0, le=1)] = 0.95
    token_budget: Annotated[int, Flag("sampling", "Emitted tokens per sample, including the answer."), Field(ge=1)] = (
        8192
    )
