"""The verdict on a night.

Every cell is screened against the earlier nights of its segment; only suspicious cells are run again, and first run and
re-run together are tested again. Holm's correction covers all cells of the night, as if each had been run again:
what is not suspicious cannot be rejected, so the chance of any false alarm in a night stays below the level whatever
the screen. Accuracy has a test stratified within problems (warehouse.nightly.accuracy), everything else one over nights
(warehouse.nightly.metrics).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date

from harness.cli import exit_codes
from warehouse.nightly import accuracy, metrics
from warehouse.nightly.accuracy import SIDES, Side, Tested
from warehouse.nightly.cells import CellNight, changes
from warehouse.nightly.gates import NEWEST, changed_inputs, drift, raised
from warehouse.nightly.metrics import SPEED_UP, TRUNCATED, MetricVerdict
from warehouse.nightly.night_effects import NightEffects
from warehouse.nightly.past import ACCURACY, SHORTEST_BASELINE, TIMES, Past, Segment
from warehouse.nightly.reasons import Verdict, about_accuracy, about_metric, absent, dated, points, untimed
from warehouse.statistics.night_changes import NO_FACTOR, NightFactor
from warehouse.statistics.paired import holm

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


@dataclass(frozen=True)
class CellVerdict:
    """The verdict on one cell in one night."""

    cell: str
    verdict: Verdict
    reasons: tuple[str, ...] = ()
    run_id: str | None = None
    num_baseline: int = 0
    """Number of nights that it was compared with."""
    score: float | None = None
    """pass@1 tonight, re-runs included."""
    baseline_score: float | None = None
    p_holm: float | None = None
    """One-sided, the smaller side's; None where nothing was tested."""
    detectable_drop: float | None = None
    """Drop that tonight's design confirms with 80 % chance."""
    needs_rerun: bool = False
    spoils_baseline: bool = False
    """Whether later nights must not be measured by this one."""
    metrics: tuple[MetricVerdict, ...] = ()
    doubtful: frozenset[str] = frozenset()
    """The quantities whose baseline the night does not enter: they looked suspicious, confirmed or not."""


@dataclass(frozen=True)
class NightVerdict:
    """The verdict on one night."""

    night: date
    verdict: Verdict
    cells: Sequence[CellVerdict]
    factors: Mapping[str, NightFactor] = field(default_factory=dict)
    """What all cells of a night have in common, by quantity; only where there is such a thing."""

    @property
    def exit_code(self) -> int:
        """Exit code of the command that reports this verdict."""
        return EXIT_CODES[self.verdict]

    @property
    def to_confirm(self) -> list[CellVerdict]:
        """Suspicious cells that have not been run again."""
        return [cell for cell in self.cells if cell.needs_rerun]


class Ledger:
    """The nights judged so far, which are the baseline of the next one."""

    def __init__(self) -> None:
        self._past: dict[str, Past] = {}
        self._effects = NightEffects()

    def judge(self, tonight: Sequence[CellNight], *, seeks_drift: bool = True) -> NightVerdict:
        """Judge the night that follows. A cell that should have run and did not is INCONCLUSIVE.

        seeks_drift: whether to look for drift, which takes long after years and spoils no baseline.
        """
        factors = self._effects.factors()
        pasts = {night.cell: self._past.get(night.cell, Past()) for night in tonight}
        opening = {night.cell: _opening(night, pasts[night.cell], factors) for night in tonight}
        tested = [result for result in opening.values() if isinstance(result, Tested)]
        p: dict[str, dict[Side, float]] = {test.night.cell: {} for test in tested}
        for side in SIDES:
            adjusted = holm([test.p[side] for test in tested])
            for test, value in zip(tested, adjusted, strict=True):
                p[test.night.cell][side] = value
        measured = metrics.judged([(test.night, pasts[test.night.cell]) for test in tested], factors)
        cells = []
        for cell, result in opening.items():
            if isinstance(result, CellVerdict):
                cells.append(result)
            else:
                own = pasts[cell].own(result.night)
                drifted = _drift(result, own, factors) if seeks_drift and own is not None else []
                of_cell = measured.get(cell, [])
                last = pasts[cell].last
                further = [*absent(result.night, pasts[cell]), *untimed(result.night, last, of_cell)]
                further += dated(result.night, last)
                cells.append(_closing(result, p[cell], len(tested), of_cell, [*further, *drifted]))
        cells = _with_baselines(cells, tonight) + self._missing(tonight)
        worst = min((_SEVERITY.index(cell.verdict) for cell in cells), default=_SEVERITY.index("INCONCLUSIVE"))
        return NightVerdict(max(night.night for night in tonight), _SEVERITY[worst], cells, factors)

    def keep(self, tonight: Sequence[CellNight], verdict: NightVerdict) -> None:
        """Add a judged night to the history."""
        said = {cell.cell: cell for cell in verdict.cells}
        pairs = []
        for night in tonight:
            past, cell = self._past.setdefault(night.cell, Past()), said[night.cell]
            before = past.last
            if before is not None and before.is_complete and night.is_complete and _is_alike(before, night):
                pairs.append((before, night))
            past.keep(night, cell.doubtful, is_baseline=not cell.spoils_baseline)
        self._effects.keep(pairs)

    def _missing(self, tonight: Sequence[CellNight]) -> list[CellVerdict]:
        now = max(night.night for night in tonight)
        ran = {night.cell for night in tonight}
        last = {cell: past.last.night for cell, past in self._past.items() if past.last is not None and cell not in ran}
        return [
            CellVerdict(cell, "INCONCLUSIVE", (_did_not_run(now, night),))
            for cell, night in last.items()
            if (now - night).days <= REMEMBERED_DAYS
        ]


def _did_not_run(now: date, last: date) -> str:
    said = (
        f"did not run; it last ran on {last}: python -m jobs nightly --suite FILE --date {now} launches what is missing"
    )
    if (now - last).days < REMEMBERED_DAYS:
        return said
    return (
        f"{said}; this is the last night that says so: after {REMEMBERED_DAYS} days without a run a cell is forgotten"
    )


def replay(nights: Sequence[Sequence[CellNight]]) -> list[NightVerdict]:
    """Judge all nights, oldest first, and return their verdicts."""
    ledger, verdicts = Ledger(), []
    for tonight in nights:
        verdicts.append(ledger.judge(tonight))
        ledger.keep(tonight, verdicts[-1])
    return verdicts


def judge_last(nights: Sequence[Sequence[CellNight]]) -> NightVerdict:
    """Judge the last of these nights, oldest first, as `replay` does, without what only the others' verdicts need."""
    ledger = Ledger()
    for tonight in nights[:-1]:
        ledger.keep(tonight, ledger.judge(tonight, seeks_drift=False))
    return ledger.judge(nights[-1])


def _is_alike(one: CellNight, other: CellNight) -> bool:
    """Return whether two nights of a cell had the same conditions; those that were read share them."""
    return all(
        first is second or first == second
        for first, second in (
            (one.environment, other.environment),
            (one.inputs, other.inputs),
            (one.times, other.times),
        )
    )


def _opening(night: CellNight, past: Past, factors: Mapping[str, NightFactor]) -> CellVerdict | Tested:
    """Decide what can be decided without the other cells of the night: a verdict, or else a test."""
    own = past.own(night)
    num_own = len(own.members) if own is not None else 0
    plain = CellVerdict(night.cell, "INCONCLUSIVE", (), night.first.run_id, num_own, night.first.score)
    inputs = changed_inputs(night, past.last)
    if inputs:
        reasons = tuple(f"inputs changed: {phrase}; ignore this if it was intended" for phrase in inputs)
        return replace(plain, verdict="FAIL", reasons=reasons)
    if not night.is_complete:
        missing = f"{night.first.missing}: {night.first.completion}"
        return replace(plain, reasons=(missing,), spoils_baseline=True)
    reference = past.reference(night, ACCURACY, ACCURACY)
    if reference is None:
        before = past.last.environment if past.last is not None else night.environment
        changed = tuple(f"environment changed: {phrase}" for phrase in changes(before, night.environment))
        of_baseline = f"{num_own} of {SHORTEST_BASELINE} nights of baseline"
        return replace(plain, reasons=(*changed, of_baseline, *night.not_counted))
    return accuracy.against(night, reference, factors.get(ACCURACY, NO_FACTOR))


def _closing(
    tested: Tested,
    adjusted: Mapping[Side, float],
    num_tested: int,
    measured: Sequence[MetricVerdict],
    further: Sequence[tuple[Verdict, str]],
) -> CellVerdict:
    night, usual = tested.night, tested.usual
    drop, rise = (adjusted[side] for side in SIDES)
    is_drop, is_rise = drop <= accuracy.ALPHA["drop"], rise <= accuracy.ALPHA["rise"]
    needs_rerun = tested.is_suspicious and not night.is_confirmed
    rates = list(raised(night.first, usual))
    if any(phrase.startswith(TRUNCATED.name) for phrase in rates):  # the gate has said so, and needs no re-run
        measured = [metric for metric in measured if metric.metric is not TRUNCATED]
    reasons = about_accuracy(tested, rates, is_drop=is_drop, is_rise=is_rise, needs_rerun=needs_rerun)
    for metric in measured:
        reasons += about_metric(metric)
    reasons += [("PASS", phrase) for phrase in night.not_counted]
    if any(metric.needs_rerun and metric.metric.of == TIMES for metric in measured):
        reasons += [("PASS", phrase) for phrase in night.untimed]
    reasons += [(kind, phrase) for kind, phrase in further if not (is_drop and kind == "WARN")]
    verdict: Verdict = min((verdict for verdict, _ in reasons), key=_SEVERITY.index, default="PASS")
    doubtful = {metric.metric.name for metric in measured if metric.is_doubtful}
    return CellVerdict(
        night.cell,
        verdict,
        tuple(phrase for _, phrase in reasons),
        night.first.run_id,
        tested.num_baseline,
        night.together.score,
        usual.score,
        None if needs_rerun else min(drop, rise),
        tested.detectable_drop(num_tested),
        needs_rerun or any(metric.needs_rerun for metric in measured),
        spoils_baseline=verdict == "FAIL" or is_rise,
        metrics=tuple(measured),
        doubtful=frozenset(doubtful | ({ACCURACY} if tested.is_doubtful else set())),
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
        if cell.cell in wanted and not cell.needs_rerun and not nights[cell.cell].is_confirmed
        else cell
        for cell in cells
    ]


def _drift(tested: Tested, own: Segment, factors: Mapping[str, NightFactor]) -> list[tuple[Verdict, str]]:
    """Return a phrase where the scores of the segment, without nights that failed, have more than one level."""
    first = tested.night.first
    found = drift(
        [*own.scores, first.score], [*own.noises, first.noise], factors.get(ACCURACY, NO_FACTOR).standard_deviation
    )
    if found is None:
        return []
    change, start = found
    since = own.nights[start].night
    return [("WARN", f"drift: {points(change)} since {since}, over {min(NEWEST, len(own.nights) + 1)} nights")]
