"""What is judged of a cell: pass@1, and what speculation is for. One rule for all of them: `statistics.night`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from warehouse.measures import MEASURES, Measure
from warehouse.nightly.cells import TIMES, CellNight, Past, Reference
from warehouse.statistics.intervals import Floats
from warehouse.statistics.night import Look, Series, Spread, Value, looks


@dataclass(frozen=True)
class Metric:
    """A quantity of a run that is judged."""

    name: str
    measure: Measure
    fault: int
    """Direction that is a FAIL: 1 for a rise, −1 for a fall."""
    is_log: bool = False
    """Whether values are logarithms, so that changes are shares; else they are shares, and changes points."""
    warns: bool = False
    """Whether a change in the other direction is a WARN."""
    of: str = ""
    """TIMES where the conditions of times must be equal too."""
    unit: str = ""

    def scaled(self, value: float) -> float:
        """Return the value of an estimate on the metric's scale."""
        return float(np.log(value)) if self.is_log else value

    @property
    def least(self) -> float:
        """Smallest change that is reported, however certain: 3 %, or 2 points; of pass@1 any."""
        return 0.0 if self is PASS_AT_1 else 0.03 if self.is_log else 0.02

    @property
    def floor(self) -> float:
        """Smallest standard deviation of nights that is believed."""
        return self.least / 10

    def change(self, difference: float) -> float:
        """Return a difference of values as a share of the value, or as a difference of shares."""
        return float(np.expm1(difference)) if self.is_log else difference

    def shown(self, value: float) -> str:
        """Return a value as text."""
        if not self.is_log:
            return f"{100 * value:.1f} %"
        natural = float(np.exp(value))
        return (f"{natural:,.0f}" if natural >= 100 else f"{natural:.3g}") + self.unit


def _metric(measure: Measure) -> Metric:
    is_log = not measure.is_percent
    unit = {"s": " s", "ratio": "×"}.get(measure.unit, "")
    of = TIMES if measure.is_of_times else ""
    return Metric(measure.title, measure, -measure.better, is_log, measure.warns, of, unit)


JUDGED = {name: _metric(measure) for name, measure in MEASURES.items() if "night" in measure.shown}
"""What nights judge, by the names of measures: pass@1 first."""
METRICS = tuple(JUDGED.values())
PASS_AT_1, TOKEN_TIME, SPEED_UP = (JUDGED[name] for name in ("pass_at_1", "seconds_per_token", "speed_up"))


@dataclass(frozen=True)
class MetricVerdict:
    """What is said of one metric of a cell tonight; values are on the metric's scale."""

    metric: Metric
    first: float
    tonight: float
    """Re-runs included."""
    num_runs: int
    reference: Reference
    num_in_window: int
    look: Look

    @property
    def num_baseline(self) -> int:
        """Number of nights that it was compared with."""
        return len(self.reference.nights)

    @cached_property
    def side(self) -> int:
        """1 for a rise that was found, −1 for a fall, 0 for neither."""
        side = self.look.side(is_confirmed=self.num_runs > 1)
        return side if self._matters(side, self.tonight) else 0

    @property
    def is_suspicious(self) -> bool:
        """Whether the first run asks for another one."""
        return self.look.is_suspicious and self._matters(int(np.sign(self.look.screened)), self.first)

    @property
    def needs_rerun(self) -> bool:
        """True where a suspicion waits for a re-run."""
        return self.is_suspicious and self.num_runs == 1 and not self.side

    @property
    def is_fault(self) -> bool:
        """True if it changed for the worse."""
        return self.side == self.metric.fault

    @property
    def is_other(self) -> bool:
        """True if it changed in the other direction, where that matters."""
        return self.side == -self.metric.fault

    def _matters(self, side: int, value: float) -> bool:
        is_large = abs(value - self.look.usual) >= self.metric.least
        return is_large and (side == self.metric.fault or (self.metric.warns and side == -self.metric.fault))

    def __str__(self) -> str:
        """Return a phrase such as `fallback rate: 21.3 % → 31.5 %`."""
        before, now = (self.metric.shown(value) for value in (self.look.usual, self.tonight))
        percent = 100 * self.metric.change(self.tonight - self.look.usual)
        share = f" ({percent:+.0f} %)".replace("-", "−") if self.metric.is_log else ""
        mean = self.metric.shown(self.look.window_mean)
        window = f", {mean} over {self.num_in_window} nights together" if self.look.is_by_window else ""
        return f"{self.metric.name}: {before} → {now}{share}{window}"

    def as_record(self) -> dict[str, object]:
        """Return what is said for JSON; tokens and seconds as they are, rates as shares."""
        tonight, usual = (float(np.exp(v)) if self.metric.is_log else v for v in (self.tonight, self.look.usual))
        return {
            "name": self.metric.name,
            "tonight": tonight,
            "baseline": usual,
            "num_baseline_nights": self.num_baseline,
            "z": self.look.tonight,
            "detectable_change": self.detectable_change,
            "is_suspicious": self.is_suspicious,
            "verdict": "FAIL" if self.is_fault else "WARN" if self.is_other else "PASS",
        }

    @property
    def detectable_change(self) -> float:
        """Size of the change for the worse that is found tonight with 80 % chance, as `Metric.change` returns it."""
        least = max(self.metric.least, self.look.detectable)
        return abs(self.metric.change(self.metric.fault * least))


class _Case(NamedTuple):
    night: CellNight
    reference: Reference
    series: Series


def judged(
    nights: Sequence[tuple[CellNight, Past]],
) -> tuple[dict[str, dict[Metric, MetricVerdict]], dict[str, Spread]]:
    """Return what is said of each metric by cell, and how much each metric wanders over all of them, by its name."""
    found: dict[str, dict[Metric, MetricVerdict]] = {night.cell: {} for night, _ in nights}
    spreads: dict[str, Spread] = {}
    for metric in METRICS:
        cases = []
        for night, past in nights:
            reference = past.reference(night, metric.of, metric.name) if metric.name in night.values else None
            if reference is not None:
                cases.append(_Case(night, reference, _series(night, reference, metric)))
        if not cases:
            continue
        spreads[metric.name], seen = looks([case.series for case in cases], metric.floor)
        for (night, reference, series), look in zip(cases, seen, strict=True):
            found[night.cell][metric] = MetricVerdict(
                metric,
                series.first.value,
                series.together.value,
                night.num_values(metric.name),
                reference,
                1 + len(series.window),
                look,
            )
    return found, spreads


def _series(night: CellNight, reference: Reference, metric: Metric) -> Series:
    """Return tonight's values of a metric and those before.

    Sampling variances of pass@1 are those of re-runs of the same problems, from the earlier nights' answers, and night
    effects are alike in logits; in rates they are as sampling is, in tokens as means over problems are.
    """
    name, num_problems = metric.name, len(night.first.samples)
    window = [earlier for earlier in reference.window if name in earlier.values]
    if metric is PASS_AT_1:
        chances = _chances(reference.nights)
        # Where no answer ever changed, one sample more or less is still chance.
        least = (1 / night.first.num_samples) ** 2
        noise, slope = float(chances.sum()) / num_problems**2, float(chances.mean())

        def value(one: CellNight, *, is_first: bool = False) -> Value:
            batch = one.first if is_first else one.together
            variance = max(noise * num_problems / batch.num_samples, least)
            return Value(one.day, batch.score, variance)

        unit = max(slope, 1e-9)
    else:

        def value(one: CellNight, *, is_first: bool = False) -> Value:
            return Value(one.day, one.first.measures[name] if is_first else one.values[name])

        unit = 1.0
        if not metric.is_log:
            usual = sum(earlier.values[name] for earlier in reference.nights) / len(reference.nights)
            unit = max(usual * (1 - usual), 1e-4) ** 0.5
        if metric.of != TIMES:
            unit /= num_problems**0.5
    first = value(night, is_first=True)
    return Series(
        [value(earlier) for earlier in reference.nights],
        first,
        value(night) if night.reruns else first,
        [value(earlier) for earlier in window],
        unit,
    )


def _chances(nights: Sequence[CellNight]) -> Floats:
    """Return p(1 − p) of each problem, p its chance of a right answer, from the answers of these nights."""
    correct = np.sum([night.together.correct for night in nights], axis=0)
    samples = np.sum([night.together.samples for night in nights], axis=0)
    return np.asarray(correct * (samples - correct) / (samples * np.maximum(samples - 1, 1)), dtype=float)


def detectable(found: Sequence[MetricVerdict], spreads: Mapping[str, Spread]) -> str:
    """Return a line on the changes of a metric that would be found in these cells."""
    metric, changes = found[0].metric, [100 * verdict.detectable_change for verdict in found]
    low, high = (f"{change:.1f}" for change in (min(changes), max(changes)))
    size = f"{low if low == high else f'{low} to {high}'} {'%' if metric.is_log else 'points'}"
    direction = "rise" if metric.fault > 0 else "fall"
    cells = f"{len(found)} cell{'s' * (len(found) != 1)}"
    wander = f"autocorrelation of nights {spreads[metric.name].autocorrelation:.2f}"
    return f"{metric.name}: a {direction} of {size} would be found with 80 % chance in {cells} ({wander})"
