"""How completions are sampled: by both models, and by one of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, Field

from harness.engine import Role
from harness.launch_flags import Flag

_TEMPERATURE = Field(ge=0, allow_inf_nan=False)
_TOP_K = Field(ge=0, le=2**31 - 1)  # engines have it in 32 bits
_PENALTY = Field(gt=0, allow_inf_nan=False)


def _of(role: Role, name: str) -> Flag:
    return Flag("sampling", f"The {role}'s own {name}.", default=f"--{name}")


class SamplingFlags(BaseModel):
    """How completions are sampled."""

    temperature: Annotated[float, Flag("sampling", "Sampling temperature; 0 is greedy decoding."), _TEMPERATURE] = 0.6
    top_p: Annotated[float, Flag("sampling", "Nucleus sampling threshold."), Field(gt=0, le=1)] = 0.95
    top_k: Annotated[int, Flag("sampling", "Sample from so many of the most probable tokens; 0: all."), _TOP_K] = 0
    min_p: Annotated[
        float,
        Flag("sampling", "Sample tokens with at least this share of the most probable one's probability; 0: all."),
        Field(ge=0, le=1),
    ] = 0.0
    repetition_penalty: Annotated[
        float,
        Flag("sampling", "Make tokens of prompt and chain less likely, above 1; verdicts are not affected. 1: none."),
        _PENALTY,
    ] = 1.0
    draft_temperature: Annotated[float | None, _of("draft", "temperature"), _TEMPERATURE] = None
    draft_top_p: Annotated[float | None, _of("draft", "top-p"), Field(gt=0, le=1)] = None
    draft_top_k: Annotated[int | None, _of("draft", "top-k"), _TOP_K] = None
    draft_min_p: Annotated[float | None, _of("draft", "min-p"), Field(ge=0, le=1)] = None
    draft_repetition_penalty: Annotated[float | None, _of("draft", "repetition-penalty"), _PENALTY] = None
    target_temperature: Annotated[float | None, _of("target", "temperature"), _TEMPERATURE] = None
    target_top_p: Annotated[float | None, _of("target", "top-p"), Field(gt=0, le=1)] = None
    target_top_k: Annotated[int | None, _of("target", "top-k"), _TOP_K] = None
    target_min_p: Annotated[float | None, _of("target", "min-p"), Field(ge=0, le=1)] = None
    target_repetition_penalty: Annotated[float | None, _of("target", "repetition-penalty"), _PENALTY] = None
    token_budget: Annotated[int, Flag("sampling", "Emitted tokens per sample, including the answer."), Field(ge=1)] = (
        8192
    )

    def sampling_of(self, role: Role) -> dict[str, int | float]:
        """Return how a model draws tokens, by the names of harness.engine.Sampling, where --temperature and --top-p do
        not say it."""
        plain: Mapping[str, float] = {
            "temperature": self.temperature, "top_p": self.top_p, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0
        }  # fmt: skip
        own = {name: getattr(self, f"{role}_{name}") for name in plain}
        asked = {name: getattr(self, name) if value is None else value for name, value in own.items()}
        return {name: asked[name] for name in plain if asked[name] != plain[name]}

    def temperature_of(self, role: Role) -> float:
        """Return the temperature that a model samples at."""
        return self.sampling_of(role).get("temperature", self.temperature)
