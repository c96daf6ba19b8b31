"""Results of every run, and contrasts of every run with the baseline of its dataset.

One problem is one observation, runs are paired by problem, and Holm's correction covers every test of the table.
Missing samples are excluded everywhere: a run's own result is over the samples that it has, a difference is over the
samples that both runs have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import comb, lcm

import numpy as np

from warehouse.comparison.manifests import Difference, differences, is_same_subject, latency_mismatches
from warehouse.comparison.metrics import Metric, Run, counted, scores
from warehouse.comparison.outcomes import Outcomes, Pair, paired
from warehouse.comparison.stopwatches import Definition, Ranking, rankings
from warehouse.database import WarehouseError
from warehouse.statistics.intervals import Floats, Interval, accuracy, paired_difference, rerun_standard_error
from warehouse.statistics.multiple import holm
from warehouse.statistics.paired import non_inferiority, sign_flip, stratified
from warehouse.statistics.power import minimum_detectable_effect
from warehouse.statistics.ratios import geometric_mean_ratio

ALPHA = 0.05
_EXACT_WORK = 500_000_000
"""Operations of the exact permutation distribution above which random flips are drawn instead."""


@dataclass(frozen=True)
class Settings:
    """Options of a comparison."""

    margin: float = 0.02
    """Non-inferiority margin, as a fraction."""
    ks: tuple[int, ...] = ()
    """Each k of pass@k and maj@k in addition to pass@1."""
    majority: bool = False
    """Whether maj@k is computed."""
    is_latency_forced: bool = False
    """Whether latency is compared although hardware or settings differ."""
    stopwatches: Sequence[Definition] = ()
    """Definitions of latency by which the runs are ranked."""


@dataclass(frozen=True)
class Contrast:
    """Contrast of a run with its baseline on the problems and samples that both have; fractions, run − baseline."""

    baseline: str
    """Run id of the baseline."""
    n: int
    """Number of compared problems."""
    pair: Pair
    """The compared samples for this metric: problems with fewer than k common samples are left out."""
    is_unfinished: bool
    """Whether a sample of either run is missing."""
    difference: Interval
    test: str
    p: float
    p_holm: float
    """p, adjusted for every test of the table."""
    p_non_inferior: float | None
    """One-sided p-value that the run loses the margin or more; None without interval or with a sample missing."""
    margin: float
    minimum_detectable_effect: float | None

    @property
    def is_non_inferior(self) -> bool | None:
        """True if the 95 % interval lies above −margin; None without interval or with a sample missing."""
        return None if self.p_non_inferior is None else self.p_non_inferior < ALPHA / 2


@dataclass(frozen=True)
class SpeedRatio:
    """Latency of the baseline divided by latency of the run: above 1 the run is faster."""

    baseline: str
    """Run id of the baseline."""
    n: int
    """Number of problems that both runs timed."""
    ratio: Interval | None
    """None if the ratio is refused or no problem was timed in both runs."""
    unlike: Sequence[str]
    """Reasons why the times are not comparable; with a ratio, the user forced it."""


@dataclass(frozen=True)
class Row:
    """Result of one run under one metric, and its contrast with the baseline."""

    run: Run
    metric: str
    k: int
    outcomes: Outcomes
    """The problems and samples that the result is over, which are those that are not missing."""
    result: Interval
    rerun_standard_error: float | None
    contrast: Contrast | None
    """None for the baseline itself."""
    speed: SpeedRatio | None
    """Only in rows of pass@1."""


@dataclass(frozen=True)
class Comparison:
    """The whole table, the differences between manifests, and what is missing from the table."""

    rows: Sequence[Row]
    differences: Sequence[Difference]
    settings: Settings
    left_out: Sequence[str]
    """One message for each run, or metric of a run, that lacks samples: the reason and the remedy."""
    rankings: Sequence[Ranking] = ()
    """By dataset and definition of latency."""


def compare(runs: Sequence[Run], settings: Settings, baseline: str | None = None) -> Comparison:
    """Compare runs; the baseline of a dataset is the run named `baseline`, else its first run that has a sample.

    Rows that lack too many samples are left out. Raises WarehouseError if fewer than two runs remain, if `baseline` has
    no samples, if a run shares no problem with its baseline, or if a run has planned too few samples for some k.
    """
    baselines = {run.summary.dataset: run for run in reversed(runs) if not run.is_empty}
    baselines |= {run.summary.dataset: run for run in runs if run.run_id == baseline}
    rows: list[Row] = []
    left_out = _empty_run_messages(runs, baselines)
    empty_baselines = _empty_run_messages(list(baselines.values()), baselines)
    if empty_baselines:
        raise WarehouseError(f"the baseline has no samples to compare: {empty_baselines[0]}")
    for run in runs:
        if not run.is_empty:
            run_rows, messages = _rows(run, baselines[run.summary.dataset], settings)
            rows += run_rows
            left_out += messages
    compared_runs = list({row.run.run_id: row.run for row in rows}.values())
    if len(compared_runs) < 2:
        raise WarehouseError(f"fewer than two runs are left to compare: {'; '.join(left_out)}")
    unequal = differences([run.manifest for run in compared_runs])
    return Comparison(_holm_adjusted(rows), unequal, settings, left_out, _rankings(rows, baselines, settings))


def _empty_run_messages(runs: Sequence[Run], baselines: Mapping[str, Run]) -> list[str]:
    """Return for each run without any sample why it has no row, and which run replaces it if it was the baseline."""
    first_runs = {run.summary.dataset: run for run in reversed(runs)}
    messages = []
    for run in runs:
        if run.is_empty:
            dataset = run.summary.dataset
            baseline = baselines.get(dataset, run)
            is_replaced = run is first_runs[dataset] and baseline is not run
            replacement = f", so {baseline.run_id} is the baseline" if is_replaced else ""
            reason = f"none of its {run.outcomes.num_samples} samples is finished and {run.graded}{replacement}"
            messages.append(f"{run.run_id}: {reason}; {run.remedy}")
    return messages


def _rankings(rows: Sequence[Row], baselines: Mapping[str, Run], settings: Settings) -> list[Ranking]:
    """Return the rankings of every dataset, without runs whose times may not be compared with the baseline's."""
    ranked: list[Ranking] = []
    for dataset, baseline in baselines.items() if settings.stopwatches else ():
        refused = {row.run.run_id for row in rows if row.speed and row.speed.unlike and not settings.is_latency_forced}
        runs = {row.run.run_id: row.run for row in rows if row.run.summary.dataset == dataset}
        times = {name: run.times for name, run in runs.items() if run.times is not None and name not in refused}
        ranked += rankings(dataset, baseline.run_id, times, settings.stopwatches)
    return ranked


def _holm_adjusted(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with p-values that are adjusted for all tests among them."""
    adjusted = iter(holm([row.contrast.p for row in rows if row.contrast]))
    return [
        replace(row, contrast=replace(row.contrast, p_holm=next(adjusted))) if row.contrast else row for row in rows
    ]


def _rows(run: Run, base: Run, settings: Settings) -> tuple[list[Row], list[str]]:
    """Return the rows of a run that has a sample, and a message for each metric that is left out."""
    metrics = [Metric("pass@1", 1)]
    metrics += [Metric("pass@k", k) for k in settings.ks if k > 1]
    if settings.majority:
        metrics += [Metric("maj@k", k) for k in settings.ks or (int(run.outcomes.samples.max()),)]
    pair = None if run is base else _pair(run, base)
    if pair is not None and not pair.n:
        reason = f"no sample is finished and {run.graded} in both this run and {base.run_id}"
        return [], [f"{run.run_id}: {reason}; {_remedies(run, base)}"]
    reasons = {metric: _reason_left_out(run, base, pair, metric) for metric in metrics}
    rows = [_row(run, base, pair, metric, settings) for metric, reason in reasons.items() if reason is None]
    return rows, [f"{run.run_id}, {metric.name}: {reason}" for metric, reason in reasons.items() if reason is not None]


def _pair(run: Run, base: Run) -> Pair:
    pair = paired(run.outcomes, base.outcomes)
    if not pair.num_shared_problems:
        raise WarehouseError(
            f"{run.run_id} and {base.run_id} have no problem in common: compare runs over the same problems"
        )
    return pair


def _reason_left_out(run: Run, base: Run, pair: Pair | None, metric: Metric) -> str | None:
    """Return why there is no row for this metric, with the remedy; None if there is a row."""
    if not counted(run, metric).problems:
        return f"none of its problems has {metric.k} samples that are finished and {run.graded}; {run.remedy}"
    if pair is None:
        return None
    if not counted(base, metric).problems:
        return f"no problem of {base.run_id} has {metric.k} samples that are finished and {base.graded}; {base.remedy}"
    if not pair.holding(metric.k).n:
        return f"no problem has {metric.k} samples in common with {base.run_id}; {_remedies(run, base)}"
    return None


def _remedies(run: Run, base: Run) -> str:
    return "; ".join(f"{member.run_id}: {member.remedy}" for member in (run, base) if member.is_unfinished)


def _row(run: Run, base: Run, pair: Pair | None, metric: Metric, settings: Settings) -> Row:
    own, is_pass_at_1 = counted(run, metric), metric.kind == "pass@1"
    details = [f"avg-of-{int(run.outcomes.samples.max())}"] if is_pass_at_1 else []
    if run.is_unfinished:
        details.append(f"{own.num_samples} of {run.outcomes.num_samples} samples")
    return Row(
        run,
        metric.name + (f"[{', '.join(details)}]" if details else ""),
        metric.k,
        own,
        accuracy(scores(run, own, metric)),
        rerun_standard_error(own.correct, own.samples) if is_pass_at_1 else None,
        None if pair is None else _contrast(run, base, pair.holding(metric.k), metric, settings),
        _speed(run, base, pair, settings) if is_pass_at_1 and pair is not None else None,
    )


def _contrast(run: Run, base: Run, pair: Pair, metric: Metric, settings: Settings) -> Contrast:
    first, second = scores(run, pair.first, metric), scores(base, pair.second, metric)
    smallest = 1 / int(max(pair.first.samples.max(), pair.second.samples.max()))
    difference = paired_difference(first, second, smallest)
    is_unfinished = run.is_unfinished or base.is_unfinished
    is_same = metric.kind == "pass@1" and is_same_subject(run.manifest, base.manifest)
    test, p = _change_test(pair) if is_same else _method_test(pair, first - second, metric, is_unfinished)
    error, degrees = difference.standard_error, difference.degrees
    return Contrast(
        base.run_id,
        pair.n,
        pair,
        is_unfinished,
        difference,
        test,
        p,
        p,
        None if is_unfinished else non_inferiority(difference, settings.margin),
        settings.margin,
        minimum_detectable_effect(error, degrees) if error and degrees else None,
    )


def _change_test(pair: Pair) -> tuple[str, float]:
    """Return name and p-value of the test whether the same method changed on the same problems."""
    own, other = pair.first, pair.second
    return "stratified", stratified(own.correct, own.samples, other.correct, other.samples).p


def _method_test(pair: Pair, differences: Floats, metric: Metric, is_unfinished: bool) -> tuple[str, float]:
    """Return name and p-value of the test which of two methods is better; differences (n,), one per problem."""
    samples = sorted({int(number) for number in np.concatenate([pair.first.samples, pair.second.samples])})
    units = None
    if metric.kind == "pass@1":
        units = lcm(*samples)
    elif metric.kind == "pass@k" and (is_unfinished or len(samples) == 1):  # complete runs keep the p of older versions
        units = lcm(*(comb(number, metric.k) for number in samples))
    if units is not None and units * int(np.count_nonzero(differences)) ** 2 > _EXACT_WORK:
        units = None
    test = {None: "permutation (drawn)", 1: "permutation (McNemar mid-p)"}.get(units, "permutation")
    return test, sign_flip(differences, units)


def _speed(run: Run, base: Run, pair: Pair, settings: Settings) -> SpeedRatio:
    mismatches = latency_mismatches(run.manifest, base.manifest)
    own, other = pair.first.latency_seconds, pair.second.latency_seconds
    is_timed = np.isfinite(own) & np.isfinite(other)
    n = int(is_timed.sum())
    is_refused = bool(mismatches) and not settings.is_latency_forced
    ratio = None if is_refused or not n else geometric_mean_ratio(other[is_timed], own[is_timed])
    return SpeedRatio(base.run_id, n, ratio, mismatches)
