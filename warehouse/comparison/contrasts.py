"""The comparison itself: every run's results, and every run against the baseline of its dataset.

One problem is one observation, runs are paired by problem, and Holm's correction covers every test of the table.
Missing samples count nowhere: a run's own result is over what it has, a difference over what both runs have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import comb, lcm

import numpy as np

from warehouse.comparison.manifests import Difference, differences, same_subject, unlike_for_latency
from warehouse.comparison.metrics import Metric, Run, counted, scores
from warehouse.comparison.outcomes import Outcomes, Pair, paired
from warehouse.database import WarehouseError
from warehouse.statistics.intervals import Floats, Interval, accuracy, paired_difference, rerun_standard_error
from warehouse.statistics.multiple import holm
from warehouse.statistics.paired import non_inferiority, sign_flip, stratified
from warehouse.statistics.power import minimum_detectable_effect
from warehouse.statistics.ratios import geometric_mean_ratio

ALPHA = 0.05
_EXACT_WORK = 500_000_000
"""Steps of the exact permutation distribution above which flips are drawn instead."""


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
    """A run against its baseline on the problems and samples that both have; fractions, run − baseline."""

    baseline: str
    n: int
    """Problems that are compared."""
    pair: Pair
    """What both runs have, for this metric: problems with fewer than k common samples are left out."""
    is_unfinished: bool
    """Whether a sample of either run is missing."""
    difference: Interval
    test: str
    p: float
    p_holm: float
    """Adjusted for every test of the table."""
    p_non_inferior: float | None
    """One-sided, that the run loses the margin or more; None where there is no interval or a sample is missing."""
    margin: float
    minimum_detectable_effect: float | None

    @property
    def is_non_inferior(self) -> bool | None:
        """Whether the 95 % interval lies above −margin; None where there is no interval or a sample is missing."""
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
    outcomes: Outcomes
    """The problems and samples that the result is over: what is not missing."""
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
    left_out: Sequence[str]
    """Runs, and metrics of runs, for which samples are missing: which one, why, and what to do about it."""


def compare(runs: Sequence[Run], settings: Settings, baseline: str | None = None) -> Comparison:
    """Compare runs; the baseline of a dataset is the run named `baseline`, else its first one that has a sample.

    What too many samples are missing for is left out. Raises WarehouseError where that leaves fewer than two runs or
    concerns `baseline`, where a run shares no problem with its baseline, or has planned too few samples for some k.
    """
    bases = {run.summary.dataset: run for run in reversed(runs) if not run.is_empty}
    bases |= {run.summary.dataset: run for run in runs if run.run_id == baseline}
    found: list[Row] = []
    left_out = _empty(runs, bases)
    nothing = _empty(list(bases.values()), bases)
    if nothing:
        raise WarehouseError(f"the baseline has nothing to compare: {nothing[0]}")
    for run in runs:
        if not run.is_empty:
            rows, lines = _rows(run, bases[run.summary.dataset], settings)
            found += rows
            left_out += lines
    kept = list({row.run.run_id: row.run for row in found}.values())
    if len(kept) < 2:
        raise WarehouseError(f"fewer than two runs are left to compare: {'; '.join(left_out)}")
    return Comparison(_corrected(found), differences([run.manifest for run in kept]), settings, left_out)


def _empty(runs: Sequence[Run], bases: Mapping[str, Run]) -> list[str]:
    """Why a run has no row at all; where it would have been the baseline, also which run is that instead."""
    firsts = {run.summary.dataset: run for run in reversed(runs)}
    found = []
    for run in runs:
        if run.is_empty:
            dataset = run.summary.dataset
            base = bases.get(dataset, run)
            instead = f", so {base.run_id} is the baseline" if run is firsts[dataset] and base is not run else ""
            why = f"none of its {run.outcomes.num_samples} samples is finished and {run.graded}{instead}"
            found.append(f"{run.run_id}: {why}; {run.remedy}")
    return found


def _corrected(found: Sequence[Row]) -> list[Row]:
    """Give the rows p-values that are adjusted for every test among them."""
    adjusted = iter(holm([row.contrast.p for row in found if row.contrast]))
    return [
        replace(row, contrast=replace(row.contrast, p_holm=next(adjusted))) if row.contrast else row for row in found
    ]


def _rows(run: Run, base: Run, settings: Settings) -> tuple[list[Row], list[str]]:
    """The rows of a run that has a sample, and why others are left out."""
    metrics = [Metric("pass@1", 1)]
    metrics += [Metric("pass@k", k) for k in settings.ks if k > 1]
    if settings.majority:
        metrics += [Metric("maj@k", k) for k in settings.ks or (int(run.outcomes.samples.max()),)]
    pair = None if run is base else _pair(run, base)
    if pair is not None and not pair.n:
        why = f"no sample is finished and {run.graded} in both it and {base.run_id}"
        return [], [f"{run.run_id}: {why}; {_remedies(run, base)}"]
    lacks = [_lack(run, base, pair, metric) for metric in metrics]
    together = list(zip(metrics, lacks, strict=True))
    rows = [_row(run, base, pair, metric, settings) for metric, lack in together if lack is None]
    return rows, [f"{run.run_id}, {metric.name}: {lack}" for metric, lack in together if lack is not None]


def _pair(run: Run, base: Run) -> Pair:
    pair = paired(run.outcomes, base.outcomes)
    if not pair.num_shared_problems:
        raise WarehouseError(
            f"{run.run_id} and {base.run_id} have no problem in common: compare runs over the same problems"
        )
    return pair


def _lack(run: Run, base: Run, pair: Pair | None, metric: Metric) -> str | None:
    """Why there is no row for this metric, and what to do about it; None where there is one."""
    if not counted(run, metric).problems:
        return f"none of its problems has {metric.k} samples that are finished and {run.graded}; {run.remedy}"
    if pair is None:
        return None
    if not counted(base, metric).problems:
        return f"no problem of {base.run_id} has {metric.k} samples that are finished and {base.graded}; {base.remedy}"
    if not pair.holding(metric.k).n:
        return f"no problem has {metric.k} samples that {base.run_id} has as well; {_remedies(run, base)}"
    return None


def _remedies(run: Run, base: Run) -> str:
    return "; ".join(f"{one.run_id}: {one.remedy}" for one in (run, base) if one.is_unfinished)


def _row(run: Run, base: Run, pair: Pair | None, metric: Metric, settings: Settings) -> Row:
    own, is_first = counted(run, metric), metric.kind == "pass@1"
    details = [f"avg-of-{int(run.outcomes.samples.max())}"] if is_first else []
    if run.is_unfinished:
        details.append(f"{own.num_samples} of {run.outcomes.num_samples} samples")
    return Row(
        run,
        metric.name + (f"[{', '.join(details)}]" if details else ""),
        metric.k,
        own,
        accuracy(scores(run, own, metric)),
        rerun_standard_error(own.correct, own.samples) if is_first else None,
        None if pair is None else _contrast(run, base, pair.holding(metric.k), metric, settings),
        _speed(run, base, pair, settings) if is_first and pair is not None else None,
    )


def _contrast(run: Run, base: Run, kept: Pair, metric: Metric, settings: Settings) -> Contrast:
    first, second = scores(run, kept.first, metric), scores(base, kept.second, metric)
    smallest = 1 / int(max(kept.first.samples.max(), kept.second.samples.max()))
    difference = paired_difference(first, second, smallest)
    is_unfinished = run.is_unfinished or base.is_unfinished
    is_same = metric.kind == "pass@1" and same_subject(run.manifest, base.manifest)
    test, p = _changed(kept) if is_same else _better(kept, first - second, metric, is_unfinished)
    error, degrees = difference.standard_error, difference.degrees
    return Contrast(
        base.run_id,
        kept.n,
        kept,
        is_unfinished,
        difference,
        test,
        p,
        p,
        None if is_unfinished else non_inferiority(difference, settings.margin),
        settings.margin,
        minimum_detectable_effect(error, degrees) if error and degrees else None,
    )


def _changed(pair: Pair) -> tuple[str, float]:
    """Test and p-value for the same method on the same problems: did it change?"""
    own, other = pair.first, pair.second
    return "stratified", stratified(own.correct, own.samples, other.correct, other.samples).p


def _better(pair: Pair, shown: Floats, metric: Metric, is_unfinished: bool) -> tuple[str, float]:
    """Test and p-value for two methods: which is better? shown: differences (n,)."""
    samples = sorted({int(number) for number in np.concatenate([pair.first.samples, pair.second.samples])})
    units = None
    if metric.kind == "pass@1":
        units = lcm(*samples)
    elif metric.kind == "pass@k" and (is_unfinished or len(samples) == 1):  # complete runs keep the p of older versions
        units = lcm(*(comb(number, metric.k) for number in samples))
    if units is not None and units * int(np.count_nonzero(shown)) ** 2 > _EXACT_WORK:
        units = None
    test = {None: "permutation (drawn)", 1: "permutation (McNemar mid-p)"}.get(units, "permutation")
    return test, sign_flip(shown, units)


def _speed(run: Run, base: Run, pair: Pair, settings: Settings) -> SpeedRatio:
    unlike = unlike_for_latency(run.manifest, base.manifest)
    own, other = pair.first.latency_seconds, pair.second.latency_seconds
    timed = np.isfinite(own) & np.isfinite(other)
    n = int(timed.sum())
    refused = bool(unlike) and not settings.is_latency_forced
    ratio = None if refused or not n else geometric_mean_ratio(other[timed], own[timed])
    return SpeedRatio(base.run_id, n, ratio, unlike)
