"""Slow drift that no single night shows: change points in the scores of a segment."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from warehouse.statistics.changes import change_points
from warehouse.statistics.intervals import Floats

NEWEST = 120
"""Nights of a segment that are searched, the newest."""
PENALTY = 22.0
"""Penalty per change point, in squared standard errors of a night; see `statistics.changes`."""
RETURNED = 3.0
"""A level within this many standard errors of the median of all earlier nights is a return, and no drift."""


def drift(scores: Sequence[float], noises: Sequence[float | None], night_factor: float) -> tuple[float, int] | None:
    """Return by how much the latest level of these nights differs from the one before it, and the index of its start.

    None where there is one level, or where the latest one is where most earlier nights were: something was repaired.
    noises: standard errors of the scores over re-runs of the same problems; night_factor: standard deviation of what
    all cells of a night have in common.
    """
    skipped = max(0, len(scores) - NEWEST)
    values = np.array(scores[skipped:])
    noise = np.hypot(_known(values, noises[skipped:]), night_factor)
    starts = change_points(values, noise, PENALTY)
    if not starts:
        return None
    start, before = starts[-1], ([0, *starts])[-2]
    error = float(np.sqrt(np.mean(noise**2) * (1 / (len(values) - start) + np.pi / 2 / start)))  # π/2: of a median
    if abs(float(values[start:].mean() - np.median(values[:start]))) <= RETURNED * error:
        return None
    return float(values[start:].mean() - values[before:start].mean()), skipped + start


def _known(scores: Floats, noises: Sequence[float | None]) -> Floats:
    """Return the standard errors; with one sample per problem they come from differences between successive nights."""
    known = [noise for noise in noises if noise is not None]
    if len(known) == len(noises):
        return np.array(known)
    steps = np.diff(scores)
    return np.full(len(scores), float(np.sqrt(np.mean(steps**2) / 2)) if len(steps) else 0.0)
