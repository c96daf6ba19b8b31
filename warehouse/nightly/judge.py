"""The verdict on a night.

Every cell is screened against the earlier nights of its segment; only suspicious cells are run again, and first run and
re-run together are tested once more. Holm's correction covers all cells of the night, as if each had been run again:
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
"""2 is left to wrong input."""
_SEVERITY: tuple[Verdict, ...] = ("FAIL", "INCONCLUSIVE", "WARN", "PASS")
SHORTEST_BASELINE = 3
"""Nights."""
SCREEN = 0.05
"""One-sided p-value from which a cell is suspicious."""
ALPHA_DROP, ALPHA_RISE = 0.006, 0.001
"""Bounds on the chance of any false drop, and of any false improvement, in a night: a missed drop costs more."""
DRIFT_PENALTY = 16.0
"""In squared standard errors of a night; see `statistics.changes`."""
REMEMBERED_DAYS = 7
"""A cell that ran within so many days and not tonight is missed."""
Side = Literal["drop", "rise"]
_SIDES: tuple[Side, Side] = ("drop", "rise")


@dataclass(frozen=True)
class CellVerdict:
    """What is said of one cell tonight."""

    cell: str
    verdict: Verdict
    reasons: tuple[str, ...] = ()
    run_id: str | None = None
    num_baseline: int = 0
    """Nights it was compared with."""
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
        """As EXIT_CODES has it."""
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
    """The baseline as one."""
    is_suspicious: bool
    p: Mapping[Side, float]
    """By side: of first run and re-run together; 1 where that side is not suspicious or not run again."""


def judge(
    tonight: Sequence[CellNight],
    earlier: Mapping[str, Sequence[CellNight]],
    spoilt: frozenset[tuple[str, date]] = frozenset(),
) -> NightVerdict:
    """Judge one night.

    tonight: the cells that ran; earlier: by cell, its nights before, oldest first; spoilt: cells and nights that
    earlier verdicts keep out of baselines. A cell that should have run and did not is INCONCLUSIVE.
    """
    opening = {night.cell: _opening(night, earlier.get(night.cell, ()), spoilt) for night in tonight}
    tested = [found for found in opening.values() if isinstance(found, _Tested)]
    rejected: dict[Side, dict[str, float]] = {}
    for side in _SIDES:
        adjusted = holm([found.p[side] for found in tested])
        rejected[side] = {found.night.cell: p for found, p in zip(tested, adjusted, strict=True)}
    cells = [
        found if isinstance(found, CellVerdict) else _closing(found, rejected, len(tested), earlier[found.night.cell])
        for found in opening.values()
    ]
    cells += _missing(tonight, earlier)
    worst = min((_SEVERITY.index(cell.verdict) for cell in cells), default=_SEVERITY.index("INCONCLUSIVE"))
    return NightVerdict(max(night.night for night in tonight), _SEVERITY[worst], cells)


class Ledger:
    """Nights that were judged, each with the baselines that the verdicts before it left."""

    def __init__(self) -> None:
        self._earlier: dict[str, list[CellNight]] = {}
        self._spoilt: set[tuple[str, date]] = set()

    def judge(self, tonight: Sequence[CellNight]) -> NightVerdict:
        """The verdict on the night that follows."""
        return judge(tonight, self._earlier, frozenset(self._spoilt))

    def keep(self, tonight: Sequence[CellNight], verdict: NightVerdict) -> None:
        """Let a judged night be history."""
        self._spoilt |= {(cell.cell, verdict.night) for cell in verdict.cells if cell.spoils_baseline}
        for night in tonight:
            self._earlier.setdefault(night.cell, []).append(night)


def replay(nights: Sequence[Sequence[CellNight]]) -> list[NightVerdict]:
    """Judge every night in order."""
    ledger, found = Ledger(), []
    for tonight in nights:
        found.append(ledger.judge(tonight))
        ledger.keep(tonight, found[-1])
    return found


def _opening(
    night: CellNight, earlier: Sequence[CellNight], spoilt: frozenset[tuple[str, date]]
) -> CellVerdict | _Tested:
    """Everything that is decided before the other cells of the night are known."""
    inputs = changed_inputs(night, earlier[-1] if earlier else None)
    known = segment(night, earlier)
    baseline = [n.first for n in known if n.is_whole and (n.cell, n.night) not in spoilt]
    plain = CellVerdict(night.cell, "INCONCLUSIVE", (), night.first.run_id, len(baseline), night.first.score)
    if inputs:
        said = tuple(f"inputs changed: {phrase}; if that was meant, nothing is to do" for phrase in inputs)
        return replace(plain, verdict="FAIL", reasons=said)
    if not night.is_whole:
        missing = f"{night.first.num_missing} of {night.first.num_samples} samples are not run or not graded"
        return replace(plain, reasons=(missing,), spoils_baseline=True)
    if len(baseline) < SHORTEST_BASELINE:
        last = earlier[-len(known) - 1].environment if len(known) < len(earlier) else night.environment
        changed = changes(last, night.environment)
        said = tuple(f"environment changed: {phrase}" for phrase in changed)
        return replace(plain, reasons=(*said, f"{len(baseline)} of {SHORTEST_BASELINE} nights of baseline"))
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
    found = stratified(batch.correct, batch.samples, usual.correct, usual.samples)
    return {"drop": found.p_less, "rise": found.p_greater}


def _closing(
    tested: _Tested, adjusted: Mapping[Side, Mapping[str, float]], num_tested: int, earlier: Sequence[CellNight]
) -> CellVerdict:
    night, usual = tested.night, tested.usual
    drop, rise = (adjusted[side][night.cell] for side in _SIDES)
    difference = night.together.score - usual.score
    said: list[tuple[Verdict, str]] = [("FAIL", phrase) for phrase in raised(night.first, usual)]
    tokens = token_change(night.first, tested.baseline)
    said += [("WARN", tokens)] if tokens else []
    is_drop = drop <= ALPHA_DROP
    if is_drop:
        said.append(("FAIL", f"{_points(difference)} against {len(tested.baseline)} nights, confirmed by a re-run"))
    is_rise = rise <= ALPHA_RISE
    if is_rise:
        said.append(("WARN", f"{_points(difference)}: too good; leaked answers or a lenient grader?"))
    needs_rerun = tested.is_suspicious and not night.is_confirmed
    if needs_rerun:
        said.append(("INCONCLUSIVE", f"{_points(difference)} is suspicious: run the cell again with another seed"))
    if not is_drop:
        said += [("WARN", phrase) for phrase in _drift(night, earlier)]
    verdict: Verdict = min((verdict for verdict, _ in said), key=_SEVERITY.index, default="PASS")
    return CellVerdict(
        night.cell,
        verdict,
        tuple(phrase for _, phrase in said),
        night.first.run_id,
        len(tested.baseline),
        night.together.score,
        usual.score,
        None if needs_rerun else min(drop, rise),
        _detectable_drop(night.first, usual, len(tested.baseline), num_tested),
        needs_rerun,
        spoils_baseline=verdict == "FAIL" or is_rise,
    )


def _drift(night: CellNight, earlier: Sequence[CellNight]) -> list[str]:
    """A phrase where the segment has more than one level."""
    known = [n for n in (*segment(night, earlier), night) if n.is_whole]
    scores = np.array([n.first.score for n in known])
    starts = change_points(scores, np.array(night_noise(known)), DRIFT_PENALTY)
    if not starts:
        return []
    start, before = starts[-1], ([0, *starts])[-2]
    change = float(scores[start:].mean() - scores[before:start].mean())
    return [f"drift: {_points(change)} since {known[start].night}, seen over {len(known)} nights"]


def _detectable_drop(first: Batch, usual: Batch, num_baseline: int, num_tested: int) -> float | None:
    """By the normal approximation of the confirming test, at the level of the smallest p-value under Holm."""
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
        CellVerdict(cell, "INCONCLUSIVE", (f"did not run; it last did on {night}",))
        for cell, night in last.items()
        if (now - night).days <= REMEMBERED_DAYS
    ]


def _points(difference: float) -> str:
    return f"{100 * difference:+.1f} points".replace("-", "−")
