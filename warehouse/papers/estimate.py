"""What a suite's run is likely to take: one estimate per run, however many suites share it.

The first of these that there is: a matching run in the warehouse; the latency that a paper publishes for this run, in
whichever suite; the latency that follows from a published ratio or throughput.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.methods import build
from harness.settings.launch_settings import Launch
from warehouse.papers.conditions import num_problems
from warehouse.papers.published import Published, Setting, Value, mean, num_gpus

START_SECONDS = 240.0
"""Until the engines of a worker are up: an assumption, as no paper states it."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Machine time of a run."""

    worker_hours: float
    gpu_hours: float
    source: str


def from_history(launch: Launch, run: Mapping[str, Any], num_samples: int | None = None) -> Estimate | None:
    """Estimate from a recorded run with the same method, models, dataset, sampling and concurrency.

    num_samples: of how many samples; without it of all of the launch, whose dataset is then a known one. Returns None
    if the run has no times, or a model was split over another number of devices than the launch asks for.
    """
    roles = build(launch.method, dict(launch.parameters)).roles
    if any(launch.roles[role].tensor_parallel not in (None, run[f"engine_{role}_tensor_parallel"]) for role in roles):
        return None
    if not run["wall_seconds"] or not run["num_finished"]:
        return None
    number = _num_samples(launch) if num_samples is None else num_samples
    hours = float(run["wall_seconds"]) / run["num_finished"] * number / 3600
    gpus = int(run["num_gpus"] or 0)
    return Estimate(hours, hours * gpus, f"history: {run['run_id']} on {run['devices']}")


def from_published(launch: Launch, own: Setting, published: Published) -> Estimate | None:
    """Estimate from the latency that the papers have of this run; None where they say nothing of it."""
    seconds = _published_seconds(launch, own, published)
    if seconds is None:
        return None
    at_once = min(launch.concurrency, _num_samples(launch))
    hours = (START_SECONDS + seconds.number * _num_samples(launch) / at_once) / 3600
    return Estimate(hours, hours * num_gpus(launch), seconds.source)


def _num_samples(launch: Launch) -> int:
    return num_problems(launch) * launch.samples


def _published_seconds(launch: Launch, own: Setting, published: Published) -> Value | None:
    """Return the latency of a whole sample as the papers have it, None where they say nothing of it."""
    if values := published.seconds.get(own):
        latency = mean(values)
        if latency.includes == "thought":
            return _with_answer(own, published, latency)
        return Value(latency.number, f"published: {latency.number:,.4g} s a sample, {latency.source}")
    tokens = published.count(own.text, "whole", "thought")
    if tokens is not None and (values := published.wall_rates.get(own)):
        rate = mean(values)
        words = f"published: {rate.number:g} tokens/s, {rate.source}; {tokens.number:,.5g} tokens, {tokens.source}"
        return Value(launch.concurrency * tokens.number / rate.number, words)
    return None


def _with_answer(own: Setting, published: Published, thought: Value) -> Value:
    """Add the time of the answer to that of the thought where a paper publishes the answer's length.

    The target writes the answer as fast as it writes a thought alone.
    """
    words = f"published: {thought.number:,.4g} s of thought, {thought.source}"
    answer, speed = published.count(own.text, "answer"), published.target_seconds_per_token(own)
    if answer is None or speed is None:
        return Value(thought.number, f"{words}; the answer's time is not published and not in it")
    seconds = answer.number * speed
    words += f", and {seconds:,.4g} s for an answer of {answer.number:g} tokens, {answer.source}"
    return Value(thought.number + seconds, words)
