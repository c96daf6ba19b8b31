"""Why a cell has its verdict, in words that say what to do."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Literal

from harness.plural import counted
from warehouse.nightly.accuracy import Tested
from warehouse.nightly.cells import CellNight, changes
from warehouse.nightly.gates import token_change
from warehouse.nightly.metrics import METRICS, SPEED_UP, TOKEN_TIME, MetricVerdict
from warehouse.nightly.past import Past

Verdict = Literal["PASS", "WARN", "FAIL", "INCONCLUSIVE"]
_REFUTED = "the re-run refutes the suspicion"
_UNSURE = "suspicious, and the re-run neither confirms nor refutes it: the night stays out of the baseline"


def about_accuracy(
    tested: Tested, rates: Sequence[str], *, is_drop: bool, is_rise: bool, needs_rerun: bool
) -> list[tuple[Verdict, str]]:
    """Return what is said of pass@1 and of the rates that have gates, `rates` being those that rose."""
    night, members = tested.night, tested.reference.segment.members
    difference = points(night.together.score - tested.usual.score)
    if tested.window is not None:
        difference += f" tonight, {points(tested.window)} over {1 + len(tested.reference.window)} nights together"
    reasons: list[tuple[Verdict, str]] = []
    against = f"{tested.num_baseline} nights"
    accepting = ""
    if tested.reference.is_opening:
        changed = changes(tested.reference.segment.environment, night.environment)
        against += f" before, until {max(members)}"
        accepting = _accepting(tested.reference.opened)
        reasons += [("PASS", f"environment changed: {phrase}; compared with {against}") for phrase in changed]
    reasons += [("FAIL", phrase + accepting) for phrase in rates]
    tokens = token_change(night.first, members.values())
    reasons += [("WARN", tokens)] if tokens else []
    if is_drop:
        reasons.append(("FAIL", f"{difference} against {against}, confirmed by a re-run{accepting}"))
    if is_rise:
        reasons.append(("WARN", f"{difference}: too good; leaked answers or a lenient grader?"))
    if needs_rerun:
        reasons.append(("INCONCLUSIVE", f"{difference} is suspicious: run the cell again with another seed"))
    elif tested.is_suspicious and not is_drop and not is_rise:
        reasons.append(("PASS", f"{difference} with the re-run: {_UNSURE if tested.is_doubtful else _REFUTED}"))
    return reasons


def about_metric(metric: MetricVerdict) -> list[tuple[Verdict, str]]:
    """Return what is said of a metric."""
    against = f"{metric.num_baseline} nights" + " of the environment before" * metric.is_opening
    accepting = _accepting(metric.opened) if metric.is_opening else ""
    if metric.needs_rerun:
        return [("INCONCLUSIVE", f"{metric} against {against} is suspicious: run the cell again with another seed")]
    if metric.is_fault:
        return [("FAIL", f"{metric} against {against}, confirmed by a re-run{accepting}")]
    if metric.is_other:
        return [("WARN", f"{metric} against {against}, confirmed by a re-run{accepting}")]
    if metric.is_suspicious:
        return [("PASS", f"{metric} with the re-run: {_UNSURE if metric.is_doubtful else _REFUTED}")]
    return []


def absent(night: CellNight, past: Past) -> list[tuple[Verdict, str]]:
    """Return a phrase for each metric that tonight lacks and the nights before it under the same conditions have."""
    reasons: list[tuple[Verdict, str]] = []
    for metric in METRICS:
        reference = past.reference(night, metric.of, metric.name)
        if metric.name in night.first.measures or reference is None or reference.is_opening:
            continue
        before = counted(reference.segment.levels[metric.name].num, "night")
        why = f"look at run {night.first.run_id}"
        if metric is SPEED_UP and night.baseline is None:
            why = "the target alone has no complete run in this night that is comparable"
        reasons.append(
            ("WARN", f"no {metric.name} tonight, which {before} before had under the same conditions: {why}")
        )
    return reasons


def untimed(night: CellNight, last: CellNight | None, measured: Sequence[MetricVerdict]) -> list[tuple[Verdict, str]]:
    """Return a phrase where times have other conditions than last night's and nothing to be compared with."""
    if last is None or TOKEN_TIME.name not in night.first.measures:
        return []
    if any(verdict.metric is TOKEN_TIME for verdict in measured):
        return []
    return [("PASS", f"times are not compared yet, because of {phrase}") for phrase in changes(last.times, night.times)]


def dated(night: CellNight, last: CellNight | None) -> list[tuple[Verdict, str]]:
    """Return a phrase where the prompts hold another date than last night's."""
    return [] if last is None else [("PASS", phrase) for phrase in changes(last.dates, night.dates)]


def _accepting(opened: date) -> str:
    return f"; if the change is intended, accept it: --since {opened} (a suite: since in [nightly])"


def points(difference: float) -> str:
    """Return a difference of shares in words."""
    return f"{100 * difference:+.1f} points".replace("-", "−")
