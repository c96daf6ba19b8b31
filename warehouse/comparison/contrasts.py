"""The comparison itself: every run's results, and every run against the baseline of its dataset.

One problem is one observation, runs are paired by problem, and Holm's correction covers every test of the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import comb

import numpy as np

from warehouse.comparison.manifests import Difference, Manifest, differences, same_subject, unlike_for_latency
from warehouse.comparison.outcomes import Outcomes, common
from warehouse.comparison.votes import Votes
from warehouse.database import WarehouseError
from warehouse.records import RunSummary
from warehouse.statistics.intervals import Floats, Interval, accuracy, paired_difference, rerun_standard_error
from warehouse.statistics.multiple import holm
from warehouse.statistics.paired import non_inferiority, sign_flip, stratified
from warehouse.statistics.power import minimum_detectable_effect
from warehouse.statistics.ratios import geometric_mean_ratio
from warehouse.statistics.samples import maj_at_k, pass_at_k

ALPHA = 0.05
_EXACT_WORK = 500_000_000
"""Steps of the exact permutation distribution above which flips are drawn instead."""


@dataclass(frozen=True)
class Run:
    """A run as it is compared."""

    summary: RunSummary
    manifest: Manifest
    outcomes: Outcomes
    votes: Mapping[str, Votes] | None
    """By problem id; None where no majority vote was asked for."""

    @property
    def run_id(self) -> str:
        """Name of the run folder."""
        return self.summary.run_id


@dataclass(frozen=True)
class Settings:
    """What the reader asked for."""

    margin: float = 0.02
    """A loss of less than this fraction counts as not worse."""
    ks: tuple[int, ...] = ()
    """k of pass@k and maj@k beside pass@1."""
    majority: bool = False
    is_latency_forced: bool = False


@dataclass(frozen=True)
class Contrast:
    """A run against its baseline on the problems that both have; fractions, run − baseline."""

    baseline: str
    n: int
    difference: Interval
    test: str
    p: float
    p_holm: float
    """Adjusted for every test of the table."""
    p_non_inferior: float | None
    """One-sided, that the run loses the margin or more."""
    margin: float
    minimum_detectable_effect: float | None

    @property
    def is_non_inferior(self) -> bool | None:
        """Whether the 95 % interval lies above −margin; None where there is no interval."""
        return None if self.p_non_inferior is None else self.p_non_inferior < ALPHA / 2


@dataclass(frozen=True)
class SpeedRatio:
    """Latency of the baseline over latency of the run: above 1 the run is faster."""

    baseline: str
    n: int
    ratio: Interval | None
    """None where it is refused or nothing was timed."""
    unlike: Sequence[str]
    """Why the two are not comparable; beside a ratio: it was forced."""


@dataclass(frozen=True)
class Row:
    """One run under one metric."""

    run: Run
    metric: str
    k: int
    result: Interval
    rerun_standard_error: float | None
    contrast: Contrast | None
    """None for the baseline itself."""
    speed: SpeedRatio | None
    """Beside pass@1 only."""


@dataclass(frozen=True)
class Comparison:
    """The whole table and what has to be said before it."""

    rows: Sequence[Row]
    differences: Sequence[Difference]
    settings: Settings


def compare(runs: Sequence[Run], settings: Settings, baseline: str | None = None) -> Comparison:
    """Compare runs; the baseline of a dataset is the run named `baseline`, else its first one.

    Raises WarehouseError where a run shares no problem with its baseline, or has too few samples for some k.
    """
    bases = {run.summary.dataset: run for run in reversed(runs)}
    bases |= {run.summary.dataset: run for run in runs if run.run_id == baseline}
    found = [row for run in runs for row in _rows(run, bases[run.summary.dataset], settings)]
    tested = [row for row in found if row.contrast is not None]
    adjusted = dict(zip(map(id, tested), holm([row.contrast.p for row in tested if row.contrast]), strict=True))
    corrected = [
        replace(row, contrast=replace(row.contrast, p_holm=adjusted[id(row)])) if row.contrast else row for row in found
    ]
    return Comparison(corrected, differences([run.manifest for run in runs]), settings)


def _rows(run: Run, base: Run, settings: Settings) -> list[Row]:
    k = int(run.outcomes.samples.max())
    metrics = [("pass@1", 1)]
    metrics += [("pass@k", wanted) for wanted in settings.ks if wanted > 1]
    if settings.majority:
        metrics += [("maj@k", wanted) for wanted in settings.ks or (k,)]
    return [_row(run, base, metric, wanted, settings) for metric, wanted in metrics]


def _row(run: Run, base: Run, metric: str, k: int, settings: Settings) -> Row:
    scores = _scores(run, metric, k)
    own = run.outcomes
    is_first = metric == "pass@1"
    name = f"pass@1[avg-of-{int(own.samples.max())}]" if is_first else metric.replace("@k", f"@{k}")
    is_base = run is base
    return Row(
        run,
        name,
        k,
        accuracy(scores),
        rerun_standard_error(own.correct, own.samples) if is_first else None,
        None if is_base else _contrast(run, base, metric, k, settings),
        _speed(run, base, settings) if is_first and not is_base else None,
    )


def _scores(run: Run, metric: str, k: int) -> Floats:
    outcomes = run.outcomes
    if metric == "pass@1":
        return outcomes.scores
    try:
        if metric == "pass@k":
            return pass_at_k(outcomes.correct, outcomes.samples, k)
        assert run.votes is not None
        cast = [run.votes[problem] for problem in outcomes.problem_ids]
        return np.array([maj_at_k(votes.counts, votes.is_right, votes.abstained, k) for votes in cast])
    except ValueError as error:
        raise WarehouseError(f"{run.run_id}: {error}") from error


def _contrast(run: Run, base: Run, metric: str, k: int, settings: Settings) -> Contrast:
    here, there = common(run.outcomes, base.outcomes)
    if not len(here):
        raise WarehouseError(
            f"{run.run_id} and {base.run_id} have no problem in common: compare runs over the same problems"
        )
    first, second = _scores(run, metric, k)[here], _scores(base, metric, k)[there]
    smallest = 1 / int(max(run.outcomes.samples[here].max(), base.outcomes.samples[there].max()))
    difference = paired_difference(first, second, smallest)
    n = len(here)
    test, p = _test(run, base, metric, k)
    error, degrees = difference.standard_error, difference.degrees
    return Contrast(
        base.run_id,
        n,
        difference,
        test,
        p,
        p,
        non_inferiority(difference, settings.margin),
        settings.margin,
        minimum_detectable_effect(error, degrees) if error and degrees else None,
    )


def _test(run: Run, base: Run, metric: str, k: int) -> tuple[str, float]:
    """The same method on the same problems is asked «did it change», anything else «which is better»."""
    here, there = common(run.outcomes, base.outcomes)
    own, other = run.outcomes, base.outcomes
    samples = np.concatenate([own.samples[here], other.samples[there]])
    if metric == "pass@1" and same_subject(run.manifest, base.manifest):
        found = stratified(own.correct[here], own.samples[here], other.correct[there], other.samples[there])
        return "stratified", found.p
    shown = _scores(run, metric, k)[here] - _scores(base, metric, k)[there]
    units = None
    if metric == "pass@1":
        units = int(np.lcm.reduce(np.unique(samples)))
    elif metric == "pass@k" and len(np.unique(samples)) == 1:
        units = comb(int(samples[0]), k)
    if units is not None and units * np.count_nonzero(shown) ** 2 > _EXACT_WORK:
        units = None
    return ("permutation" if units != 1 else "permutation (McNemar mid-p)"), sign_flip(shown, units)


def _speed(run: Run, base: Run, settings: Settings) -> SpeedRatio:
    unlike = unlike_for_latency(run.manifest, base.manifest)
    here, there = common(run.outcomes, base.outcomes)
    own, other = run.outcomes.latency_seconds[here], base.outcomes.latency_seconds[there]
    timed = np.isfinite(own) & np.isfinite(other)
    n = int(timed.sum())
    refused = bool(unlike) and not settings.is_latency_forced
    ratio = None if refused or not n else geometric_mean_ratio(other[timed], own[timed])
    return SpeedRatio(base.run_id, n, ratio, unlike)
