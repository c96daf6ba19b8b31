"""The latency of a sample as a sum over its calls, linear in token counts, with a handful of speeds per model.

A call waits for its prompt's tokens that no cache holds, then for the tokens of its longest completion. Both take
longer the more requests are running. The calls of one sample run one after the other, so a sample's latency is the sum
of its calls and of what the harness itself adds. SpecReason section 4.1 and SpecCoT section 3.4 count a verdict in the
same way: one short prefill and one token. A draft that was started under a verdict (specreason's `--lookahead`) adds
what it takes beyond that verdict.

The speeds are fitted to recorded calls (warehouse/comparison/latency_at_one.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass

from harness.engine import Role


@dataclass(frozen=True, slots=True)
class Work:
    """One call, or the sum of several calls of one model: the latency model is linear, so both are treated alike."""

    model: Role
    calls: float
    new_prompt_tokens: float
    """Prompt tokens that the prefix cache did not hold."""
    output_tokens: float
    """Tokens of the longest completion, which are on the critical path."""
    further_completions: float = 0.0
    """Completions of the call beyond the first."""
    further_requests: float = 0.0
    """Further requests of this engine that run at the same time."""
    begun_under: Work | None = None
    """The work that the sample waits for meanwhile; None where this work starts after all earlier work."""

    def features(self) -> tuple[float, ...]:
        """Return the factors of `ModelSpeed`'s numbers, in the order of its fields."""
        crowd = self.further_requests
        return (
            self.calls,
            self.new_prompt_tokens,
            self.output_tokens,
            self.output_tokens * self.further_completions,
            self.calls * crowd,
            self.new_prompt_tokens * crowd,
            self.output_tokens * crowd,
        )


@dataclass(frozen=True, slots=True)
class ModelSpeed:
    """Speeds of one model on one machine, in seconds and non-negative."""

    call: float = 0.0
    """Fixed cost of a call."""
    prompt_token: float = 0.0
    output_token: float = 0.0
    output_token_per_completion: float = 0.0
    """Added to an output token by every further completion of the call."""
    call_per_request: float = 0.0
    """Added to a call by every further running request."""
    prompt_token_per_request: float = 0.0
    output_token_per_request: float = 0.0

    def seconds(self, work: Work) -> float:
        """Return the wall time of the work."""
        speeds: tuple[float, ...] = astuple(self)
        return sum(speed * cause for speed, cause in zip(speeds, work.features(), strict=True))


@dataclass(frozen=True, slots=True)
class LatencyModel:
    """Predicts the latency of samples on one machine."""

    speeds: Mapping[Role, ModelSpeed]
    sample_overhead_seconds: float = 0.0
    """Time that a sample spends outside of its calls."""

    def sample_seconds(self, work: Iterable[Work]) -> float:
        """Return the predicted latency of one sample. Raises KeyError where a model has no speeds."""
        return self.sample_overhead_seconds + sum(self._waited(w) for w in work)

    def _waited(self, work: Work) -> float:
        under = work.begun_under
        seconds = self.speeds[work.model].seconds(work)
        return seconds if under is None else max(0.0, seconds - self.speeds[under.model].seconds(under))
