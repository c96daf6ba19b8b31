"""What a night's verdict would have found, and what its cells have in common, in words."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from harness.plural import counted
from warehouse.nightly.judge import NightVerdict
from warehouse.nightly.metrics import METRICS, Metric, MetricVerdict
from warehouse.nightly.past import ACCURACY


def remarks(verdict: NightVerdict) -> Iterator[str]:
    """Yield a line for each metric with the changes that would be found, and for each effect that all cells share."""
    for metric in METRICS:
        found = [m.detectable for cell in verdict.cells for m in cell.metrics if m.metric is metric]
        if found:
            change = _range(metric, min(found), max(found))
            cells = counted(len(found), "cell")
            yield f"{metric.name}: a {_direction(metric)} of {change} would be found with 80 % chance in {cells}"
    for name, factor in verdict.factors.items():
        metric_of = next((metric for metric in METRICS if metric.name == name), None)
        is_log = metric_of is not None and metric_of.is_log
        spread = f"{100 * factor.standard_deviation:.1f} {'%' if is_log else 'points'}"
        what = "pass@1" if name == ACCURACY else name
        yield (
            f"{what} of all cells together differs from night to night by {spread} (standard deviation): look for what "
            "they share; smaller changes cannot be told from it"
        )


def _direction(metric: Metric) -> str:
    return "rise" if metric.fault > 0 else "fall"


def _range(metric: Metric, least: float, most: float) -> str:
    low, high = (f"{100 * change_of(metric, value):.1f}" for value in (least, most))
    return f"{low if low == high else f'{low} to {high}'} {'%' if metric.is_log else 'points'}"


def change_of(metric: Metric, detectable: float) -> float:
    """Return the size of a detectable change as a share of the value, or as a difference of shares."""
    return abs(float(np.expm1(metric.fault * detectable))) if metric.is_log else detectable


def as_record(verdict: MetricVerdict) -> dict[str, object]:
    """Return what is said of a metric for JSON; tokens and seconds as they are, rates as shares."""
    metric = verdict.metric
    tonight, baseline = (
        float(np.exp(value)) if metric.is_log else value for value in (verdict.tonight, verdict.baseline)
    )
    return {
        "name": metric.name,
        "tonight": tonight,
        "baseline": baseline,
        "num_baseline_nights": verdict.num_baseline,
        "p_holm": None if verdict.needs_rerun else min(verdict.p),
        "detectable_change": change_of(metric, verdict.detectable),
        "is_suspicious": verdict.is_suspicious,
        "verdict": "FAIL" if verdict.is_fault else "WARN" if verdict.is_other else "PASS",
    }
