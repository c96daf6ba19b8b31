"""The comparison itself: every run's results, and every run against the baseline of its dataset.

One problem is one observation, runs are paired by problem, and Holm's correction covers every test of the table.
Missing samples count nowhere: a run's own result is over what it has, a difference over what both runs have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import comb, lcm
from shlex import quote

import numpy as np

from warehouse.comparison.manifests import Difference, Manifest, differences, same_subject, unlike_for_latency
from warehouse.comparison.outcomes import Outcomes, Pair, paired
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
    folder: str
    """Path of the run folder when it was loaded."""
    outcomes: Outcomes
    """Everything that is planned."""
    votes: Mapping[str, Votes] | None
    """By problem id; None where no majority vote was asked for."""

    @property
    def run_id(self) -> str:
        """Name of the run folder."""
        return self.summary.run_id

    @property
    def is_unfinished(self) -> bool:
        """Whether a planned sample is not finished or not graded."""
        return self.outcomes.num_missing > 0

    @property
    def remedy(self) -> str:
        """The command that runs or grades what is missing."""
        what = "resume" if self.summary.num_not_run else "finalize"
        return f"python -m jobs {what} {quote(self.folder)}"


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
    """One-sided, that the run loses the margin or more."""
    margin: float
    minimum_detectable_effect: float | None

    @property
    def is_non_inferior(self) -> bool | None:
        """Whether the 95 % interval lies above −margin; None where there is no interval or a sample is missing."""
        return None if self.p_non_inferior is None or self.is_unfinished else self.p_non_inferior < ALPHA / 2


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


def compare(runs: Sequence[Run], settings: Settings, baseline: str | None = None) -> Comparison:
    """Compare runs; the baseline of a dataset is the run named `baseline`, else its first one.

    Raises WarehouseError where a run shares no problem or no sample with its baseline, has no finished and graded
    sample at all, or has too few samples for some k.
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
    pair = None if run is base else _pair(run, base)
    return [_row(run, base, pair, metric, wanted, settings) for metric, wanted in metrics]


def _pair(run: Run, base: Run) -> Pair:
    pair = paired(run.outcomes, base.outcomes)
    if not pair.num_shared_problems:
        raise WarehouseError(
            f"{run.run_id} and {base.run_id} have no problem in common: compare runs over the same problems"
        )
    return pair


def _row(run: Run, base: Run, pair: Pair | None, metric: str, k: int, settings: Settings) -> Row:
    own, is_first = _own(run, metric, k), metric == "pass@1"
    details = [f"avg-of-{int(run.outcomes.samples.max())}"] if is_first else []
    if run.is_unfinished:
        details.append(f"{own.num_samples} of {run.outcomes.num_samples} samples")
    name = metric.replace("@k", f"@{k}") + (f"[{', '.join(details)}]" if details else "")
    return Row(
        run,
        name,
        k,
        own,
        accuracy(_scores(run, own, metric, k)),
        rerun_standard_error(own.correct, own.samples) if is_first else None,
        None if pair is None else _contrast(run, base, pair, metric, k, settings),
        _speed(run, base, pair, settings) if is_first and pair is not None else None,
    )


def _own(run: Run, metric: str, k: int) -> Outcomes:
    """What the run's own result is over."""
    planned, name = run.outcomes, metric.replace("@k", f"@{k}")
    if planned.num_missing == planned.num_samples:
        raise WarehouseError(
            f"{run.run_id}: none of its {planned.num_samples} samples is finished and graded, so there is nothing to "
            f"compare: {run.remedy}"
        )
    fewest = int(planned.samples.min())
    if not 1 <= k <= fewest:
        raise WarehouseError(f"{run.run_id}: {name} needs 1 ≤ k ≤ samples per problem, of which there are {fewest}")
    own = planned.present().holding(k)
    if not own.problems:
        raise WarehouseError(
            f"{run.run_id}: {name} needs {k} finished and graded samples of a problem, and no problem has so many: "
            f"{run.remedy}"
        )
    return own


def _scores(run: Run, outcomes: Outcomes, metric: str, k: int) -> Floats:
    """Scores (n,) of the counted samples in `outcomes`, which are some of the run's."""
    if metric == "pass@1":
        return outcomes.scores
    if metric == "pass@k":
        return pass_at_k(outcomes.correct, outcomes.samples, k)
    assert run.votes is not None
    counted = [set(np.flatnonzero(row).tolist()) for row in outcomes.is_counted]
    cast = [run.votes[name].among(kept) for name, kept in zip(outcomes.problem_ids, counted, strict=True)]
    return np.array([maj_at_k(votes.counts, votes.is_right, votes.abstained, k) for votes in cast])


def _contrast(run: Run, base: Run, pair: Pair, metric: str, k: int, settings: Settings) -> Contrast:
    _own(base, metric, k)
    kept = pair.holding(k)
    if not kept.n:
        commands = "; ".join(one.remedy for one in (run, base) if one.is_unfinished)
        raise WarehouseError(
            f"{run.run_id} and {base.run_id}: {metric.replace('@k', f'@{k}')} needs {k} finished and graded samples "
            f"that both runs have of a problem, and no problem has so many: {commands}"
        )
    first, second = _scores(run, kept.first, metric, k), _scores(base, kept.second, metric, k)
    smallest = 1 / int(max(kept.first.samples.max(), kept.second.samples.max()))
    difference = paired_difference(first, second, smallest)
    is_same = metric == "pass@1" and same_subject(run.manifest, base.manifest)
    test, p = _changed(kept) if is_same else _better(kept, first - second, metric, k)
    error, degrees = difference.standard_error, difference.degrees
    return Contrast(
        base.run_id,
        kept.n,
        kept,
        run.is_unfinished or base.is_unfinished,
        difference,
        test,
        p,
        p,
        non_inferiority(difference, settings.margin),
        settings.margin,
        minimum_detectable_effect(error, degrees) if error and degrees else None,
    )


def _changed(pair: Pair) -> tuple[str, float]:
    """Test and p-value for the same method on the same problems: did it change?"""
    own, other = pair.first, pair.second
    return "stratified", stratified(own.correct, own.samples, other.correct, other.samples).p


def _better(pair: Pair, shown: Floats, metric: str, k: int) -> tuple[str, float]:
    """Test and p-value for two methods: which is better? shown: differences (n,)."""
    samples = sorted({int(number) for number in np.concatenate([pair.first.samples, pair.second.samples])})
    units = None
    if metric == "pass@1":
        units = lcm(*samples)
    elif metric == "pass@k" and len(samples) == 1:
        units = comb(samples[0], k)
    if units is not None and units * int(np.count_nonzero(shown)) ** 2 > _EXACT_WORK:
        units = None
    return ("permutation" if units != 1 else "permutation (McNemar mid-p)"), sign_flip(shown, units)


def _speed(run: Run, base: Run, pair: Pair, settings: Settings) -> SpeedRatio:
    unlike = unlike_for_latency(run.manifest, base.manifest)
    own, other = pair.first.latency_seconds, pair.second.latency_seconds
    timed = np.isfinite(own) & np.isfinite(other)
    n = int(timed.sum())
    refused = bool(unlike) and not settings.is_latency_forced
    ratio = None if refused or not n else geometric_mean_ratio(other[timed], own[timed])
    return SpeedRatio(base.run_id, n, ratio, unlike)
