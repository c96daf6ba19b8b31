"""Minimum detectable effect: the smallest true difference that a paired test detects with a specified power.

Source: Miller (arXiv 2411.00640), section 5; power of the t test by the noncentral t distribution.
"""

from __future__ import annotations

from scipy import optimize, stats

POWER = 0.8


def minimum_detectable_effect(standard_error: float, degrees: int, alpha: float = 0.05, power: float = POWER) -> float:
    """Return the smallest true difference that a two-sided paired t test detects, with the right sign, with `power`.

    standard_error: that of the mean difference, in the unit of the result. degrees: its degrees of freedom, at least 1.
    """
    critical = float(stats.t.ppf(1 - alpha / 2, degrees))

    def surplus(effect: float) -> float:
        return float(stats.nct.sf(critical, degrees, effect)) - power

    high = critical + 1
    while surplus(high) < 0:
        high *= 2
    return float(optimize.brentq(surplus, 0.0, high)) * standard_error
