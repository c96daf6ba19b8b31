"""Latencies and their ratios, paired by problem: the geometric mean and the ratio of means.

Times are skewed and the quantity of interest is a ratio, so everything is computed on the log scale. Bootstrap
intervals over problems are valid only within the given runs. Clocks, other jobs on the node, drivers and temperature
change all times of a run together, and no number of problems shows this. Repeated runs of a setting do show such
changes; they are modeled as one factor per run.

The geometric mean shows how much faster a typical problem is solved. The ratio of means shows how much less time all
problems take together; published speed-ups are ratios of means.

References for the run factor: one-way random effects, pooled over groups (Searle, Casella and McCulloch, Variance
Components, 1992, section 3.6), and the square-and-add rule for the sum of two estimates with intervals (MOVER; Zou and
Donner, Construction of confidence limits about effect measures, Stat. Med. 27, 2008). Error rates: docs/statistics.md
and tools/simulate/README.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy import special

from warehouse.statistics.intervals import LEVEL, TAIL, Families, Floats, Interval, clustered, family_numbers

RESAMPLES = 9_999
FEWEST_RESAMPLED = 5
"""Minimum number of problems, or families, for the bootstrap; with fewer, Student's t is used."""
OUTLYING_RATIO = 5.0
"""Assumed maximum factor between the estimate and the ratio of an unseen problem, which may loop in one run only."""
FEWEST_DEGREES = 2
"""Minimum degrees of freedom of the run factor. With only one (two runs), the estimate is too imprecise."""
_CELLS_AT_ONCE = 4_000_000
_LEAST_SPREAD = 1e-7
"""Standard errors up to this are treated as rounding errors."""


@dataclass(frozen=True, slots=True)
class RunFactor:
    """Standard deviation of the run factor, estimated from repeated runs of settings."""

    standard_deviation: float
    """Standard deviation of the logarithm of a run's times; 0.05 is about 5 %."""
    degrees: int
    """Degrees of freedom: number of repeated runs minus number of settings."""
    num_runs: int

    def half_width(self, repeats: Sequence[int] = (1, 1)) -> float:
        """Return the interval's half-width for the log ratio of two settings with identical work.

        repeats: number of runs per setting, whose logarithms are averaged; one number for a single setting.
        """
        quantile = float(special.stdtrit(self.degrees, TAIL))
        return quantile * float(np.sqrt(np.sum(1 / np.array(repeats)))) * self.standard_deviation


@dataclass(frozen=True)
class SettingRatio:
    """Times of one setting divided by those of another, over the problems timed in all their runs."""

    geometric_mean: Interval
    """Geometric mean over problems of the ratio of times, which is the ratio for a typical problem."""
    of_means: Interval
    """Ratio of total times; published speed-ups are of this kind."""
    factor: RunFactor | None
    """Run factor included in both intervals. None: too few repeats, so the intervals hold only within these runs."""


def ratio(
    first: Sequence[Floats], second: Sequence[Floats], family: Families | None = None, resamples: int = RESAMPLES
) -> SettingRatio:
    """Return the times of the setting `first` divided by those of `second`, with intervals.

    first, second: one array (n,) per finished repeat of the setting, with the mean time of each of the same n problems.
    A problem's times are averaged over the repeats; for the geometric mean, their logarithms are. The intervals over
    problems are the symmetric bootstrap-t over families. The run factor is estimated from these repeats (`run_factor`);
    this requires three repeats of one setting or two of both. Raises ValueError if a time is not positive.
    """
    if any(np.any(times <= 0) for times in (*first, *second)):
        raise ValueError("a ratio of times requires positive times")
    logs = [np.log(np.stack(repeats)) for repeats in (first, second)]
    own, other = (repeats.mean(axis=0) for repeats in logs)
    factor, repeats = run_factor(logs), (len(first), len(second))
    geometric = bootstrap_t(own - other, np.ones(len(own)), family, resamples)
    low, high = (None if end is None else float(np.exp(end)) for end in (geometric.low, geometric.high))
    geometric = replace(geometric, estimate=float(np.exp(geometric.estimate)), low=low, high=high)
    own_mean, other_mean = (np.stack(times).mean(axis=0) for times in (first, second))
    of_means = bootstrap_t(own_mean, other_mean, family, resamples, is_log=True)
    return SettingRatio(
        between_runs(_possible(geometric, np.exp(own - other)), factor, repeats),
        between_runs(_possible(of_means, own_mean / other_mean), factor, repeats),
        factor,
    )


def mean_time(repeats: Sequence[Floats], family: Families | None = None, resamples: int = RESAMPLES) -> Interval:
    """Return the mean over problems of a setting's times with its interval; arguments as for `ratio`.

    The interval is computed on the log scale. The standard error is that of the mean and excludes the run factor.
    """
    every = np.stack(repeats)
    times = every.mean(axis=0)
    found = bootstrap_t(times, np.ones(len(times)), family, resamples, is_log=True)
    wide = between_runs(_possible(found, times), run_factor([np.log(every)]), (len(repeats),))
    error = None if found.standard_error is None else found.standard_error * found.estimate
    return replace(wide, standard_error=error)


def run_factor(groups: Sequence[Floats]) -> RunFactor | None:
    """Return how much the times of repeats differ; None with fewer than FEWEST_DEGREES degrees of freedom.

    groups: one array (repeats, problems) per setting: the logarithm of each problem's time in each repeat. The factor
    also contains the noise of chain lengths, which differ between repeats.
    """
    means = [group.mean(axis=1) for group in groups if len(group) > 1 and group.shape[1] > 0]
    degrees = sum(len(values) - 1 for values in means)
    if degrees < FEWEST_DEGREES:
        return None
    squares = sum(float(((values - values.mean()) ** 2).sum()) for values in means)
    return RunFactor((squares / degrees) ** 0.5, degrees, sum(len(values) for values in means))


def between_runs(ratio: Interval, factor: RunFactor | None, repeats: Sequence[int] = (1, 1)) -> Interval:
    """Return the interval of a ratio of two settings' times, widened by the run factor if there is one.

    ratio: with its interval over problems. repeats: as for `RunFactor.half_width`.
    """
    if factor is None or ratio.low is None or ratio.high is None:
        return ratio
    log, half = float(np.log(ratio.estimate)), factor.half_width(repeats)
    low = log - float(np.hypot(log - np.log(ratio.low), half))
    high = log + float(np.hypot(np.log(ratio.high) - log, half))
    return replace(ratio, low=float(np.exp(low)), high=float(np.exp(high)), kind=f"{ratio.kind}, run factor")


def _possible(found: Interval, ratios: Floats) -> Interval:
    """Clip an interval to [min(estimate/5, smallest ratio), max(5 · estimate, largest ratio)]; 5 is OUTLYING_RATIO.

    With fewer than FEWEST_RESAMPLED problems it is unchanged. If a few problems take far longer than all others, some
    resamples lack them, and the bootstrap interval may be far too wide.
    """
    if found.low is None or found.high is None or len(ratios) < FEWEST_RESAMPLED:
        return found
    lowest, highest = found.estimate / OUTLYING_RATIO, found.estimate * OUTLYING_RATIO
    low, high = max(found.low, min(lowest, ratios.min())), min(found.high, max(highest, ratios.max()))
    return replace(found, low=float(low), high=float(high))


def bootstrap_t(
    x: Floats, y: Floats, family: Families | None = None, resamples: int = RESAMPLES, *, is_log: bool = False
) -> Interval:
    """Return Σx/Σy over problems with its symmetric bootstrap-t interval over families; x, y (n,).

    Source: Hall, On symmetric bootstrap confidence intervals (J. R. Stat. Soc. B 50, 1988), with the standard error of
    the delta method. If `is_log`, the interval is computed on the log scale, the standard error is that of the
    logarithm, and x must be positive. Fewer than 5 problems get Student's t. There is no interval without spread.
    """
    found, numbers = clustered(x, y, family), family_numbers(family)
    if numbers is not None:
        x, y = np.bincount(numbers, x).astype(float), np.bincount(numbers, y).astype(float)
    value, error = (float(part) for part in _value_and_error(_moments(x, y).mean(axis=0), len(x), is_log))
    kind, quantile = "t", float(special.stdtrit(len(x) - 1, TAIL)) if len(x) > 1 else 0.0
    reason = found.why_none or (None if error > _LEAST_SPREAD else "none: no spread between problems")
    if reason:
        return replace(found.without_interval(reason), standard_error=error if len(x) > 1 else None)
    if len(x) >= FEWEST_RESAMPLED:
        values, errors = _resampled(_moments(x, y), is_log, resamples)
        has_spread = errors > _LEAST_SPREAD
        quantile = float(np.quantile(np.abs(values - value)[has_spread] / errors[has_spread], LEVEL))
        kind = "bootstrap-t"
    ends = np.array([value - quantile * error, value + quantile * error])
    with np.errstate(over="ignore"):
        low, high = np.exp(ends) if is_log else ends
    kind += ", clustered" if found.has_families else ""
    return Interval(found.estimate, float(low), float(high), error, kind, families=found.families)


def _moments(x: Floats, y: Floats) -> Floats:
    return np.stack([x, y, x * x, x * y, y * y], axis=1)


def _resampled(moments: Floats, is_log: bool, resamples: int) -> tuple[Floats, Floats]:
    """Return estimate and standard error of each resample of families, both (resamples,); moments (families, 5)."""
    n, found = len(moments), []
    batch = max(1, _CELLS_AT_ONCE // n)
    for start in range(0, resamples, batch):
        copies = _copies(n, min(batch, resamples - start), start)
        found.append(np.stack(_value_and_error(copies @ moments / n, n, is_log)))
    values, errors = np.concatenate(found, axis=1)
    return values, errors


@lru_cache(maxsize=2)
def _copies(n: int, resamples: int, seed: int) -> Floats:
    """Return how often each family occurs in each resample, (resamples, n).

    This takes most of the time, so it is cached: the compared pairs usually have the same number of problems.
    """
    rng = np.random.default_rng(seed)
    return rng.multinomial(n, np.full(n, 1 / n), size=resamples).astype(np.float64)


def _value_and_error(means: Floats, n: int, is_log: bool) -> tuple[Floats, Floats]:
    """Return Σx/Σy, or its logarithm, with its standard error by the delta method; means (…, 5) of moments over n."""
    x, y, xx, xy, yy = np.moveaxis(means, -1, 0)
    by_x, by_y = (1 / x, -1 / y) if is_log else (1 / y, -x / y**2)
    variance = by_x**2 * (xx - x * x) + 2 * by_x * by_y * (xy - x * y) + by_y**2 * (yy - y * y)
    value = np.log(x / y) if is_log else x / y
    return value, np.sqrt(np.maximum(variance, 0.0) / max(1, n - 1))
