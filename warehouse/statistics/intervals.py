"""Confidence intervals for the mean over problems: one problem is one observation, its samples are averaged first.

Source: Miller, Adding Error Bars to Evals (arXiv 2411.00640), section 3. Accuracies and differences of two runs, whose
values have bounds: bounded.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its confidence interval, in the unit of the values."""

    estimate: float
    low: float | None
    """None if there are too few observations for an interval."""
    high: float | None
    standard_error: float | None
    """Standard error over problems, which covers the choice of problems."""
    kind: str
    """Name of the method, as tables print it."""
    degrees: int | None = None
    """Degrees of freedom of Student's t, if the interval uses it."""


def mean_t(values: Floats, level: float = 0.95) -> Interval:
    """Return Student's t interval of a mean; values (n,), one per problem. A single value has no interval."""
    n, mean = len(values), float(np.mean(values))
    if n < 2:
        return Interval(mean, None, None, None, "none: one problem")
    error = float(np.std(values, ddof=1)) / n**0.5
    half = float(special.stdtrit(n - 1, (1 + level) / 2)) * error
    return Interval(mean, mean - half, mean + half, error, "t", n - 1)


def rerun_standard_error(correct: Counts, samples: Counts) -> float | None:
    """Return the standard error of pass@1 over re-runs of the same problems: √(Σ p(1 − p)/(k − 1))/n.

    correct, samples (n,). None if any k is 1. The standard error over problems, which `mean_t` returns, is larger.
    """
    if np.any(samples < 2):
        return None
    p = correct / samples
    return float(np.sqrt(np.sum(p * (1 - p) / (samples - 1)))) / len(p)
