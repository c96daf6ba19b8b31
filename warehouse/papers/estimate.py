"""What a suite's run is likely to take: from the warehouse's history, else from the latency model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness import hardware
from harness.latency import Tokens, expected_work
from harness.launch_options import Launch
from warehouse.papers.conditions import num_problems

_GUESSED_SHARE = 0.5
"""Of the token budget, where no number of tokens is published."""
_GUESSED_REFUSALS = 0.2
"""Fallback rate where none is published; SpecCoT states 0.08 to 0.47."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Machine time of a run."""

    worker_hours: float
    gpu_hours: float
    source: str


def from_history(launch: Launch, run: Mapping[str, Any]) -> Estimate | None:
    """Estimate from a recorded run of the same method, models and dataset; None if the run has no times."""
    if not run["wall_seconds"] or not run["num_finished"]:
        return None
    samples = num_problems(launch) * launch.samples
    hours = float(run["wall_seconds"]) / run["num_finished"] * samples / 3600
    gpus = int(run["num_gpus"] or 0)
    return Estimate(hours, hours * gpus, f"history: {run['run_id']} on {run['devices']}")


def from_model(launch: Launch, published: Mapping[str, float], machine: hardware.Hardware) -> Estimate:
    """Estimate from the latency model. Raises ValueError if it has no rule for the method or the file lacks a model."""
    tokens, is_published = _tokens(launch, published)
    work = expected_work(launch.method, dict(launch.parameters), tokens)
    machine = machine.model_copy(update={"concurrency": launch.concurrency})
    projected = hardware.project([work], machine, num_problems(launch) * launch.samples)
    hours = projected.wall_seconds / 3600
    source = "published tokens" if is_published else f"{tokens.draft + tokens.target:.0f} tokens, a guess"
    return Estimate(hours, projected.gpu_hours, f"model: {source}")


def _tokens(launch: Launch, published: Mapping[str, float]) -> tuple[Tokens, bool]:
    refused = published.get("fallback", 100 * _GUESSED_REFUSALS) / 100
    if "target_tokens" in published:
        return Tokens(published.get("draft_tokens", 0.0), published["target_tokens"]), True
    total = published.get("tokens", _GUESSED_SHARE * launch.token_budget)
    if launch.method == "vanilla":
        return Tokens(0.0, total), "tokens" in published
    return Tokens((1 - refused) * total, refused * total, refused_share=refused), "tokens" in published
