"""The verdict on a night.

Every metric of every cell is compared with the cell's earlier comparable nights by one rule (`statistics.night`): what
looks suspicious tonight is run again, and first run and re-run together decide; or the mean of the last three nights
does. Rates that hardly vary have gates, which need no re-run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Literal

from harness.cli import exit_codes
from harness.cli.messages import counted
from warehouse.nightly import metrics
from warehouse.nightly.cells import ACCURACY, SCORE, TIMES, Batch, CellNight, Past, changes, pooled
from warehouse.nightly.metrics import METRICS, PASS_AT_1, SPEED_UP, TOKEN_TIME, Metric, MetricVerdict
from warehouse.statistics.night import FEWEST, Spread

Verdict = Literal["PASS", "WARN", "FAIL", "INCONCLUSIVE"]
Said = tuple[Verdict, str]
EXIT_CODES: Mapping[Verdict, int] = {
    "PASS": exit_codes.DONE,
    "FAIL": exit_codes.TROUBLE,
    "WARN": exit_codes.WARN,
    "INCONCLUSIVE": exit_codes.INCONCLUSIVE,
}
"""Exit code 2 is reserved for invalid input."""
_SEVERITY: tuple[Verdict, ...] = ("FAIL", "INCONCLUSIVE", "WARN", "PASS")
REMEMBERED_DAYS = 7
"""A cell that ran within this many days and not tonight is reported as missing."""
GATES = {
    "samples without an answer that can be read": ("no_answer", "unparsable"),
    "samples that ended with an error": ("error",),
    "grader timeouts": ("grader_timeout",),
    "golds rejected": ("bad_gold",),
}
"""Rates that hardly vary, each with the verdicts that it counts: a rise shows a broken prompt or parser."""
SMALLEST_RISE = 0.01
NOISE_FACTOR = 5.0
"""Smallest rise that is a fault, in standard deviations of a count; chance reaches it once in millions of nights."""
GREEDY_TOKENS = 0.05
"""Tolerated relative change of the emitted tokens under greedy decoding, which should not change at all."""


@dataclass(frozen=True)
class CellVerdict:
    """The verdict on one cell in one night."""

    cell: str
    verdict: Verdict
    reasons: tuple[str, ...] = ()
    run_id: str | None = None
    num_baseline: int = 0
    """Number of nights that its pass@1 was compared with, or could be."""
    score: float | None = None
    """pass@1 tonight, re-runs included."""
    needs_rerun: bool = False
    is_usable: bool = True
    """Whether later nights may be compared with this one."""
    metrics: tuple[MetricVerdict, ...] = ()
    """pass@1 first; none where nothing was compared."""

    @property
    def accuracy(self) -> MetricVerdict | None:
        """What is said of pass@1."""
        return self.metrics[0] if self.metrics else None

    @property
    def is_judged(self) -> bool:
        """False where nothing can be said, and a re-run would not change that: such a cell decides no night."""
        return self.verdict != "INCONCLUSIVE" or self.needs_rerun


@dataclass(frozen=True)
class NightVerdict:
    """The verdict on one night."""

    night: date
    verdict: Verdict
    cells: Sequence[CellVerdict]
    spreads: Mapping[str, Spread] = field(default_factory=dict)
    """How much each metric wanders from night to night, over all cells."""

    @property
    def exit_code(self) -> int:
        """Exit code of the command that reports this verdict."""
        return EXIT_CODES[self.verdict]

    @property
    def to_confirm(self) -> list[CellVerdict]:
        """Suspicious cells that have not been run again."""
        return [cell for cell in self.cells if cell.needs_rerun]


class Ledger:
    """The nights judged so far, with which the next one is compared."""

    def __init__(self) -> None:
        self._past: dict[str, Past] = {}

    def judge(self, tonight: Sequence[CellNight]) -> NightVerdict:
        """Judge the night that follows. Cells that cannot be judged are INCONCLUSIVE, and the others decide."""
        pasts = {night.cell: self._past.get(night.cell, Past()) for night in tonight}
        unjudged = {night.cell: _unjudged(night, pasts[night.cell]) for night in tonight}
        found, spreads = metrics.judged([(n, pasts[n.cell]) for n in tonight if unjudged[n.cell] is None])
        cells = [unjudged[n.cell] or _judged(n, pasts[n.cell], found[n.cell]) for n in tonight]
        cells = _with_baselines(cells, tonight) + self._missing(tonight)
        deciding = [cell.verdict for cell in cells if cell.is_judged] or ["INCONCLUSIVE"]
        worst = min(deciding, key=_SEVERITY.index)
        return NightVerdict(max(night.night for night in tonight), worst, cells, spreads)

    def keep(self, tonight: Sequence[CellNight], verdict: NightVerdict) -> None:
        """Add a judged night to the history."""
        said = {cell.cell: cell for cell in verdict.cells}
        for night in tonight:
            cell = said[night.cell]
            # What was found, and what waits for a re-run, must not become usual.
            excluded = frozenset(m.metric.name for m in cell.metrics if m.needs_rerun or m.side)
            self._past.setdefault(night.cell, Past()).keep(night, excluded, is_usable=cell.is_usable)

    def _missing(self, tonight: Sequence[CellNight]) -> list[CellVerdict]:
        now = max(night.night for night in tonight)
        ran = {night.cell for night in tonight}
        last = {cell: past.last.night for cell, past in self._past.items() if past.last is not None and cell not in ran}
        return [
            CellVerdict(cell, "INCONCLUSIVE", (_did_not_run(now, night),))
            for cell, night in last.items()
            if (now - night).days <= REMEMBERED_DAYS
        ]


def replay(nights: Sequence[Sequence[CellNight]]) -> list[NightVerdict]:
    """Judge all nights, oldest first, and return their verdicts."""
    ledger, verdicts = Ledger(), []
    for tonight in nights:
        verdicts.append(ledger.judge(tonight))
        ledger.keep(tonight, verdicts[-1])
    return verdicts


def _unjudged(night: CellNight, past: Past) -> CellVerdict | None:
    """Return the verdict on a cell whose metrics cannot be compared with earlier nights; None where they can."""
    own = past.own(night)
    plain = CellVerdict(night.cell, "INCONCLUSIVE", (), night.first.run_id, len(own), night.first.score)
    inputs = [] if past.last is None else changes(past.last.inputs, night.inputs)
    if inputs:
        reasons = tuple(f"inputs changed: {phrase}; ignore this if it was intended" for phrase in inputs)
        return replace(plain, verdict="FAIL", reasons=reasons)
    if not night.is_complete:
        return replace(plain, reasons=(f"{night.first.missing}: {night.first.completion}",), is_usable=False)
    if past.reference(night, ACCURACY, SCORE) is not None:
        return None
    rates = tuple(_raised(night.first, pooled([earlier.together for earlier in own]))) if own else ()
    if rates:
        return replace(plain, verdict="FAIL", reasons=rates, is_usable=False)
    before = past.last.environment if past.last is not None else night.environment
    changed = (f"environment changed: {phrase}" for phrase in changes(before, night.environment))
    return replace(plain, reasons=(*changed, f"{len(own)} of {FEWEST} nights of baseline", *night.not_counted))


def _judged(night: CellNight, past: Past, found: Mapping[Metric, MetricVerdict]) -> CellVerdict:
    """Return the verdict on a cell that was compared with earlier nights."""
    accuracy = found[PASS_AT_1]
    usual = accuracy.reference.nights
    said: list[Said] = []
    if accuracy.reference.is_opening:
        compared = f"compared with {counted(len(usual), 'night')} before, until {usual[-1].night}"
        changed = changes(accuracy.reference.environment, night.environment)
        said += [("PASS", f"environment changed: {phrase}; {compared}") for phrase in changed]
    rates = _raised(night.first, pooled([earlier.together for earlier in usual]))
    said += [("FAIL", phrase + _accepting(accuracy)) for phrase in rates]
    said += [("WARN", phrase) for phrase in _other_tokens(night.first, usual)]
    for metric in found.values():
        said += about(metric)
    said += [("PASS", phrase) for phrase in night.not_counted]
    if any(metric.needs_rerun and metric.metric.of == TIMES for metric in found.values()):
        said += [("PASS", phrase) for phrase in night.untimed]
    said += [*_absent(night, past), *_unlike(night, past.last, found)]
    verdict: Verdict = min((kind for kind, _ in said), key=_SEVERITY.index, default="PASS")
    return CellVerdict(
        night.cell,
        verdict,
        tuple(phrase for _, phrase in said),
        night.first.run_id,
        accuracy.num_baseline,
        night.together.score,
        any(metric.needs_rerun for metric in found.values()),
        verdict != "FAIL",
        tuple(found.values()),
    )


def about(metric: MetricVerdict) -> list[Said]:
    """Return what is said of a metric."""
    if not (metric.side or metric.is_suspicious):
        return []
    is_opening = metric.reference.is_opening
    against = f"{metric} against {counted(metric.num_baseline, 'night')}" + " of the environment before" * is_opening
    if metric.needs_rerun:
        return [("INCONCLUSIVE", f"{against} is suspicious: run the cell again with another seed")]
    confirmed = "" if metric.look.is_by_window else ", confirmed by a re-run"
    if metric.is_fault:
        return [("FAIL", f"{against}{confirmed}{_accepting(metric)}")]
    if metric.is_other:
        too_good = ": too good; leaked answers or a lenient grader?" if metric.metric is PASS_AT_1 else ""
        return [("WARN", f"{against}{confirmed}{too_good}")]
    return [("PASS", f"{metric} with the re-run, which does not confirm the suspicion")]


def _accepting(metric: MetricVerdict) -> str:
    since = f"; if the change is intended, accept it: --since {metric.reference.opened} (a suite: since in [nightly])"
    return since if metric.reference.is_opening else ""


def _raised(tonight: Batch, usual: Batch) -> Iterator[str]:
    """Yield one phrase for each rate that rose by more than counting noise explains; usual: all earlier nights."""
    for what, verdicts in GATES.items():
        now = sum(tonight.verdicts.get(verdict, 0) for verdict in verdicts) / tonight.num_samples
        number = sum(usual.verdicts.get(verdict, 0) for verdict in verdicts)
        before = number / usual.num_samples
        smooth = (number + 0.5) / (usual.num_samples + 1)
        noise = (smooth * (1 - smooth) * (1 / tonight.num_samples + 1 / usual.num_samples)) ** 0.5
        if now - before > max(SMALLEST_RISE, NOISE_FACTOR * noise):
            yield f"{what}: {100 * before:.1f} % → {100 * now:.1f} %"


def _other_tokens(tonight: Batch, usual: Collection[CellNight]) -> Iterator[str]:
    """Yield a phrase where greedy decoding emits more or fewer tokens than before."""
    means = [earlier.first.emitted_tokens for earlier in usual if earlier.first.emitted_tokens]
    if tonight.emitted_tokens is not None and means:
        before = sum(means) / len(means)
        if abs(tonight.emitted_tokens - before) > GREEDY_TOKENS * before:
            yield f"greedy tokens per sample: {before:.1f} → {tonight.emitted_tokens:.1f}"


def _absent(night: CellNight, past: Past) -> Iterator[Said]:
    """Yield a phrase for each metric that tonight lacks and the nights before it under the same conditions have."""
    for metric in METRICS:
        if metric.name in night.values or metric.name not in past.names:
            continue
        reference = past.reference(night, metric.of, metric.name)
        if reference is None or reference.is_opening:
            continue
        why = f"look at run {night.first.run_id}"
        if metric is SPEED_UP and night.baseline is None:
            why = "the target alone has no complete run in this night that is comparable"
        before = counted(len(reference.nights), "night")
        yield "WARN", f"no {metric.name} tonight, which {before} before had under the same conditions: {why}"


def _unlike(night: CellNight, last: CellNight | None, found: Collection[Metric]) -> Iterator[Said]:
    """Yield what differs from last night and is no fault: conditions of times that are new, the date in prompts."""
    if last is None:
        return
    if TOKEN_TIME.name in night.first.measures and TOKEN_TIME not in found:
        for phrase in changes(last.times, night.times):
            yield "PASS", f"times are not compared yet, because of {phrase}"
    for phrase in changes(last.dates, night.dates):
        yield "PASS", phrase


def _did_not_run(now: date, last: date) -> str:
    said = (
        f"did not run; it last ran on {last}: python -m jobs nightly --suite FILE --date {now} launches what is missing"
    )
    if (now - last).days < REMEMBERED_DAYS:
        return said
    return (
        f"{said}; this is the last night that says so: after {REMEMBERED_DAYS} days without a run a cell is forgotten"
    )


def _with_baselines(cells: Sequence[CellVerdict], tonight: Sequence[CellNight]) -> list[CellVerdict]:
    """Return the verdicts, with a re-run asked for also of the cells that suspicious speed-ups refer to."""
    nights = {night.cell: night for night in tonight}
    wanted = {
        nights[cell.cell].baseline
        for cell in cells
        if any(metric.metric is SPEED_UP and metric.needs_rerun for metric in cell.metrics)
    }
    reason = "the speed-up of another cell is suspicious: run this one, its baseline, again too"
    return [
        replace(
            cell,
            needs_rerun=True,
            reasons=(*cell.reasons, reason),
            verdict=min((cell.verdict, "INCONCLUSIVE"), key=_SEVERITY.index),
        )
        if cell.cell in wanted and not cell.needs_rerun and len(nights[cell.cell].complete) < 2
        else cell
        for cell in cells
    ]
