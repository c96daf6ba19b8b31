"""The verdict on a night.

Every cell is screened against the earlier nights of its segment; only suspicious cells are run again, and first run and
re-run together are tested again. Holm's correction covers all cells of the night, as if each had been run again:
what is not suspicious cannot be rejected, so the chance of any false alarm in a night stays below the level whatever
the screen. The test is the one stratified within problems, conditional on tonight and baseline, so that the baseline's
own error is in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Literal

import numpy as np
from scipy import special

from warehouse.nightly.cells import Batch, CellNight, changes, night_noise, pooled, segment
from warehouse.nightly.gates import changed_inputs, raised, token_change
from warehouse.statistics.changes import change_points
from warehouse.statistics.multiple import holm
from warehouse.statistics.paired import stratified
from warehouse.statistics.power import POWER

Verdict = Literal["PASS", "WARN", "FAIL", "INCONCLUSIVE"]
EXIT_CODES: Mapping[Verdict, int] = {"PASS": 0, "FAIL": 1, "WARN": 3, "INCONCLUSIVE": 4}
"""Exit code 2 is reserved for invalid input."""
_SEVERITY: tuple[Verdict, ...] = ("FAIL", "INCONCLUSIVE", "WARN", "PASS")
SHORTEST_BASELINE = 3
"""Number of baseline nights below which a cell is INCONCLUSIVE."""
SCREEN = 0.05
"""Largest one-sided p-value that makes a cell suspicious."""
ALPHA_DROP, ALPHA_RISE = 0.006, 0.001
"""Family-wise error rates of a night for drops and for improvements; missing a drop costs more."""
DRIFT_PENALTY = 16.0
"""Penalty per change point, in squared standard errors of a night; see `statistics.changes`."""
REMEMBERED_DAYS = 7
"""A cell that ran within this many days and not tonight is reported as missing."""
Side = Literal["drop", "rise"]
_SIDES: tuple[Side, Side] = ("drop", "rise")


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


@dataclass(frozen=True)
class NightVerdict:
    """The verdict on one night."""

    night: date
    verdict: Verdict
    cells: Sequence[CellVerdict]

    @property
    def exit_code(self) -> int:
        """Exit code of the command that reports this verdict."""
        return EXIT_CODES[self.verdict]

    @property
    def to_confirm(self) -> list[CellVerdict]:
        """Suspicious cells that have not been run again."""
        return [cell for cell in self.cells if cell.needs_rerun]


@dataclass(frozen=True)
class _Tested:
    night: CellNight
    baseline: list[Batch]
    usual: Batch
    """The pooled baseline."""
    is_suspicious: bool
    p: Mapping[Side, float]
    """p-value by side, of the first run and re-runs together; 1 where the side is not suspicious or not run again."""


def judge(
    tonight: Sequence[CellNight],
    earlier: Mapping[str, Sequence[CellNight]],
    spoilt: frozenset[tuple[str, date]] = frozenset(),
    *,
    seeks_drift: bool = True,
) -> NightVerdict:
    """Judge one night.

    tonight: the cells that ran; earlier: by cell, its nights before, oldest first; spoilt: cells and nights that
    earlier verdicts keep out of baselines. A cell that should have run and did not is INCONCLUSIVE. seeks_drift:
    whether to look for drift, which takes long after years and spoils no baseline.
    """
    opening = {night.cell: _opening(night, earlier.get(night.cell, ()), spoilt) for night in tonight}
    tested = [result for result in opening.values() if isinstance(result, _Tested)]
    rejected: dict[Side, dict[str, float]] = {}
    for side in _SIDES:
        adjusted = holm([test.p[side] for test in tested])
        rejected[side] = {test.night.cell: p for test, p in zip(tested, adjusted, strict=True)}
    cells = [
        result
        if isinstance(result, CellVerdict)
        else _closing(result, rejected, len(tested), _levels(result.night, earlier, spoilt) if seeks_drift else ())
        for result in opening.values()
    ]
    cells += _missing(tonight, earlier)
    worst = min((_SEVERITY.index(cell.verdict) for cell in cells), default=_SEVERITY.index("INCONCLUSIVE"))
    return NightVerdict(max(night.night for night in tonight), _SEVERITY[worst], cells)


class Ledger:
    """The nights judged so far, which are the baseline of the next one."""

    def __init__(self) -> None:
        self._earlier: dict[str, list[CellNight]] = {}
        self._spoilt: set[tuple[str, date]] = set()

    def judge(self, tonight: Sequence[CellNight], *, seeks_drift: bool = True) -> NightVerdict:
        """Judge the night that follows; `seeks_drift` as in `judge`."""
        return judge(tonight, self._earlier, frozenset(self._spoilt), seeks_drift=seeks_drift)

    def keep(self, tonight: Sequence[CellNight], verdict: NightVerdict) -> None:
        """Add a judged night to the history."""
        self._spoilt |= {(cell.cell, verdict.night) for cell in verdict.cells if cell.spoils_baseline}
        for night in tonight:
            self._earlier.setdefault(night.cell, []).append(night)


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


def _opening(
    night: CellNight, earlier: Sequence[CellNight], spoilt: frozenset[tuple[str, date]]
) -> CellVerdict | _Tested:
    """Decide what can be decided without the other cells of the night: a verdict, or else a test."""
    inputs = changed_inputs(night, earlier[-1] if earlier else None)
    comparable = segment(night, earlier)
    baseline = [n.first for n in comparable if n.is_complete and (n.cell, n.night) not in spoilt]
    plain = CellVerdict(night.cell, "INCONCLUSIVE", (), night.first.run_id, len(baseline), night.first.score)
    if inputs:
        reasons = tuple(f"inputs changed: {phrase}; ignore this if it was intended" for phrase in inputs)
        return replace(plain, verdict="FAIL", reasons=reasons)
    if not night.is_complete:
        missing = f"{night.first.num_missing} of {night.first.num_samples} samples are not run or not graded"
        return replace(plain, reasons=(missing,), spoils_baseline=True)
    if len(baseline) < SHORTEST_BASELINE:
        last = earlier[-len(comparable) - 1].environment if len(comparable) < len(earlier) else night.environment
        changed = changes(last, night.environment)
        reasons = tuple(f"environment changed: {phrase}" for phrase in changed)
        return replace(plain, reasons=(*reasons, f"{len(baseline)} of {SHORTEST_BASELINE} nights of baseline"))
    return _test(night, baseline)


def _test(night: CellNight, baseline: list[Batch]) -> _Tested:
    usual = pooled(baseline)
    screened = _p_values(night.first, usual)
    suspicious = [side for side in _SIDES if screened[side] <= SCREEN]
    confirmed: dict[Side, float] = dict.fromkeys(_SIDES, 1.0)
    if suspicious and night.is_confirmed:
        together = _p_values(night.together, usual)
        confirmed |= {side: together[side] for side in suspicious}
    return _Tested(night, baseline, usual, bool(suspicious), confirmed)


def _p_values(batch: Batch, usual: Batch) -> dict[Side, float]:
    test = stratified(batch.correct, batch.samples, usual.correct, usual.samples)
    return {"drop": test.p_less, "rise": test.p_greater}


def _closing(
    tested: _Tested, adjusted: Mapping[Side, Mapping[str, float]], num_tested: int, levels: Sequence[CellNight]
) -> CellVerdict:
    night, usual = tested.night, tested.usual
    drop, rise = (adjusted[side][night.cell] for side in _SIDES)
    difference = night.together.score - usual.score
    reasons: list[tuple[Verdict, str]] = [("FAIL", phrase) for phrase in raised(night.first, usual)]
    tokens = token_change(night.first, tested.baseline)
    reasons += [("WARN", tokens)] if tokens else []
    is_drop = drop <= ALPHA_DROP
    if is_drop:
        reasons.append(("FAIL", f"{_points(difference)} against {len(tested.baseline)} nights, confirmed by a re-run"))
    is_rise = rise <= ALPHA_RISE
    if is_rise:
        reasons.append(("WARN", f"{_points(difference)}: too good; leaked answers or a lenient grader?"))
    needs_rerun = tested.is_suspicious and not night.is_confirmed
    if needs_rerun:
        reasons.append(("INCONCLUSIVE", f"{_points(difference)} is suspicious: run the cell again with another seed"))
    if not is_drop:
        reasons += [("WARN", phrase) for phrase in _drift(levels)]
    verdict: Verdict = min((verdict for verdict, _ in reasons), key=_SEVERITY.index, default="PASS")
    return CellVerdict(
        night.cell,
        verdict,
        tuple(phrase for _, phrase in reasons),
        night.first.run_id,
        len(tested.baseline),
        night.together.score,
        usual.score,
        None if needs_rerun else min(drop, rise),
        _detectable_drop(night.first, usual, len(tested.baseline), num_tested),
        needs_rerun,
        spoils_baseline=verdict == "FAIL" or is_rise,
    )


def _levels(
    night: CellNight, earlier: Mapping[str, Sequence[CellNight]], spoilt: frozenset[tuple[str, date]]
) -> list[CellNight]:
    """Return the nights of a segment that drift is sought in: the baseline and tonight.

    A night that failed was an alarm of its own; left in, it would be a level that each later night is warned of.
    """
    before = [n for n in segment(night, earlier.get(night.cell, ())) if (n.cell, n.night) not in spoilt]
    return [n for n in (*before, night) if n.is_complete]


def _drift(complete: Sequence[CellNight]) -> list[str]:
    """Return a phrase where the scores of these nights have more than one level."""
    scores = np.array([n.first.score for n in complete])
    starts = change_points(scores, np.array(night_noise(complete)), DRIFT_PENALTY)
    if not starts:
        return []
    start, before = starts[-1], ([0, *starts])[-2]
    change = float(scores[start:].mean() - scores[before:start].mean())
    return [f"drift: {_points(change)} since {complete[start].night}, over {len(complete)} nights"]


def _detectable_drop(first: Batch, usual: Batch, num_baseline: int, num_tested: int) -> float | None:
    """Return the minimum detectable drop of the confirming test, at the level of the smallest p-value under Holm.

    It uses the normal approximation; None where the baseline's noise is unknown.
    """
    if usual.noise is None:
        return None
    share = usual.samples.mean() / first.samples.mean()
    error = usual.noise * float(np.sqrt(share * (1 / 2 + 1 / num_baseline)))
    return float(special.ndtri(POWER) - special.ndtri(ALPHA_DROP / num_tested)) * error


def _missing(tonight: Sequence[CellNight], earlier: Mapping[str, Sequence[CellNight]]) -> list[CellVerdict]:
    now = max(night.night for night in tonight)
    ran = {night.cell for night in tonight}
    last = {cell: nights[-1].night for cell, nights in earlier.items() if nights and cell not in ran}
    return [
        CellVerdict(cell, "INCONCLUSIVE", (f"did not run; it last ran on {night}",))
        for cell, night in last.items()
        if (now - night).days <= REMEMBERED_DAYS
    ]


def _points(difference: float) -> str:
    return f"{100 * difference:+.1f} points".replace("-", "−")
