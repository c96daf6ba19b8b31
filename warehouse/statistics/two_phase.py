"""Two-phase sampling: a mean with a prediction for every sample and measurements for only some.

All samples of a run have a predicted latency (first phase), and a stratified random sample of them is timed (second
phase). The estimate is the mean prediction over all samples plus the timed samples' mean difference between measurement
and prediction, weighted by stratum. This is the difference estimator (Cassel, Särndal and Wretman, Some results on
generalized difference estimation, Biometrika 63, 1976; Särndal, Swensson and Wretman, Model Assisted Survey Sampling,
1992, sections 6.3 and 9.7). A model's error is the same in both terms and cancels on average, whatever the model. The
model is fitted to timed samples, so it is cross-fitted: a sample's difference uses the model fitted without its problem
(Zrnic and Candès, Cross-prediction-powered inference, PNAS 121, 2024). docs/statistics.md has the error rates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import special

from warehouse.statistics.intervals import FEWEST_FAMILIES, TAIL, Floats, Interval, too_few
from warehouse.statistics.ratios import RESAMPLES, bootstrap_t

Numbers = NDArray[np.int64]
_LEAST_VARIANCE = 1e-14
"""Minimum variance of a logarithm. Smaller variances are rounding errors."""


@dataclass(frozen=True)
class Predicted:
    """All N samples of a run."""

    seconds: Floats
    """(folds, N): prediction by each fold's model, which was fitted without the timed samples of that fold."""
    problems: Numbers
    """(N,): problem number from 0, or family number if problems share families."""
    strata: Numbers
    """(N,): stratum number; neighboring strata have consecutive numbers."""
    has_families: bool = False


@dataclass(frozen=True)
class Measured:
    """The M timed samples."""

    seconds: Floats
    predicted: Floats
    """(M,): prediction for the timed chains, by the model of their own fold."""
    folds: Numbers
    problems: Numbers
    """(M,): as in `Predicted`."""
    strata: Numbers


@dataclass(frozen=True)
class TwoPhaseMean:
    """An estimated mean with the components of its uncertainty."""

    estimate: float
    """Mean over all samples, in the unit of the measurements."""
    values: Floats
    """(n,): one value per problem or family. Their mean is the estimate; their spread covers both phases."""
    smooth: Floats
    """(n,): as `values`, without the noise of the second phase: every sample uses its stratum's mean difference."""
    timed_variance: float
    """Variance of the estimate due to the random draw of the timed samples."""
    degrees: int
    """Degrees of freedom of `timed_variance`: timed samples minus strata."""
    num_samples: int
    num_timed: int
    families: int | None = None
    """Number of families if problems share families."""


def two_phase_mean(everything: Predicted, timed: Measured) -> TwoPhaseMean:
    """Return the estimated mean of all samples. Raises ValueError if none is timed or a value is not finite.

    Strata with fewer than two timed samples are merged with their neighbors.
    """
    if not len(timed.seconds):
        raise ValueError("no sample was timed")
    if not np.all(np.isfinite(everything.seconds)) or not np.all(np.isfinite(timed.seconds - timed.predicted)):
        raise ValueError("a time or a prediction is not finite")
    strata, of_timed = _merged(everything.strata, timed.strata)
    count = int(strata.max()) + 1
    population, measured = np.bincount(strata, minlength=count), np.bincount(of_timed, minlength=count)
    shares = np.zeros((count, len(everything.seconds)))
    np.add.at(shares, (of_timed, timed.folds), 1.0)
    shares /= measured[:, None]
    differences = timed.seconds - timed.predicted
    means = np.bincount(of_timed, differences, count) / measured
    smooth = np.einsum("if,fi->i", shares[strata], everything.seconds) + means[strata]
    deviations = differences - means[of_timed]
    # A stratum's deviations are divided by its degrees of freedom, as in its variance.
    freed = measured / np.maximum(measured - 1, 1)
    weighted = deviations * np.sqrt(freed[of_timed]) * (population / measured)[of_timed]
    n, total = int(everything.problems.max()) + 1, len(everything.problems)
    samples = np.bincount(everything.problems, minlength=n).astype(float)
    sums = np.bincount(everything.problems, smooth, n).astype(float)
    estimate = float(smooth.sum()) / total
    return TwoPhaseMean(
        estimate,
        _linear(sums + np.bincount(timed.problems, weighted, n), samples, estimate),
        _linear(sums, samples, estimate),
        float((weighted**2).sum()) / total**2,
        len(differences) - count,
        total,
        len(differences),
        n if everything.has_families else None,
    )


def _linear(sums: Floats, samples: Floats, estimate: float) -> Floats:
    """Return per-problem values (n,) with mean Σ sums / Σ samples and the spread of that ratio (linearization)."""
    return np.asarray(estimate + (sums - estimate * samples) / samples.mean())


def _merged(strata: Numbers, of_timed: Numbers) -> tuple[Numbers, Numbers]:
    """Renumber strata from 0 with at least two timed samples each; for all samples and for the timed samples."""
    last = int(max(strata.max(), of_timed.max()))
    counts = np.bincount(of_timed, minlength=last + 1)
    number, have, merged = 0, 0, np.zeros(last + 1, dtype=np.int64)
    for stratum, count in enumerate(counts):
        merged[stratum] = number
        have += int(count)
        if have >= 2:
            number, have = number + 1, 0
    if have < 2 and number:  # the remaining strata join the last complete one
        merged[merged == number] = number - 1
    return merged[strata], merged[of_timed]


def mean_interval(mean: TwoPhaseMean, resamples: int = RESAMPLES) -> Interval:
    """Return the mean with an interval that accounts for the sampling of problems and the draw of timed samples."""
    ones = np.ones(len(mean.values))
    return two_phase_ratio(mean, replace(mean, estimate=1.0, values=ones, smooth=ones, timed_variance=0.0), resamples)


def two_phase_ratio(first: TwoPhaseMean, second: TwoPhaseMean, resamples: int = RESAMPLES) -> Interval:
    """Return `first` divided by `second` with its interval; both over the same problems in the same order.

    Everything is computed on the log scale, paired by problem. The half-width has two parts, added in quadrature
    (MOVER; Zou and Donner, Stat. Med. 27, 2008). The part for the draw of timed samples uses Student's t, and the part
    for the sampling of problems uses the quantile of `ratios.bootstrap_t`. There is no interval (kind "none: …") for
    one problem, for too few families or timed samples (see `_why_none`), without spread, or if a mean is not positive.
    """
    if first.estimate <= 0 or second.estimate <= 0:
        return Interval(float("nan"), None, None, None, "none: a mean is not positive")
    ratio = first.estimate / second.estimate
    if reason := _why_none(first, second):
        return Interval(ratio, None, None, None, reason, families=first.families)
    influence = first.values / first.estimate - second.values / second.estimate
    quantile = _quantile(first.smooth, second.smooth, resamples)
    half, error = _half_and_error(first, second, influence, (first.estimate, second.estimate), quantile)
    if error**2 < _LEAST_VARIANCE:
        return Interval(ratio, None, None, error, "none: no spread between problems")
    low, high = (float(np.exp(np.log(ratio) + side * half)) for side in (-1, 1))
    return Interval(ratio, low, high, error, "two-phase", families=first.families)


def two_phase_difference(first: TwoPhaseMean, second: TwoPhaseMean) -> Interval:
    """Return `first` minus `second` with its interval; both over the same problems in the same order.

    The half-width has two parts, for the draw of timed samples and for the sampling of problems. Each uses Student's t;
    they are added in quadrature as in `two_phase_ratio`. There is no interval (kind "none: …") for one problem, and for
    too few families or timed samples (see `_why_none`).
    """
    estimate = first.estimate - second.estimate
    if reason := _why_none(first, second):
        return Interval(estimate, None, None, None, reason, families=first.families)
    quantile = float(special.stdtrit(len(first.values) - 1, TAIL))
    half, error = _half_and_error(first, second, first.values - second.values, (1.0, 1.0), quantile)
    return Interval(estimate, estimate - half, estimate + half, error, "two-phase", families=first.families)


def _why_none(first: TwoPhaseMean, second: TwoPhaseMean) -> str:
    """Return why two means have no interval, as an interval kind; empty if they have one.

    Each run needs two timed samples and, if these vary, more timed samples than strata.
    """
    if first.families and first.families < FEWEST_FAMILIES:
        return too_few(first.families)
    if len(first.values) < 2:
        return "none: one problem"
    has_no_degrees = any(mean.timed_variance and mean.degrees < 1 for mean in (first, second))
    is_too_few = has_no_degrees or min(first.num_timed, second.num_timed) < 2
    return "none: too few timed samples" if is_too_few else ""


def _half_and_error(
    first: TwoPhaseMean, second: TwoPhaseMean, influence: Floats, units: tuple[float, float], quantile: float
) -> tuple[float, float]:
    """Return half-width and standard error for the ratio (or difference) of two means.

    influence (n,): of each problem; its variance covers both phases. units: divisors of the means. quantile: factor for
    the error from sampling problems. For timed samples, it is Student's t with Satterthwaite's degrees of freedom.
    """
    parts = [(one.timed_variance / unit**2, one.degrees) for one, unit in zip((first, second), units, strict=True)]
    of_timed = sum(variance for variance, _ in parts)
    of_problems = max(float(np.var(influence, ddof=1)) / len(influence) - of_timed, 0.0)
    half = quantile * of_problems**0.5
    if of_timed:
        degrees = of_timed**2 / sum(variance**2 / degrees for variance, degrees in parts if variance)
        half = float(np.hypot(half, special.stdtrit(degrees, TAIL) * of_timed**0.5))
    return half, (of_timed + of_problems) ** 0.5


def _quantile(first: Floats, second: Floats, resamples: int) -> float:
    """Return the quantile for the sampling of problems: from the bootstrap or, if that has none, from Student's t."""
    if min(first.min(), second.min()) > 0:  # a poor model may predict negative times
        found = bootstrap_t(first, second, resamples=resamples, is_log=True)
        if found.high is not None and np.isfinite(found.high) and found.standard_error:
            return float(np.log(found.high / found.estimate)) / found.standard_error
    return float(special.stdtrit(len(first) - 1, TAIL))
