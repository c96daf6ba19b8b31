"""What a suite's run is likely to take: one estimate per run, however many suites share it.

The first of these that there is: a matching run in the warehouse; the latency that a paper publishes for this run, in
whichever suite; the latency that follows from a published ratio or throughput; the latency model with the published
token counts of this run; the latency model with half of the token budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from harness import hardware
from harness.engines.speculation import proposer
from harness.latency import Tokens, expected_work
from harness.launch_options import Launch
from harness.methods import build
from warehouse.papers.conditions import num_problems
from warehouse.papers.published import Published, Setting, Value, mean, num_gpus
from warehouse.papers.suite import Suite

_HISTORY = "history: "
"""Begins the source of an estimate that a recorded run gave."""
_GUESSED_SHARE = 0.5
"""Of the token budget, where no number of tokens is published."""
_GUESSED_REFUSALS = 20.0
"""Fallback rate in percent where none is published; SpecCoT states 8 to 47."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Machine time of a run."""

    worker_hours: float
    gpu_hours: float
    source: str

    @property
    def is_recorded(self) -> bool:
        """Whether it is from a recorded run."""
        return self.source.startswith(_HISTORY)

    def with_gpu_hours(self, gpu_hours: float) -> Estimate:
        """Return the estimate with other GPU-hours, the model's corrected by the time of a sample alone."""
        source = self.source if self.is_recorded else f"{self.source}; corrected by the time of a sample alone"
        return Estimate(self.worker_hours * gpu_hours / self.gpu_hours, gpu_hours, source)


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine that a run is estimated for."""

    hardware: hardware.Hardware
    is_papers: bool
    """Whether it stands for the papers' machines, so that their latencies count; its GPUs are then the launch's."""

    def gpus(self, launch: Launch) -> int:
        """Return the GPUs of a worker."""
        return num_gpus(launch) if self.is_papers else self.hardware.gpus


def papers_machine(chosen: Suite) -> Machine:
    """Return the machine that stands for the one of the suite's paper."""
    file = Path(str(resources.files("harness.papers") / "hardware" / f"{chosen.hardware}.toml"))
    return Machine(hardware.read(file), is_papers=True)


def from_history(launch: Launch, run: Mapping[str, Any], num_samples: int | None = None) -> Estimate | None:
    """Estimate from a recorded run with the same method, models, dataset, sampling and concurrency.

    num_samples: of how many samples; without it of all of the launch, whose dataset is then a known one. Returns None
    if the run has no times, or a model was split over another number of devices than the launch asks for.
    """
    parallel = {"draft": launch.draft_tensor_parallel, "target": launch.target_tensor_parallel}
    roles = build(launch.method, dict(launch.parameters)).roles
    if any(parallel[role] not in (None, run[f"engine_{role}_tensor_parallel"]) for role in roles):
        return None
    if not run["wall_seconds"] or not run["num_finished"]:
        return None
    number = _num_samples(launch) if num_samples is None else num_samples
    hours = float(run["wall_seconds"]) / run["num_finished"] * number / 3600
    gpus = int(run["num_gpus"] or 0)
    return Estimate(hours, hours * gpus, f"{_HISTORY}{run['run_id']} on {run['devices']}")


def estimate(
    launch: Launch, own: Setting, of_paper: Setting, published: Published, machine: Machine
) -> Estimate | None:
    """Estimate a run from what is published, else from the latency model; None if that has no rule for the method.

    `of_paper` is the setting of the suite's own flags: with other models its token counts are the best there are.
    Raises ValueError if the hardware file lacks a model.
    """
    if machine.is_papers and (seconds := _published_seconds(launch, own, published)):
        at_once = min(launch.concurrency, _num_samples(launch))
        hours = (machine.hardware.start_seconds + seconds.number * _num_samples(launch) / at_once) / 3600
        return Estimate(hours, hours * machine.gpus(launch), seconds.source)
    return modelled(launch, own, of_paper, published, machine)


def guessed(launch: Launch, machine: Machine, num_samples: int, share: float = _GUESSED_SHARE) -> Estimate | None:
    """Estimate by the latency model with a share of the token budget; None if that has no rule for the method.

    Raises ValueError if the hardware file lacks a model.
    """
    nothing = Setting(None, None)
    return modelled(launch, nothing, nothing, Published(), machine, num_samples, share)


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


def modelled(
    launch: Launch,
    own: Setting,
    of_paper: Setting,
    published: Published,
    machine: Machine,
    num_samples: int | None = None,
    share: float = _GUESSED_SHARE,
) -> Estimate | None:
    """Estimate a run by the latency model alone; None if that has no rule for the method.

    `share`: of the token budget, where no tokens are recorded. Raises ValueError if the hardware file lacks a model.
    """
    tokens, source = _tokens(launch, own, of_paper, published, share)
    try:
        work = expected_work(launch.method, dict(launch.parameters), tokens)
    except ValueError:
        return None
    speeds = machine.hardware.model_copy(update={"concurrency": launch.concurrency, "gpus": machine.gpus(launch)})
    projected = hardware.project([work], speeds, _num_samples(launch) if num_samples is None else num_samples)
    if proposer(launch.method, launch.spec_decode):
        source += ", without the gain of token-level speculation"
    return Estimate(projected.wall_seconds / 3600, projected.gpu_hours, f"model: {source}")


def _tokens(
    launch: Launch, own: Setting, of_paper: Setting, published: Published, share_of_budget: float
) -> tuple[Tokens, str]:
    """Return the tokens of an average sample, and where they are from."""
    text = own.text if published.has_tokens(own.text) else of_paper.text
    whole, thought = published.count(text, "whole"), published.count(text, "thought", "target")
    draft, answer = published.count(text, "draft"), published.count(text, "answer")
    refused = mean(published.refused[text]).number if text in published.refused else _GUESSED_REFUSALS
    if whole is None and thought is None:  # an answer alone says nothing of the thought before it
        whole = Value(share_of_budget * launch.token_budget, "half of the token budget, a guess")
    parts = [part for part in ((whole,) if whole else (thought, draft, answer)) if part is not None]
    total = sum(part.number for part in parts)
    fits = min(1.0, launch.token_budget / total)
    sources = dict.fromkeys(part.source for part in parts)
    words = f"{total:,.0f} tokens, {', '.join(sources)}"
    if draft is not None:
        return Tokens(fits * draft.number, fits * (total - draft.number)), words
    if launch.method in ("vanilla", "specdecode"):
        return Tokens(0.0, fits * total), words
    share = refused / 100
    if launch.parameters.get("verdict") == "none":  # the target writes the guidance alone
        share = min(1.0, float(str(launch.parameters["guidance_tokens"])) / total)
    return Tokens(fits * (1 - share) * total, fits * share * total, refused_share=share), words
