"""Minimum detectable effect: the smallest true difference that a paired comparison detects with a specified power.

Source: Miller (arXiv 2411.00640), section 5, with the interval's own half-width in place of a t quantile.
"""

from __future__ import annotations

from scipy import special

from warehouse.statistics.intervals import Interval

POWER = 0.8


def minimum_detectable_effect(difference: Interval, n: int, power: float = POWER) -> float | None:
    """Return the smallest true difference whose interval excludes 0 with `power`; None without an interval or spread.

    difference: over n problems. The interval of a difference this large is taken to be as wide as this one on its wider
    side, and the estimate to vary with its standard error.
    """
    if difference.low is None or difference.high is None or not difference.standard_error:
        return None
    half_width = max(difference.estimate - difference.low, difference.high - difference.estimate)
    return half_width + float(special.stdtrit(n - 1, power)) * difference.standard_error
