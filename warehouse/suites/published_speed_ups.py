"""Which published speed-ups the latency model explains, from the papers' own token counts and speeds.

What a paper leaves open goes in as a range (`speed_ups.toml`), and the model answers with a range. A published value
inside it is explained; above it, something else must have helped; below it, the method cost more than its tokens do.
"""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources

from pydantic import BaseModel, ConfigDict

from harness.latency import LatencyModel, ModelSpeed, Tokens, expected_chains, expected_steps

Range = tuple[float, float]
_DRAFTS = 5
"""Parallel drafts: SCoT section 4.1. SpecCoT does not state its N; it changes only the prompt of a verdict here."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Assumed(_Strict):
    step_tokens: Range
    prompt_tokens_per_second: Range
    draft_prompt_tokens_per_second: float
    speed_ratio_at_least: float
    verdict_tokens: Range
    tolerance: float


class _Steps(_Strict):
    name: str
    source: str
    published: float
    tokens: float
    refused: Range
    draft_alone: Range
    target_alone: Range


class _Chains(_Strict):
    name: str
    published: float
    draft_tokens: float
    target_tokens: float
    target_alone: Range
    speed_ratios: Mapping[str, Range]


class _Shares(_Strict):
    name: str
    published: float
    draft_share: float


class _Cases(_Strict):
    assumed: _Assumed
    steps: Sequence[_Steps]
    chains: Sequence[_Chains]
    shares: Sequence[_Shares]


@dataclass(frozen=True, slots=True)
class Explained:
    """A published speed-up and what the model makes of it."""

    name: str
    basis: str
    published: float
    low: float
    high: float
    tolerance: float

    @property
    def verdict(self) -> str:
        """Whether the latency model explains the published speed-up, in words."""
        if self.published > self.high * (1 + self.tolerance):
            return "no: faster than the model allows at these numbers"
        if self.published < self.low * (1 - self.tolerance):
            return "no: slower than its tokens and speeds"
        return "yes"


def explained() -> list[Explained]:
    """Every published speed-up for which there is enough to say."""
    text = (resources.files("harness.papers") / "speed_ups.toml").read_text(encoding="utf-8")
    cases = _Cases.model_validate(tomllib.loads(text))
    return [
        *(line for case in cases.chains for line in _chains(case, cases.assumed)),
        *(_steps(case, cases.assumed) for case in cases.steps),
        *(_shares(case, cases.assumed) for case in cases.shares),
    ]


def _steps(case: _Steps, assumed: _Assumed) -> Explained:
    corners = itertools.product(case.refused, assumed.step_tokens, assumed.prompt_tokens_per_second)
    ratios = []
    for refused, step, prompt_speed in corners:
        tokens = Tokens((1 - refused) * case.tokens, refused * case.tokens, step, refused)
        model = _model(_rate(case.draft_alone), _rate(case.target_alone), prompt_speed, assumed)
        ratios.append(case.target_alone[1] / model.sample_seconds(expected_steps(_DRAFTS, tokens)))
    return Explained(case.name, case.source, case.published, min(ratios), max(ratios), assumed.tolerance)


def _chains(case: _Chains, assumed: _Assumed) -> Iterator[Explained]:
    tokens = Tokens(case.draft_tokens, case.target_tokens)
    target = _rate(case.target_alone)
    for name, ratio_range in case.speed_ratios.items():
        ratios = []
        for ratio, prompt_speed in itertools.product(ratio_range, assumed.prompt_tokens_per_second):
            model = _model(ratio * target, target, prompt_speed, assumed)
            work = expected_chains(_DRAFTS, tokens)
            ratios.append(case.target_alone[1] / model.sample_seconds(work))
        low, high = ratio_range
        shown = f"{low:g}" if low == high else f"{low:g} to {high:g}"
        basis = f"table 1; draft {shown} times as fast ({'by the shares of time' if name == 'shares' else 'stated'})"
        yield Explained(case.name, basis, case.published, min(ratios), max(ratios), assumed.tolerance)


def _shares(case: _Shares, assumed: _Assumed) -> Explained:
    """Explain a speed-up at equal chain length: the base model writes the rejected steps."""
    refused = 1 - case.draft_share
    slowest = 1 / assumed.speed_ratio_at_least + refused + assumed.verdict_tokens[1] / assumed.step_tokens[0]
    fastest = refused + assumed.verdict_tokens[0] / assumed.step_tokens[1]
    by_draft = f"{100 * case.draft_share:.1f} % of the steps by the small model"
    basis = f"{by_draft}; chains of equal length, draft ≥ {assumed.speed_ratio_at_least:g} times as fast"
    return Explained(case.name, basis, case.published, 1 / slowest, 1 / fastest, assumed.tolerance)


def _model(draft: float, target: float, prompt_speed: float, assumed: _Assumed) -> LatencyModel:
    draft_prompt = 1 / assumed.draft_prompt_tokens_per_second
    return LatencyModel(
        {
            "draft": ModelSpeed(prompt_token=draft_prompt, output_token=1 / draft),
            "target": ModelSpeed(prompt_token=1 / prompt_speed, output_token=1 / target),
        }
    )


def _rate(alone: Range) -> float:
    tokens, seconds = alone
    return tokens / seconds
