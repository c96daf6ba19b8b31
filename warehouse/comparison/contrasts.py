"""Results of every run, and contrasts of every run with the baseline of its dataset.

One problem is one observation, and runs are paired by problem. Holm's correction covers all differences of the table,
but not the tests of "not worse" (one-sided, 2.5 %; docs/statistics.md has their error rates). Missing samples are
excluded: results use the run's available samples, differences use samples available in both runs. Only the
non-inferiority test counts missing samples, against the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from harness.cli.number_format import sides
from warehouse.comparison.compared_runs import (
    Baseline,
    Metric,
    Run,
    choose,
    counted,
    possible_scores,
    read_runs,
    scores,
)
from warehouse.comparison.latency_at_one import SpeedUpAtOne, speed_up
from warehouse.comparison.manifests import Difference, differences, is_same_subject, latency_mismatches
from warehouse.comparison.outcomes import Outcomes, Pair, common_family, paired, resolve, shared
from warehouse.comparison.pairs import timed_pair
from warehouse.database import WAIT_SECONDS, WarehouseError, reader
from warehouse.statistics.bounded import worst_case
from warehouse.statistics.intervals import Families, Interval, mean, rerun_standard_error
from warehouse.statistics.paired import holm, on_these
from warehouse.statistics.paired import paired as paired_interval
from warehouse.statistics.planning import CannotPlan, Pilot, plan
from warehouse.statistics.ratios import RunFactor

ALPHA = 0.05
_PASS_AT_1 = Metric("pass@1", 1)


@dataclass(frozen=True)
class Settings:
    """Options of a comparison."""

    margin: float = 0.02
    """Non-inferiority margin, as a fraction."""
    ks: tuple[int, ...] = ()
    """Values of k for pass@k and maj@k, in addition to pass@1."""
    majority: bool = False
    is_latency_forced: bool = False
    """Whether latency is compared even if hardware or settings differ."""


@dataclass(frozen=True)
class Contrast:
    """A run minus its baseline, as fractions, over the problems and samples available in both."""

    baseline: str
    pair: Pair
    """Compared samples for this metric, without problems that have fewer than k common samples."""
    is_unfinished: bool
    """Whether a sample of either run is missing."""
    like_these: Interval
    """Interval of the difference on similar problems."""
    on_these: Interval | None
    """Interval of the difference if the same problems are rerun; only for pass@1."""
    worst: Interval | None
    """Worst-case interval: single problems, or families, may be lost entirely, and missing samples count against the
    run. Its p is one-sided, for a loss of at least the margin. None if the completeness is below LEAST_COMPLETENESS.
    """
    is_same_subject: bool
    """Whether both runs have the same method, parameters and models. The question is then whether results changed on
    these problems, not which method is better on other problems.
    """
    margin: float
    num_needed: int | None
    """Number of similar problems, with the same number of samples per problem, needed to show "not worse" for an
    equally accurate method with power planning.POWER; only for pass@1. None if "not worse" is shown or not assessed, or
    if no plan is possible.
    """
    p_holm: float | None = None
    """p of `difference`, adjusted for all tests of the table."""

    @property
    def n(self) -> int:
        """Number of compared problems."""
        return self.pair.n

    @property
    def difference(self) -> Interval:
        """`on_these` if it has a p and `is_same_subject`, else `like_these`. The p is two-sided and unadjusted."""
        is_answered = self.is_same_subject and self.on_these and self.on_these.p is not None
        return self.on_these if is_answered and self.on_these else self.like_these

    @property
    def is_non_inferior(self) -> bool | None:
        """Whether the worst case lies above −margin; None without a worst case."""
        return None if self.worst is None or self.worst.p is None else self.worst.p < ALPHA / 2

    @property
    def is_worse(self) -> bool:
        """Whether the run is worse, by the adjusted p."""
        return self.p_holm is not None and self.p_holm < ALPHA and self.difference.estimate < 0


@dataclass(frozen=True)
class SpeedRatio:
    """The baseline's latency divided by the run's; above 1 the run is faster."""

    baseline: str
    n: int
    """Number of problems timed in all compared runs."""
    ratio: Interval | None
    """The ratio with its interval; None if it is refused, or if no problem was timed in all compared runs."""
    unlike: Sequence[str]
    """Reasons why the times are not comparable; if there are any, `ratio` is set only if `is_latency_forced`."""
    factor: RunFactor | None
    """Run factor included in the ratio's interval. None: the interval holds only within these runs."""
    at_one: SpeedUpAtOne | None = None
    """Ratio of mean latencies with one sample in flight. None if refused, or if a run has no timing samples."""
    num_runs: tuple[int, int] = (1, 1)
    """Number of finished repeats of the run and of the baseline in the ratio."""
    num_cards: tuple[int | None, int | None] = (None, None)
    """Number of GPUs of the run and of the baseline."""

    @property
    def per_card_second(self) -> float | None:
        """The ratio in GPU-seconds; None if the ratio or a number of GPUs is unknown."""
        own, of_base = self.num_cards
        return self.ratio.estimate * of_base / own if self.ratio and own and of_base else None

    @property
    def sides(self) -> str:
        """The GPUs of run and baseline if they differ, and the repeats of each; empty without a ratio."""
        return sides(self.num_cards, self.num_runs) if self.ratio else ""


@dataclass(frozen=True)
class Row:
    """A run's result under one metric, and its contrast with the baseline."""

    run: Run
    metric: str
    k: int
    outcomes: Outcomes
    """Problems and samples in the result, without missing samples."""
    result: Interval
    rerun_standard_error: float | None
    contrast: Contrast | None
    """Comparison with the baseline; None for the baseline itself."""
    speed: SpeedRatio | None
    """Latency compared with the baseline's; only in rows of pass@1."""


@dataclass(frozen=True)
class Comparison:
    """Result of a comparison: all rows, the differences between manifests, and the runs or metrics left out."""

    rows: Sequence[Row]
    differences: Sequence[Difference]
    settings: Settings
    left_out: Sequence[str]
    """One message per run or metric that lacks samples, with reason and remedy."""
    baselines: Sequence[Baseline] = ()
    """One per dataset, or two: for its runs with one and with several samples in flight."""


def compare_runs(
    runs: Sequence[str],
    database: Path,
    settings: Settings | None = None,
    *,
    baseline: str | None = None,
    grader: str | None = None,
    wait_seconds: float = WAIT_SECONDS,
) -> Comparison:
    """Compare runs of a database, paired by problem.

    runs: run ids, unique prefixes, or paths of run folders. baseline: in the same forms as `runs`; by default, each
    dataset's run of the target alone. Raises DatabaseError, and WarehouseError, for example for fewer than two runs.
    """
    settings = settings or Settings()
    names = [*([baseline] if baseline else []), *runs]
    with reader(database, wait_seconds, grader) as connection:
        records = read_runs(connection, names, votes=settings.majority)
        if len(records) < 2:
            raise WarehouseError(f"pass at least two distinct runs: all arguments refer to {records[0].run_id}")
        return compare(records, settings, resolve(connection, baseline) if baseline else None)


def compare(runs: Sequence[Run], settings: Settings, baseline: str | None = None) -> Comparison:
    """Compare runs. The baseline of a dataset is the run named `baseline`, or the target alone (see `choose`).

    Rows are ordered by dataset and regime (one or several samples in flight), with the baseline first. Rows without
    enough samples for their metric are left out. Raises WarehouseError if fewer than two runs remain, if `baseline` has
    no samples, if a run shares no problem with its baseline, or if too few samples are planned for some k.
    """
    chosen = choose(runs, baseline)
    rows: list[Row] = []
    left_out = [run.why_empty for run in runs if run.is_empty]
    for base in chosen:
        members = [run for run in base.members if not run.is_empty]
        metrics = _metrics(members, settings)
        for run in sorted(members, key=lambda run: run is not base.run):
            run_rows, messages = _rows(run, base.run, metrics, settings)
            rows += run_rows
            left_out += messages
    compared_runs = {row.run.run_id: row.run for row in rows}
    if len(compared_runs) < 2:
        raise WarehouseError(f"fewer than two runs can be compared: {'; '.join(left_out)}")
    unequal = differences([run.manifest for run in compared_runs.values()])
    used = [base for base in chosen if base.run.run_id in compared_runs]
    return Comparison(_holm_adjusted(rows), unequal, settings, left_out, used)


def _metrics(runs: Sequence[Run], settings: Settings) -> list[Metric]:
    """Return the metrics for a dataset's runs.

    By default, k of maj@k is the smallest number of samples per problem among the runs; greedy runs count only if all
    runs are greedy.
    """
    metrics = [_PASS_AT_1]
    metrics += [Metric("pass@k", k) for k in settings.ks if k > 1]
    if settings.majority:
        sampled = [run for run in runs if not run.summary.is_greedy] or runs
        fewest = min(int(run.under(Metric("maj@k", 1)).outcomes.samples.max()) for run in sampled)
        metrics += [Metric("maj@k", k) for k in settings.ks or (fewest,)]
    return metrics


def _holm_adjusted(rows: Sequence[Row]) -> list[Row]:
    p_values = [row.contrast.difference.p for row in rows if row.contrast]
    adjusted = iter(holm([p for p in p_values if p is not None]))
    return [
        replace(row, contrast=replace(row.contrast, p_holm=next(adjusted)))
        if row.contrast and row.contrast.difference.p is not None
        else row
        for row in rows
    ]


def _rows(run: Run, base: Run, metrics: Sequence[Metric], settings: Settings) -> tuple[list[Row], list[str]]:
    """Return the rows of a run with samples, and a message for each metric left out."""
    pair = None if run is base else _pair(run, base, _PASS_AT_1)
    if pair is not None and not pair.n:
        reason = f"it shares no finished and graded sample with {base.run_id}"
        return [], [f"{run.run_id}: {reason}{_remedies(run, base)}"]
    pairs = {metric: None if pair is None else _pair(run, base, metric) for metric in metrics}
    reasons = {metric: _reason_left_out(run, base, pairs[metric], metric) for metric in metrics}
    rows = [_row(run, base, pairs[metric], metric, settings) for metric, reason in reasons.items() if reason is None]
    told = [f"{run.run_id}, {metric.name}: {reason}" for metric, reason in reasons.items() if reason is not None]
    return rows, [line + _remedies(run, base) for line in told]


def _remedies(run: Run, base: Run) -> str:
    return "".join(f"; {member.run_id}: {member.remedy}" for member in (run, base) if member.is_unfinished)


def _pair(run: Run, base: Run, metric: Metric) -> Pair:
    """Pair the samples of a run and its baseline that a metric uses. Raises WarehouseError."""
    pair = paired(run.under(metric).outcomes, base.under(metric).outcomes)
    if not pair.num_shared_problems:
        raise WarehouseError(f"{run.run_id} and {base.run_id} share no problems: compare runs over the same problems")
    return pair


def _reason_left_out(run: Run, base: Run, pair: Pair | None, metric: Metric) -> str | None:
    for member in (run,) if pair is None else (run, base):
        if metric.k > 1 and member.summary.is_greedy:
            return f"{member.run_id} is greedy: all samples of a problem repeat the first one"
        if not counted(member, metric).problems:
            return f"no problem of {member.run_id} has {metric.k} finished and graded samples"
    if pair is not None and not pair.holding(metric.k).n:
        return f"no problem has {metric.k} samples in common with {base.run_id}"
    return None


def _row(run: Run, base: Run, pair: Pair | None, metric: Metric, settings: Settings) -> Row:
    own, is_pass_at_1 = counted(run, metric), metric.kind == "pass@1"
    details = [f"avg-of-{run.summary.k}"] if is_pass_at_1 else []
    if run.is_unfinished:
        details.append(f"{own.num_samples} of {run.under(metric).outcomes.num_samples} samples")
    return Row(
        run,
        metric.name + (f"[{', '.join(details)}]" if details else ""),
        metric.k,
        own,
        mean(scores(run, own, metric), own.family),
        rerun_standard_error(own.correct, own.samples) if is_pass_at_1 and not run.summary.is_greedy else None,
        None if pair is None else _contrast(run, base, pair.holding(metric.k), metric, settings),
        _speed(run, base, settings) if is_pass_at_1 and pair is not None else None,
    )


def _contrast(run: Run, base: Run, pair: Pair, metric: Metric, settings: Settings) -> Contrast:
    first, second = scores(run, pair.first, metric), scores(base, pair.second, metric)
    is_pass_at_1 = metric.kind == "pass@1"
    contrast = Contrast(
        base.run_id,
        pair,
        run.is_unfinished or base.is_unfinished,
        paired_interval(first, second, pair.family),
        _on_these(run, base) if is_pass_at_1 else None,
        None if pair.why_refused else _worst(run, base, metric, settings.margin),
        is_pass_at_1 and is_same_subject(run.manifest, base.manifest),
        settings.margin,
        None,
    )
    if is_pass_at_1 and contrast.is_non_inferior is False:
        return replace(contrast, num_needed=_num_needed(run, base, pair, settings.margin))
    return contrast


def _on_these(run: Run, base: Run) -> Interval:
    pair = paired(run.without_repeats().outcomes, base.without_repeats().outcomes)
    return on_these(pair.first.correct, pair.first.samples, pair.second.correct, pair.second.samples)


def _worst(run: Run, base: Run, metric: Metric, margin: float) -> Interval:
    """Return the worst-case interval: the run's missing samples count as wrong, the baseline's as right."""
    own, other = shared(run.under(metric).outcomes, base.under(metric).outcomes)
    lowest, highest = possible_scores(run, own, metric)[0], possible_scores(base, other, metric)[1]
    return worst_case(lowest, highest, margin, common_family(own, other))


def _num_needed(run: Run, base: Run, pair: Pair, margin: float) -> int | None:
    try:
        found, family = pilot(run, base, pair)
        return plan(found, margin, run.summary.k, family=family)
    except CannotPlan:
        return None


def pilot(run: Run, base: Run, pair: Pair) -> tuple[Pilot, Families]:
    """Return two runs' counts for the problems with at least two samples in each run, and the problems' families.

    The counts of a greedy run are doubled: further samples would be identical, so its samples have no noise. Raises
    CannotPlan.
    """
    sides = ((run, pair.first), (base, pair.second))
    counts = [
        (2 if member.summary.is_greedy else 1) * numbers
        for member, outcomes in sides
        for numbers in (outcomes.correct, outcomes.samples)
    ]
    places = np.flatnonzero((counts[1] > 1) & (counts[3] > 1))
    if not len(places):
        places = np.arange(pair.n)  # Pilot raises CannotPlan, because these problems lack samples
    return Pilot(*(numbers[places] for numbers in counts)), [pair.family[place] for place in places]


def _speed(run: Run, base: Run, settings: Settings) -> SpeedRatio:
    """Return the ratio of the times of two settings, over all finished repeats of both, like the view `speed_up`.

    If both runs have the same setting, only these two runs are compared.
    """
    mismatches = latency_mismatches(run.manifest, base.manifest)
    is_same_setting = base.run_id in run.times
    times = [[one.times[one.run_id]] if is_same_setting else [*one.times.values()] for one in (run, base)]
    found, cards = timed_pair(*times), (run.manifest.num_cards, base.manifest.num_cards)
    n, is_refused = found.n if found else 0, bool(mismatches) and not settings.is_latency_forced
    if found is None or is_refused:
        return SpeedRatio(base.run_id, n, None, mismatches, None, num_cards=cards)
    at_one = speed_up(run.timed, base.timed) if run.timed and base.timed else None
    return SpeedRatio(
        base.run_id, n, found.ratio.geometric_mean, mismatches, found.ratio.factor, at_one, found.num_runs, cards
    )
