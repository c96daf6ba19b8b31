"""The run factor: how much the time of identical work differs from one run to the next, as one factor per run.

Clocks, neighbors on the node, drivers and temperature change all times of a run together. An interval over problems
cannot see this, however many problems there are; only runs that were repeated can show it.

Source: one-way random effects, pooled over groups (Searle, Casella and McCulloch, Variance Components, 1992, section
3.6), and the square-and-add rule for the sum of two estimates with intervals (MOVER; Zou and Donner, Construction of
confidence limits about effect measures, Stat. Med. 27, 2008). README.md has the simulation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from warehouse.statistics.intervals import TAIL, Floats, Interval

FEWEST_DEGREES = 2
"""With fewer degrees of freedom than this (two runs have one) the factor's spread is not known well enough to use."""


@dataclass(frozen=True, slots=True)
class RunFactor:
    """Spread of the run factor, estimated from the repeats of settings."""

    standard_deviation: float
    """Of the logarithm of a run's times; 0.05 is about 5 %."""
    degrees: int
    """Degrees of freedom: repeated runs minus their groups."""
    num_runs: int

    def half_width(self, repeats: Sequence[int] = (1, 1)) -> float:
        """Return the half-width of the interval of the logarithm of a ratio of two settings if their work is identical.

        repeats: runs of each setting, whose logarithms are averaged; one number for a setting alone.
        """
        quantile = float(special.stdtrit(self.degrees, TAIL))
        return quantile * float(np.sqrt(np.sum(1 / np.array(repeats)))) * self.standard_deviation


def run_factor(groups: Sequence[Floats]) -> RunFactor | None:
    """Return the spread of the run factor; None with fewer than FEWEST_DEGREES degrees of freedom.

    groups: one array (runs, problems) for each setting, of the logarithms of the problems' times in its repeats. How
    long the chains of a run came out is noise over problems and samples, and is counted as part of the factor.
    """
    means = [group.mean(axis=1) for group in groups if len(group) > 1 and group.shape[1] > 0]
    degrees = sum(len(values) - 1 for values in means)
    if degrees < FEWEST_DEGREES:
        return None
    squares = sum(float(((values - values.mean()) ** 2).sum()) for values in means)
    return RunFactor((squares / degrees) ** 0.5, degrees, sum(len(values) for values in means))


def between_runs(ratio: Interval, factor: RunFactor | None, repeats: Sequence[int] = (1, 1)) -> Interval:
    """Return the interval of a ratio of two settings' times, widened by the run factor; as it is where there is none.

    ratio: from `ratios`, with an interval over problems. repeats: as for `RunFactor.half_width`.
    """
    if factor is None or ratio.low is None or ratio.high is None:
        return ratio
    log, half = float(np.log(ratio.estimate)), factor.half_width(repeats)
    low = log - float(np.hypot(log - np.log(ratio.low), half))
    high = log + float(np.hypot(np.log(ratio.high) - log, half))
    return replace(ratio, low=float(np.exp(low)), high=float(np.exp(high)), kind=f"{ratio.kind}, run factor")
