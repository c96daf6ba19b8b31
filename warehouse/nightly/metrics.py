"""What speculation is for, by the same rule as accuracy: screened by the first run, confirmed together with a re-run.

A value is compared with the nights of its segment by t: the spread of a cell's nights is estimated from those nights
and moderated by the other cells', so it holds everything that differs between runs, clocks included (the run factor).
Each metric has its own share of the night's error rate, with Holm's correction over the cells within it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property

import numpy as np
from scipy import special

from warehouse.nightly.accuracy import AGREES
from warehouse.nightly.cells import CellNight
from warehouse.nightly.past import ACCURACY, SHORTEST_BASELINE, TIMES, Level, Past, Reference
from warehouse.statistics.night_changes import NO_FACTOR, NightFactor, moderated
from warehouse.statistics.paired import holm
from warehouse.statistics.planning import POWER

SCREEN = 0.005
"""Largest p-value of a run, or of a window, that makes a metric suspicious."""
_TRIMMED = 1.08
"""Variance of a normal value relative to that within ±2.58 standard deviations: suspicious nights enter no baseline."""
_TESTS = 2
"""Tonight, and the window: the smaller p-value counts, doubled."""
_AGREES_AT_ALL = 0.2
"""Largest p-value of tonight at which its window is looked at."""
_SMALLEST_WITHIN = 0.25
"""Least share of the variance between nights that runs of one night have too, if the rest is common to all cells."""


@dataclass(frozen=True)
class Metric:
    """A quantity of a run that is judged."""

    name: str
    fault: int
    """Direction that is a FAIL: 1 for a rise, −1 for a fall."""
    is_log: bool
    """Whether values are logarithms, so that changes are shares; else they are shares, and changes points."""
    alpha: float
    """Family-wise error rate of a night for faults."""
    alpha_other: float = 0.0
    """The same for a change in the other direction, which is a WARN; 0: such a change is none."""
    of: str = ACCURACY
    """Whose conditions must be equal: ACCURACY or TIMES."""
    unit: str = ""

    @property
    def least(self) -> float:
        """Smallest change that is reported, however certain: 3 %, or 2 points."""
        return 0.03 if self.is_log else 0.02

    @property
    def floor(self) -> float:
        """Smallest standard deviation that is believed."""
        return self.least / 10


FALLBACK, DRAFT_SHARE, SPENT, CRITICAL_PATH, TRUNCATED, CACHE_HITS, TOKEN_TIME, SPEED_UP = METRICS = (
    Metric("fallback rate", 1, False, 0.0004, 0.00005),
    Metric("draft's share of tokens", -1, False, 0.0001, 0.00005),
    Metric("spent tokens per sample", 1, True, 0.0001),
    Metric("critical-path tokens per sample", 1, True, 0.0001),
    Metric("samples cut off", 1, False, 0.0001),
    Metric("cache hits", -1, False, 0.0001, of=TIMES),
    Metric("time per token", 1, True, 0.0001, of=TIMES, unit=" s"),
    Metric("speed-up", -1, True, 0.0006, of=TIMES, unit="×"),
)
"""Their shares of the error rate add up to 0.17 %."""


@dataclass(frozen=True)
class MetricVerdict:
    """What is said of one metric of a cell tonight."""

    metric: Metric
    tonight: float
    """On the metric's scale, re-runs included."""
    baseline: float
    num_baseline: int
    is_opening: bool
    error: float
    """Standard error of the difference between two runs and the baseline."""
    degrees: float
    """Its degrees of freedom."""
    num_cells: int
    """Cells that Holm's correction is over."""
    is_suspicious: bool
    is_doubtful: bool
    """Whether the night stays out of the baseline: it is suspicious, and no re-run refutes that."""
    is_confirmable: bool
    """Whether there is a re-run."""
    opened: date
    """The first night under tonight's conditions."""
    window: float | None = None
    """Mean over the nights of the window, where it decides rather than tonight by itself."""
    num_in_window: int = 1
    p: tuple[float, float] = (1.0, 1.0)
    """p-values under Holm's correction in the faulty and in the other direction."""

    @property
    def detectable(self) -> float:
        """Change in the faulty direction that is confirmed with 80 % chance, on the metric's scale."""
        quantile = special.stdtrit(self.degrees, 1 - self.metric.alpha / _TESTS / self.num_cells)
        return max(self.metric.least, float(quantile + special.ndtri(POWER)) * self.error)

    @property
    def needs_rerun(self) -> bool:
        """True where a suspicion waits for a re-run."""
        return self.is_suspicious and not self.is_confirmable

    @property
    def is_fault(self) -> bool:
        """True if it changed for the worse, confirmed."""
        return self.p[0] <= self.metric.alpha and self._is_large

    @property
    def is_other(self) -> bool:
        """True if it changed in the other direction, confirmed, where that matters."""
        return self.p[1] <= self.metric.alpha_other and self._is_large

    @property
    def _is_large(self) -> bool:
        return abs(self.tonight - self.baseline) >= self.metric.least

    def __str__(self) -> str:
        """Return a phrase such as `fallback rate: 21.3 % → 31.5 %`."""
        before, now = (self.shown(value) for value in (self.baseline, self.tonight))
        share = f" ({_percent(self.tonight - self.baseline)})" if self.metric.is_log else ""
        window = "" if self.window is None else f", {self.shown(self.window)} over {self.num_in_window} nights together"
        return f"{self.metric.name}: {before} → {now}{share}{window}"

    def shown(self, value: float) -> str:
        """Return a value as text."""
        if not self.metric.is_log:
            return f"{100 * value:.1f} %"
        natural = float(np.exp(value))
        return (f"{natural:,.0f}" if natural >= 100 else f"{natural:.3g}") + self.metric.unit


def _percent(log_change: float) -> str:
    return f"{100 * np.expm1(log_change):+.0f} %".replace("-", "−")


@dataclass(frozen=True)
class _Case:
    """One metric of one cell tonight, with what it is measured by."""

    night: CellNight
    reference: Reference
    metric: Metric

    @cached_property
    def level(self) -> Level:
        return self.reference.segment.levels[self.metric.name]

    @cached_property
    def tonight(self) -> _Runs:
        """Tonight's first run and the re-runs."""
        runs = _runs(self.night, self.metric)
        assert runs is not None
        return runs

    @cached_property
    def earlier(self) -> list[_Runs]:
        """The other nights of the window."""
        return [runs for night in self.reference.window if (runs := _runs(night, self.metric)) is not None]

    @cached_property
    def rest(self) -> Level:
        """The baseline without the window's nights."""
        level, known = self.level, self.reference.segment.values.get(self.metric.name, {})
        for night in () if self.reference.is_opening else self.reference.window:
            level = level.without(known[night.night]) if night.night in known else level
        return level

    @property
    def window(self) -> float:
        """The mean over tonight, re-runs included, and the other nights of the window."""
        nights = [*self.earlier, self.tonight]
        return sum(runs.mean for runs in nights) / len(nights)

    @property
    def scale(self) -> float:
        """What its variance is multiplied with to be like other cells': tokens and rates vary with the problems."""
        return 1.0 if self.metric.of == TIMES else float(len(self.night.first.samples))


@dataclass(frozen=True)
class _Runs:
    """The runs of a metric in one night."""

    first: float
    mean: float
    num: int
    worth: float
    """How many independent values the mean is worth: a speed-up varies with the runs of both sides."""


def _runs(night: CellNight, metric: Metric) -> _Runs | None:
    values = [batch.measures[metric.name] for batch in night.complete if metric.name in batch.measures]
    if not values:
        return None
    worth = 2 / (1 / len(values) + 1 / night.num_baseline_runs) if metric is SPEED_UP else float(len(values))
    return _Runs(values[0], sum(values) / len(values), len(values), worth)


def judged(
    nights: Sequence[tuple[CellNight, Past]], factors: Mapping[str, NightFactor]
) -> dict[str, list[MetricVerdict]]:
    """Return what is said of each metric by cell. factors: night factors by metric."""
    found: dict[str, list[MetricVerdict]] = {}
    for metric in METRICS:
        cases = list(_cases(nights, metric))
        if not cases:
            continue
        verdicts = _tested(cases, factors.get(metric.name, NO_FACTOR).standard_deviation)
        sides = [holm([verdict.p[side] for verdict in verdicts]) for side in (0, 1)]
        for case, verdict, *p in zip(cases, verdicts, *sides, strict=True):
            found.setdefault(case.night.cell, []).append(replace(verdict, p=(p[0], p[1])))
    return found


def _cases(nights: Sequence[tuple[CellNight, Past]], metric: Metric) -> list[_Case]:
    cases = []
    for night, past in nights:
        if metric.name in night.first.measures:
            reference = past.reference(night, metric.of, metric.name)
            if reference is not None:
                cases.append(_Case(night, reference, metric))
    return cases


def _tested(cases: Sequence[_Case], factor: float) -> list[MetricVerdict]:
    degrees = np.array([case.level.num - 1.0 for case in cases])
    scales = np.array([case.scale for case in cases])
    variances = np.array([case.level.squares for case in cases]) / degrees * _TRIMMED
    variances, degrees = moderated(variances * scales, degrees)
    variances = np.maximum(variances / scales, cases[0].metric.floor ** 2)
    return [
        _verdict(case, _Spread(float(variance), float(df), factor), len(cases))
        for case, variance, df in zip(cases, variances, degrees, strict=True)
    ]


@dataclass(frozen=True)
class _Spread:
    """How much a metric of a cell differs between nights."""

    variance: float
    degrees: float
    factor: float
    """Standard deviation of the part that all cells of a night share."""

    def error(self, num_runs: float, num_nights: int, num_baseline: int) -> float:
        """Return the standard error of the difference between the mean of runs and the baseline."""
        within = max(self.variance - self.factor**2, _SMALLEST_WITHIN * self.variance)
        common = min(self.factor**2, self.variance - within)
        variance = within / num_runs + common / num_nights + self.variance / num_baseline
        return float(np.sqrt(variance))

    def p(self, difference: float, error: float) -> tuple[float, float]:
        """Return the one-sided p-values of a rise and of a fall."""
        rise, fall = (float(special.stdtr(self.degrees, sign * difference / error)) for sign in (-1, 1))
        return rise, fall


def _verdict(case: _Case, spread: _Spread, num_cells: int) -> MetricVerdict:
    metric, level, tonight = case.metric, case.level, case.tonight
    first = _Runs(tonight.first, tonight.first, 1, 1.0)
    screened = _alone(case, spread, first)
    window = _in_window(case, spread, first) if min(screened) <= _AGREES_AT_ALL else (1.0, 1.0)
    is_suspicious = [
        side <= SCREEN and alpha > 0
        for side, alpha in zip(map(min, screened, window), (metric.alpha, metric.alpha_other), strict=True)
    ]
    p, is_doubtful = [1.0, 1.0], any(is_suspicious)
    is_by_window = is_doubtful and min(screened) > SCREEN
    if is_doubtful and tonight.num > 1:
        screened, window = _alone(case, spread, tonight), _in_window(case, spread, tonight)
        is_doubtful = any(is_suspicious[side] and min(screened[side], window[side]) <= SCREEN for side in (0, 1))
        for side in (0, 1):
            if is_suspicious[side]:
                both = min(screened[side], window[side]) if screened[side] <= AGREES else screened[side]
                p[side] = min(1.0, _TESTS * both)
        is_by_window = any(is_suspicious[side] and window[side] < screened[side] for side in (0, 1))
    return MetricVerdict(
        metric,
        tonight.mean,
        level.mean,
        level.num,
        case.reference.is_opening,
        spread.error(2.0, 1, level.num),
        spread.degrees,
        num_cells,
        any(is_suspicious),
        is_doubtful,
        tonight.num > 1,
        case.reference.opened,
        case.window if is_by_window else None,
        1 + len(case.earlier) if is_by_window else 1,
        (p[0], p[1]),
    )


def _alone(case: _Case, spread: _Spread, tonight: _Runs) -> tuple[float, float]:
    """Return the p-values of tonight, in the faulty and in the other direction."""
    error = spread.error(tonight.worth, 1, case.level.num)
    return spread.p(case.metric.fault * (tonight.mean - case.level.mean), error)


def _in_window(case: _Case, spread: _Spread, tonight: _Runs) -> tuple[float, float]:
    """Return the same for the mean over tonight and the nights of the window; 1 where there is not enough."""
    if not case.earlier or case.rest.num < SHORTEST_BASELINE:
        return 1.0, 1.0
    nights = [*case.earlier, tonight]
    worth = len(nights) ** 2 / sum(1 / runs.worth for runs in nights)
    error = spread.error(worth, len(nights), case.rest.num)
    mean = sum(runs.mean for runs in nights) / len(nights)
    return spread.p(case.metric.fault * (mean - case.rest.mean), error)
