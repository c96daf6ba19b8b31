"""Hardware files (a machine's speeds), and the projection of a run onto such a machine.

A hardware file is TOML. One table for each model that a run needs, `[draft]`, `[target]` and `[reward]`:

    name = "2 × H100"                  # what is printed
    source = "measured 2026-01-01"     # where the speeds are from; printed too
    gpus = 2                           # of one worker: GPU-hours count them
    workers = 1
    concurrency = 1                    # samples in flight per worker
    start_seconds = 240                # until the engines of a worker are up

    [target]
    output_tokens_per_second = 63.3    # one request alone
    prompt_tokens_per_second = 5000    # tokens that no cache holds
    call_seconds = 0.0                 # fixed cost of a call
    slower_per_request = 0.02          # by which share every further request under way slows a call
    slower_per_completion = 0.02       # by which share every further parallel completion slows an output token

`concurrency`, `workers`, `start_seconds`, `call_seconds`, `slower_per_…` may be left out: 1, 1, 0, 0, 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from harness.cli.toml_file import read_toml
from harness.engine import Role
from harness.latency import LatencyModel, ModelSpeed, Work

_ROUNDS = 50
"""Iterations of the fixed point for the requests in flight at each engine."""


class Speeds(BaseModel):
    """One model's speeds on the machine."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    output_tokens_per_second: float = Field(gt=0)
    prompt_tokens_per_second: float = Field(gt=0)
    call_seconds: float = Field(default=0.0, ge=0)
    slower_per_request: float = Field(default=0.0, ge=0)
    slower_per_completion: float = Field(default=0.0, ge=0)

    def speed(self) -> ModelSpeed:
        """Return the speeds in seconds per call and per token."""
        prompt, output = 1 / self.prompt_tokens_per_second, 1 / self.output_tokens_per_second
        return ModelSpeed(
            call=self.call_seconds,
            prompt_token=prompt,
            output_token=output,
            output_token_per_completion=output * self.slower_per_completion,
            call_per_request=self.call_seconds * self.slower_per_request,
            prompt_token_per_request=prompt * self.slower_per_request,
            output_token_per_request=output * self.slower_per_request,
        )


class Hardware(BaseModel):
    """The content of a hardware file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    source: str
    gpus: int = Field(ge=0)
    workers: int = Field(default=1, ge=1)
    concurrency: int = Field(default=1, ge=1)
    start_seconds: float = Field(default=0.0, ge=0)
    draft: Speeds | None = None
    target: Speeds | None = None
    reward: Speeds | None = None

    def model(self) -> LatencyModel:
        """Return the latency model with these speeds."""
        by_role: dict[Role, Speeds | None] = {"draft": self.draft, "target": self.target, "reward": self.reward}
        return LatencyModel({role: speeds.speed() for role, speeds in by_role.items() if speeds is not None})


@dataclass(frozen=True, slots=True)
class Projection:
    """The predicted duration of a run on a machine."""

    latency_seconds: Sequence[float]
    """Latency of each sample."""
    wall_seconds: float
    """Wall time of the whole run, with all workers busy to the end."""
    gpu_hours: float
    in_flight: Mapping[Role, float]
    """Average number of requests in flight at each engine."""


def read(path: Path) -> Hardware:
    """Read a hardware file. Raises ValueError with a one-line message."""
    try:
        return Hardware.model_validate(read_toml(path))
    except ValidationError as wrong:
        first = wrong.errors()[0]
        raise ValueError(
            f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}; see harness/hardware.py"
        ) from wrong


def project(samples: Sequence[Sequence[Work]], hardware: Hardware, num_samples: float | None = None) -> Projection:
    """Project samples with this work, or `num_samples` like them, onto a machine.

    With several samples in flight, the requests in flight at each engine depend on the latencies and vice versa; a
    fixed point iteration finds both. Raises ValueError if the file lacks a model.
    """
    model = hardware.model()
    needed = {work.model for sample in samples for work in sample}
    if missing := sorted(needed - set(model.speeds)):
        tables = ", ".join(f"[{role}]" for role in sorted(needed))
        raise ValueError(
            f"{hardware.name}: no table [{missing[0]}], but the run has calls of that model; valid: a file that has "
            f"{tables}"
        )
    number = len(samples) if num_samples is None else num_samples
    at_once = min(hardware.concurrency, ceil(number / hardware.workers))  # a worker may have fewer samples than that
    latencies, in_flight = crowded_latencies(samples, model, at_once)
    mean = sum(latencies) / len(latencies)
    wall = hardware.start_seconds + max(mean, number * mean / (at_once * hardware.workers))
    return Projection(latencies, wall, wall / 3600 * hardware.gpus * hardware.workers, in_flight)


def crowded_latencies(
    samples: Sequence[Sequence[Work]], model: LatencyModel, concurrency: int
) -> tuple[list[float], dict[Role, float]]:
    """Return the latency of each sample in seconds, and the mean number of requests in flight at each engine.

    concurrency: samples in flight; the requests that were recorded as in flight are ignored.
    """
    in_flight: dict[Role, float] = dict.fromkeys(model.speeds, 1.0)
    for _ in range(_ROUNDS):
        by_model: dict[Role, float] = dict.fromkeys(model.speeds, 0.0)
        for work in _crowded(samples, in_flight):
            by_model[work.model] += model.speeds[work.model].seconds(work)
        total = sum(by_model.values()) or 1.0
        in_flight = {role: max(1.0, concurrency * s / total) for role, s in by_model.items()}
    return [model.sample_seconds(_crowded([sample], in_flight)) for sample in samples], in_flight


def _crowded(samples: Sequence[Sequence[Work]], in_flight: Mapping[Role, float]) -> list[Work]:
    def crowded(work: Work) -> Work:
        under = work.begun_under and crowded(work.begun_under)
        return replace(work, further_requests=in_flight[work.model] - 1, begun_under=under)

    return [crowded(work) for sample in samples for work in sample]
