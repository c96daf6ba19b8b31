"""Ratios of times, paired by problem, with their intervals over problems: the geometric mean, and the ratio of means.

Times are skewed and the quantity of interest is a ratio, so everything is computed on logarithms. These intervals hold
within the two runs; `run_factor.between_runs` adds what differs from one run to the next.

The geometric mean answers how much faster a problem is, the ratio of means how much less time all problems take
together; published speed-ups are ratios of means.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from warehouse.statistics.bounded import bounded_mean
from warehouse.statistics.intervals import Families, Floats, Interval, clustered, family_numbers
from warehouse.statistics.run_factor import RunFactor, between_runs, run_factor

RESAMPLES = 9_999
OUTLYING_RATIO = 5.0
"""How far above or below the mean ratio an unseen problem may lie: it loops in one run and not in the other."""
_CELLS_AT_ONCE = 4_000_000
_LEAST_SPREAD = 1e-7
"""Standard errors below this are the rounding of products."""


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
    first: Sequence[Floats],
    second: Sequence[Floats],
    family: Families | None = None,
    level: float = 0.95,
    resamples: int = RESAMPLES,
) -> SettingRatio:
    """Return the times of the setting `first` divided by those of `second`, with intervals.

    first, second: an array (n,) for each finished repeat of the setting, of the mean time of each of the same n
    problems; repeats are averaged in logarithms. The intervals over problems are the symmetric bootstrap-t over
    families. The run factor is that of these repeats (`run_factor`): with fewer than three repeats of a setting, or two
    of both, there is none. Raises ValueError if a time is not positive.
    """
    if any(np.any(times <= 0) for times in (*first, *second)):
        raise ValueError("a ratio of times needs positive times")
    logs = [np.log(np.stack(repeats)) for repeats in (first, second)]
    own, other = (repeats.mean(axis=0) for repeats in logs)
    factor, repeats = run_factor(logs), (len(first), len(second))
    geometric = bootstrap_t(own - other, np.ones(len(own)), family, level, resamples)
    low, high = (None if end is None else float(np.exp(end)) for end in (geometric.low, geometric.high))
    geometric = replace(geometric, estimate=float(np.exp(geometric.estimate)), low=low, high=high)
    of_means = bootstrap_t(np.exp(own), np.exp(other), family, level, resamples, is_log=True)
    return SettingRatio(
        between_runs(geometric, factor, level, repeats), between_runs(of_means, factor, level, repeats), factor
    )


def mean_time(
    repeats: Sequence[Floats], family: Families | None = None, level: float = 0.95, resamples: int = RESAMPLES
) -> Interval:
    """Return the mean over problems of a setting's times with its interval; arguments as for `ratio`."""
    logs = np.log(np.stack(repeats))
    times = np.exp(logs.mean(axis=0))
    found = bootstrap_t(times, np.ones(len(times)), family, level, resamples, is_log=True)
    return between_runs(found, run_factor([logs]), level, (len(repeats),))


def bootstrap_t(
    x: Floats,
    y: Floats,
    family: Families | None = None,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    *,
    is_log: bool = False,
    seed: int = 0,
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
    kind, quantile = "t", float(special.stdtrit(len(x) - 1, (1 + level) / 2)) if len(x) > 1 else 0.0
    reason = found.why_none or (None if error > _LEAST_SPREAD else "none: no spread between problems")
    if reason:
        return replace(found.without_interval(reason), standard_error=error if len(x) > 1 else None)
    if len(x) >= 5:
        values, errors = _resampled(_moments(x, y), is_log, resamples, np.random.default_rng(seed))
        has_spread = errors > _LEAST_SPREAD
        quantile = float(np.quantile(np.abs(values - value)[has_spread] / errors[has_spread], level))
        kind = "bootstrap-t"
    ends = np.array([value - quantile * error, value + quantile * error])
    low, high = np.exp(ends) if is_log else ends
    kind += ", clustered" if found.has_families else ""
    return Interval(found.estimate, float(low), float(high), error, kind, families=found.families)


def _moments(x: Floats, y: Floats) -> Floats:
    return np.stack([x, y, x * x, x * y, y * y], axis=1)


def _resampled(moments: Floats, is_log: bool, resamples: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Return value and standard error of each resample of families, (resamples,) both; moments (families, 5).

    A resample is a number of copies of every family, and its means are products of these numbers with the moments.
    """
    n, found = len(moments), []
    batch = max(1, _CELLS_AT_ONCE // n)
    for start in range(0, resamples, batch):
        copies = rng.multinomial(n, np.full(n, 1 / n), size=min(batch, resamples - start))
        found.append(np.stack(_value_and_error(copies @ moments / n, n, is_log)))
    values, errors = np.concatenate(found, axis=1)
    return values, errors


def _value_and_error(means: Floats, n: int, is_log: bool) -> tuple[Floats, Floats]:
    """Return Σx/Σy, or its logarithm, with its standard error by the delta method; means (…, 5) of moments over n."""
    x, y, xx, xy, yy = np.moveaxis(means, -1, 0)
    by_x, by_y = (1 / x, -1 / y) if is_log else (1 / y, -x / y**2)
    variance = by_x**2 * (xx - x * x) + 2 * by_x * by_y * (xy - x * y) + by_y**2 * (yy - y * y)
    value = np.log(x / y) if is_log else x / y
    return value, np.sqrt(np.maximum(variance, 0.0) / max(1, n - 1))


def geometric_mean_ratio(first: Floats, second: Floats, level: float = 0.95) -> Interval:
    """Return the geometric mean of first/second over problems with its interval; first, second (n,), in the same unit.

    The interval is that of a bounded mean on logarithms (bounded.py): a few outlying problems, which loop in one of the
    two runs only, move the mean and may all be missing from a small set. It holds for problems whose ratio lies up to
    OUTLYING_RATIO times above or below the mean, and for those that were seen. `standard_error` is that of the
    logarithm. Raises ValueError if a time is not positive.
    """
    if np.any(first <= 0) or np.any(second <= 0):
        raise ValueError("a ratio of times needs positive times")
    logs = np.log(first / second)
    mean, reach = float(np.mean(logs)), float(np.log(OUTLYING_RATIO))
    found = bounded_mean(logs, min(mean - reach, float(logs.min())), max(mean + reach, float(logs.max())), level)
    if found.low is None or found.high is None:
        return Interval(float(np.exp(mean)), None, None, None, found.kind)
    low, high = float(np.exp(found.low)), float(np.exp(found.high))
    return Interval(float(np.exp(mean)), low, high, found.standard_error, "bounded mean of logarithms")


@dataclass(frozen=True)
class Fractions:
    """A value Σx/Σy of n problems; a mean has y = 1, a rate over all problems has their times as y."""

    x: Floats
    """(n,)."""
    y: Floats
    """(n,)."""


def mean_of(values: Floats) -> Fractions:
    """Return the mean of values (n,) as a fraction."""
    return Fractions(values, np.ones(len(values)))


def ratio_of_means(
    first: Fractions, second: Fractions, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """Return the value of `first` divided by that of `second`, with its interval; both over the same n problems.

    The standard error, which is that of the logarithm, is the delta method's (Cochran, Sampling Techniques, 1977,
    section 6.4). The interval is the symmetric studentized bootstrap (Hall, On symmetric bootstrap confidence
    intervals, Journal of the Royal Statistical Society B 50, 1988) on logarithms over whole problems: with few problems
    of log-normal times it misses less often than the equal-tailed one, at the same width. It ends where the ratio of no
    problem lies, seen or up to OUTLYING_RATIO times above or below the mean. Fewer than 5 problems
    get Student's t with n − 1 degrees of freedom. Values that are proportional but for rounding, which show no spread,
    get the interval of their geometric mean (`geometric_mean_ratio`). Raises ValueError if a value is not positive.
    """
    sums = np.stack([first.x, first.y, second.x, second.y], axis=1)  # (n, 4)
    if np.any(sums < 0) or np.any(sums.sum(axis=0) <= 0):
        raise ValueError("a ratio of means needs positive means")
    n = len(sums)
    log, error = (float(value) for value in _log_ratio(sums))
    ratio = float(np.exp(log))
    if n < 2:
        return Interval(ratio, None, None, None, "none: one problem")
    if error < _LEAST_SPREAD:
        alike = geometric_mean_ratio(np.full(n, ratio), np.ones(n), level)
        return Interval(ratio, alike.low, alike.high, error, alike.kind)
    quantile = float(special.stdtrit(n - 1, (1 + level) / 2))
    low, high, kind = log - quantile * error, log + quantile * error, "t on logarithms"
    if n >= 5:
        pivots = _ratio_pivots(sums, resamples, np.random.default_rng(seed))
        if len(pivots):
            quantile = float(np.quantile(np.abs(pivots), level))
            low, high, kind = log - quantile * error, log + quantile * error, "symmetric studentized bootstrap"
    lowest, highest = _possible(sums, log)
    return Interval(ratio, float(np.exp(max(low, lowest))), float(np.exp(min(high, highest))), error, kind)


def _possible(sums: Floats, log: float) -> tuple[float, float]:
    """Return between which logarithms the ratio can lie, as it lies between the smallest and the largest of a problem.

    A few problems that take far longer than all others, in one run only, have resamples without them, and the
    bootstrap's interval then ends anywhere.
    """
    reach = float(np.log(OUTLYING_RATIO))
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(sums)
        times, counts = logs[:, 0] - logs[:, 2], logs[:, 3] - logs[:, 1]
    lowest, highest = float(times.min() + counts.min()), float(times.max() + counts.max())
    if not np.isfinite(lowest) or not np.isfinite(highest):
        return -np.inf, np.inf
    return min(lowest, log - reach), max(highest, log + reach)


def _log_ratio(sums: Floats) -> tuple[Floats, Floats]:
    """Return the logarithm of the ratio and its standard error; sums (…, n, 4), results (…)."""
    n, means = sums.shape[-2], sums.mean(axis=-2)
    with np.errstate(divide="ignore", invalid="ignore"):
        log = np.log(means[..., 0]) - np.log(means[..., 1]) - np.log(means[..., 2]) + np.log(means[..., 3])
        shares = sums / means[..., None, :]
    influence = shares[..., 0] - shares[..., 1] - shares[..., 2] + shares[..., 3]
    error = influence.std(axis=-1, ddof=1) / n**0.5 if n > 1 else np.zeros_like(log)
    return log, error


def _ratio_pivots(sums: Floats, resamples: int, rng: np.random.Generator) -> Floats:
    """Return (logarithm of a resample − that of all problems)/its standard error for each resample that has any spread.

    A resample is a number of copies of every problem, and its means and covariances are products of these numbers with
    the deviations from the means of all problems and their products.
    """
    n, pivots = len(sums), []
    deviations = sums / sums.mean(axis=0) - 1
    first, second = np.triu_indices(4)
    moments = np.concatenate([deviations, deviations[:, first] * deviations[:, second]], axis=1) / n
    signs = np.array([1.0, -1.0, -1.0, 1.0])
    folded = np.where(first == second, 1.0, 2.0) * signs[first] * signs[second]
    batch = max(1, _CELLS_AT_ONCE // (4 * n))
    for start in range(0, resamples, batch):
        drawn = rng.integers(0, n, size=(min(batch, resamples - start), n))
        rows = np.arange(len(drawn))[:, None] * n
        copies = np.bincount((drawn + rows).ravel(), minlength=drawn.size).reshape(drawn.shape)
        found = copies @ moments
        shifts, products = found[:, :4], found[:, 4:]
        with np.errstate(divide="ignore", invalid="ignore"):
            means = 1 + shifts
            logs = np.log(means) @ signs
            covariances = (products - shifts[:, first] * shifts[:, second]) / (means[:, first] * means[:, second])
            errors = np.sqrt(np.maximum(covariances @ folded, 0.0) / (n - 1))
        has_spread = np.isfinite(logs) & np.isfinite(errors) & (errors > _LEAST_SPREAD)
        pivots.append(logs[has_spread] / errors[has_spread])
    return np.concatenate(pivots)
