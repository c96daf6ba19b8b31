"""Ratio of times, paired by problem: geometric mean with a bootstrap over problems.

Times are skewed and the quantity of interest is a ratio, so everything is computed on logarithms. The bootstrap is the
studentized one (Efron and Tibshirani, An Introduction to the Bootstrap, section 12.5), because a percentile bootstrap
is too narrow with few problems.
"""

from __future__ import annotations

import numpy as np

from warehouse.statistics.intervals import Floats, Interval, mean_t

RESAMPLES = 9_999
_CELLS_AT_ONCE = 4_000_000


def geometric_mean_ratio(
    first: Floats, second: Floats, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """Return the geometric mean of first/second over problems with its interval; first, second (n,), in the same unit.

    Fewer than 5 problems are too few to resample, and ratios that differ only by rounding have no spread to resample:
    both get the t interval on logarithms. `standard_error` is that of the logarithm. Raises ValueError if a time is not
    positive.
    """
    if np.any(first <= 0) or np.any(second <= 0):
        raise ValueError("a ratio of times needs positive times")
    logs = np.log(first / second)
    plain = mean_t(logs, level)
    mean, error = plain.estimate, plain.standard_error
    ratio = float(np.exp(mean))
    if error is None or plain.low is None or plain.high is None:
        return Interval(ratio, None, None, None, plain.kind)
    low, high, kind = plain.low, plain.high, "t on logarithms"
    if len(logs) >= 5 and error > 0:
        pivots = _pivots(logs, resamples, np.random.default_rng(seed))
        if len(pivots):
            upper, lower = np.quantile(pivots, [(1 + level) / 2, (1 - level) / 2])
            low, high, kind = mean - float(upper) * error, mean - float(lower) * error, "studentized bootstrap"
    return Interval(ratio, float(np.exp(low)), float(np.exp(high)), error, kind)


def _pivots(values: Floats, resamples: int, rng: np.random.Generator) -> Floats:
    """Return (mean of a resample − mean)/its standard error for each resample that has any spread."""
    n, mean, pivots = len(values), float(values.mean()), []
    batch = max(1, _CELLS_AT_ONCE // n)
    for start in range(0, resamples, batch):
        drawn = values[rng.integers(0, n, size=(min(batch, resamples - start), n))]
        errors = drawn.std(axis=1, ddof=1) / n**0.5
        has_spread = errors > 1e-12
        pivots.append((drawn.mean(axis=1)[has_spread] - mean) / errors[has_spread])
    return np.concatenate(pivots)
