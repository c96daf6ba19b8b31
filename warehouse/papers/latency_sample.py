"""What the latency of a published table costs from a sample of samples, beside running every sample alone.

Published latencies are of one sample in flight, which leaves the GPUs nearly idle. All samples in full batches and some
of them again, one at a time (`--latency-sample`), give the mean latency of a sample alone too
(warehouse/statistics/two_phase.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.launch_options import Launch
from warehouse.papers.conditions import num_problems
from warehouse.papers.estimate import Estimate
from warehouse.papers.suite import Suite
from warehouse.papers.vocabulary import OF_LATENCIES

TIMED, AT_ONCE = 100, 64
"""Samples of each run that are timed, and samples in flight of a full batch, where a launch asks for neither."""


@dataclass(frozen=True, slots=True)
class Hours:
    """GPU-hours of runs whose latency of a sample alone is measured, both ways."""

    alone: float = 0.0
    """With every sample alone."""
    batches: float = 0.0
    """All samples in full batches."""
    timing: float = 0.0
    """The samples that are timed, one at a time."""

    def __add__(self, other: Hours) -> Hours:
        """Return the sums."""
        return Hours(self.alone + other.alone, self.batches + other.batches, self.timing + other.timing)

    @property
    def with_sample(self) -> float:
        """Batches and timing together."""
        return self.batches + self.timing

    def as_asked(self) -> str:
        """Return in a sentence what runs take that have a latency sample, and what they would take without it."""
        return f"Latency from a sample of samples: {self._compared('')} with every sample alone{self._saving()}."

    def as_could_be(self, timed: int) -> str:
        """Return in sentences what runs with one sample in flight would take with a latency sample."""
        return (
            f"Latency from a sample of samples: with --concurrency {AT_ONCE} --latency-sample {timed} the runs with "
            f"one sample in flight take {self._compared('; by the latency model')}{self._saving()}."
        )

    def _compared(self, further: str) -> str:
        parts = f"{_hours(self.batches)} for the batches and {_hours(self.timing)} for the timing"
        return f"{_hours(self.with_sample)} GPU-hours ({parts}{further}) instead of {_hours(self.alone)}"

    def _saving(self) -> str:
        saved = 100 * (1 - self.with_sample / self.alone)
        return f", {abs(saved):.0f} % {'less' if saved >= 0 else 'more'}"


def _hours(hours: float) -> str:
    return f"{hours:,.1f}" if hours >= 1 else f"{hours:.2g}"


def is_asked(launch: Launch) -> bool:
    """Return whether a launch asks for a latency sample."""
    return launch.latency_sample is not None


def measures_latency(chosen: Suite, launch: Launch) -> bool:
    """Return whether a run of a suite is there for the latency of a sample alone, however it is measured."""
    has_latencies = any(metric.measure in OF_LATENCIES for metric in chosen.metrics.values())
    return has_latencies and (launch.concurrency == 1 or is_asked(launch))


def num_timed(launches: Sequence[Launch]) -> int:
    """Return how many samples of each of these launches are timed where none asks for a number: all have as many."""
    return min([TIMED, *(num_problems(launch) * launch.samples for launch in launches)])


def hours(
    launch: Launch,
    timed: int,
    start_hours: float,
    estimated: Callable[[Launch], Estimate | None],
    modelled: Callable[[Launch], Estimate | None],
) -> Hours | None:
    """Return what a run takes both ways; None where there is no estimate of its GPU-hours.

    `start_hours`: GPU-hours until the engines of a worker are up. `estimated` and `modelled`: the plan's estimate of
    a launch of this run, and that by the latency model. Full batches that no recorded run tells of are what the model
    says of them, times how much longer than the model says a sample alone takes.
    """
    every = launch.changed(concurrency=1, latency_sample=None)
    alone = estimated(every)
    if alone is None or not alone.gpu_hours:
        return None
    samples_alone = max(0.0, alone.gpu_hours - start_hours)
    timing = samples_alone * min(1.0, (launch.latency_sample or timed) / (num_problems(launch) * launch.samples))
    batches = estimated(launch) if is_asked(launch) else None
    if batches is not None and batches.is_recorded:
        return Hours(alone.gpu_hours, batches.gpu_hours, timing)
    at_once = launch.concurrency if is_asked(launch) else AT_ONCE
    one, full = modelled(every), modelled(every.changed(concurrency=at_once))
    if one is None or full is None or one.gpu_hours <= start_hours:
        return None
    factor = samples_alone / (one.gpu_hours - start_hours)
    return Hours(alone.gpu_hours, start_hours + factor * (full.gpu_hours - start_hours), timing)
