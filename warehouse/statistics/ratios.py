"""Times of settings and their ratios, paired by problem: the geometric mean, and the ratio of means.

Times are skewed and the quantity of interest is a ratio, so everything is computed on logarithms. Bootstrap intervals
over problems hold within the runs: clocks, neighbors on the node, drivers and temperature change all times of a run
together, which no number of problems shows. Repeats of a setting show it, as one factor per run.

The geometric mean answers how much faster a problem is, the ratio of means how much less time all problems take
together; published speed-ups are ratios of means.

Sources of the run factor: one-way random effects, pooled over groups (Searle, Casella and McCulloch, Variance
Components, 1992, section 3.6), and the square-and-add rule for the sum of two estimates with intervals (MOVER; Zou and
Donner, Construction of confidence limits about effect measures, Stat. Med. 27, 2008). Error rates:
docs/statistics.md.
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
"""Problems, or families, below which Student's t serves."""
OUTLYING_RATIO = 5.0
"""How far above or below the value an unseen problem may lie: it loops in one run and not in the other."""
FEWEST_DEGREES = 2
"""With fewer degrees of freedom than this (two runs have one) the factor's spread is not known well enough to use."""
_CELLS_AT_ONCE = 4_000_000
_LEAST_SPREAD = 1e-7
"""Standard errors below this are the rounding of products."""


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


@dataclass(frozen=True)
class SettingRatio:
    """Times of one setting divided by those of another, over the problems that all their runs timed."""

    geometric_mean: Interval
    """How much faster a problem is."""
    of_means: Interval
    """How much less time all problems take together; published speed-ups are this."""
    factor: RunFactor | None
    """The run factor that both intervals cover; None: too few repeats show it, and they hold within these runs."""


def ratio(
    first: Sequence[Floats], second: Sequence[Floats], family: Families | None = None, resamples: int = RESAMPLES
) -> SettingRatio:
    """Return the times of the setting `first` divided by those of `second`, with intervals.

    first, second: an array (n,) for each finished repeat of the setting, of the mean time of each of the same n
    problems. Repeats are averaged, for the geometric mean in logarithms. The intervals over problems are the symmetric
    bootstrap-t over families. The run factor is that of these repeats (`run_factor`): with fewer than three repeats of
    a setting, or two of both, there is none. Raises ValueError if a time is not positive.
    """
    if any(np.any(times <= 0) for times in (*first, *second)):
        raise ValueError("a ratio of times needs positive times")
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

    The interval is made on logarithms; the standard error is that of the mean, without the run factor.
    """
    every = np.stack(repeats)
    times = every.mean(axis=0)
    found = bootstrap_t(times, np.ones(len(times)), family, resamples, is_log=True)
    wide = between_runs(_possible(found, times), run_factor([np.log(every)]), (len(repeats),))
    error = None if found.standard_error is None else found.standard_error * found.estimate
    return replace(wide, standard_error=error)


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

    ratio: with an interval over problems. repeats: as for `RunFactor.half_width`.
    """
    if factor is None or ratio.low is None or ratio.high is None:
        return ratio
    log, half = float(np.log(ratio.estimate)), factor.half_width(repeats)
    low = log - float(np.hypot(log - np.log(ratio.low), half))
    high = log + float(np.hypot(np.log(ratio.high) - log, half))
    return replace(ratio, low=float(np.exp(low)), high=float(np.exp(high)), kind=f"{ratio.kind}, run factor")


def _possible(found: Interval, ratios: Floats) -> Interval:
    """Return an interval that ends where the value of no problem lies, seen or OUTLYING_RATIO times away.

    A few problems that take far longer than all others have resamples without them, and the interval of the bootstrap
    then ends anywhere.
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
    the delta method. is_log: on logarithms, with the standard error of the logarithm; x is then positive. Fewer than 5
    problems get Student's t. Without any spread there is no interval.
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
    """Return value and standard error of each resample of families, (resamples,) both; moments (families, 5)."""
    n, found = len(moments), []
    batch = max(1, _CELLS_AT_ONCE // n)
    for start in range(0, resamples, batch):
        copies = _copies(n, min(batch, resamples - start), start)
        found.append(np.stack(_value_and_error(copies @ moments / n, n, is_log)))
    values, errors = np.concatenate(found, axis=1)
    return values, errors


@lru_cache(maxsize=2)
def _copies(n: int, resamples: int, seed: int) -> Floats:
    """Return how often each family is in each resample, (resamples, n).

    The pairs of a load have equally many problems and share these numbers, which take most of the time. Means of a
    resample are products of them with the moments.
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
