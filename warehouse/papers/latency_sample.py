"""What the latency of a published table costs from a sample of samples, beside running every sample alone.

Published latencies are of one sample in flight, which leaves the GPUs nearly idle. All samples in full batches and some
of them again, one at a time (`--latency-sample`), give the mean latency of a sample alone too
(warehouse/statistics/two_phase.py).
"""

from __future__ import annotations

from dataclasses import dataclass

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
        parts = f"{_hours(self.batches)} for the batches and {_hours(self.timing)} for the timing"
        saved = 100 * (1 - self.with_sample / self.alone)
        return (
            f"Latency from a sample of samples: {_hours(self.with_sample)} GPU-hours ({parts}) instead of "
            f"{_hours(self.alone)} with every sample alone, {abs(saved):.0f} % {'less' if saved >= 0 else 'more'}."
        )


def _hours(hours: float) -> str:
    return f"{hours:,.1f}" if hours >= 1 else f"{hours:.2g}"
