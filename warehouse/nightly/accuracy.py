"""Is a cell's pass@1 tonight another one than before? Screened by the first run, confirmed together with a re-run.

Tonight is tested alone, and together with the two nights before it of its segment (a window), which finds what is too
small for one night. Both must point the same way, so that bad nights before a repair raise no alarm after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import special

from warehouse.nightly.cells import Batch, CellNight, pooled
from warehouse.nightly.past import SHORTEST_BASELINE, WINDOW, Reference
from warehouse.statistics.night_changes import NO_FACTOR, NightFactor
from warehouse.statistics.paired import stratified, stratified_z
from warehouse.statistics.planning import POWER

Side = Literal["drop", "rise"]
SIDES: tuple[Side, Side] = ("drop", "rise")
ALPHA: Mapping[Side, float] = {"drop": 0.0035, "rise": 0.0003}
"""Family-wise error rates of a night; missing a drop costs more."""
SCREEN = 0.05
"""Largest one-sided p-value, of a night or a window, at which a night is suspicious; of a night together with its
re-run, at which it stays so."""
DOUBT_WINDOW = 0.01
"""Largest p-value of a window, re-runs included, at which tonight stays suspicious, whatever it is by itself."""
AGREES = 0.1
"""Largest p-value of tonight, re-runs included, at which a window confirms a suspicion."""
_TESTS = 2
"""Tonight, and the window: the smaller p-value counts, doubled."""
_UNREMARKABLE = 1.5
"""Absolute z below which the normal approximation does: such a night is not suspicious by the exact test either."""


@dataclass(frozen=True)
class Tested:
    """A cell's night with its tests."""

    night: CellNight
    reference: Reference
    usual: Batch
    """The pooled baseline."""
    is_suspicious: bool
    """Whether the cell is to be run again."""
    is_doubtful: bool
    """Whether the night stays out of the baseline: it is suspicious in either direction, and no re-run refutes that."""
    p: Mapping[Side, float]
    """Of the first run and re-runs; 1 where the side is not suspicious or not run again."""
    factor: NightFactor
    """What all cells of a night have in common."""
    window: float | None = None
    """Change of pass@1 over the nights of the window together, where it decides rather than tonight by itself."""

    @property
    def num_baseline(self) -> int:
        """Number of nights of the baseline."""
        return len(self.reference.segment.members)

    def detectable_drop(self, num_tested: int) -> float | None:
        """Return the drop that is confirmed with 80 % chance tonight, if it is tested alone among this many cells.

        It uses the normal approximation; None where the noise of the baseline is unknown, as it also is where all of
        its nights have the same answers right: that shows no noise, and not that there is none.
        """
        if self.usual.noise is None:
            return None
        alpha = ALPHA["drop"] / _TESTS / num_tested
        error = np.sqrt(
            _run_variance(self.night.first, self.usual) * (1 / 2 + 1 / self.num_baseline)
            + self.factor.standard_deviation**2 * (1 + 1 / self.num_baseline)
        )
        return float((special.ndtri(POWER) - special.ndtri(alpha)) * error) if error > 0 else None


def against(night: CellNight, reference: Reference, factor: NightFactor) -> Tested:
    """Test a night against its reference, whose baseline is long enough."""
    usual = reference.segment.usual
    assert usual is not None
    num_baseline = len(reference.segment.members)
    alone = _Test(usual, num_baseline, 1, factor)
    window = _window(reference, usual, num_baseline, factor)
    earlier = list(reference.window)
    screened = alone.p(night.first)
    in_window = dict.fromkeys(SIDES, 1.0) if window is None else window.p(_with(earlier, night.first))
    suspicious = [side for side in SIDES if screened[side] <= SCREEN or in_window[side] <= SCREEN]
    doubtful = bool(suspicious)
    p: dict[Side, float] = dict.fromkeys(SIDES, 1.0)
    is_by_window = bool(suspicious) and min(screened.values()) > SCREEN
    if suspicious and night.is_confirmed:
        together = alone.p(night.together)
        in_window = in_window if window is None else window.p(_with(earlier, night.together))
        doubtful = any(together[side] <= SCREEN or in_window[side] <= DOUBT_WINDOW for side in suspicious)
        for side in suspicious:
            agrees = window is not None and together[side] <= AGREES
            both = min(together[side], in_window[side]) if agrees else together[side]
            p[side] = min(1.0, _TESTS * both)
        is_by_window = any(in_window[side] < together[side] for side in suspicious)
    change = window.change(_with(earlier, night.together)) if window is not None and is_by_window else None
    return Tested(night, reference, usual, bool(suspicious), doubtful, p, factor, change)


@dataclass(frozen=True)
class _Test:
    """The stratified test against a baseline, widened by the night factor."""

    usual: Batch
    num_baseline: int
    num_nights: int
    factor: NightFactor

    def p(self, batch: Batch) -> dict[Side, float]:
        """Return the one-sided p-values of a batch of this many nights."""
        sides = (batch.correct, batch.samples, self.usual.correct, self.usual.samples)
        z = stratified_z(*sides)
        p: dict[Side, float]
        if abs(z) < _UNREMARKABLE:
            p = {"drop": float(special.ndtr(z)), "rise": float(special.ndtr(-z))}
        else:
            test = stratified(*sides)
            p = {"drop": test.p_less, "rise": test.p_greater}
        return p if self.factor is NO_FACTOR or self.usual.noise is None else self._widened(p, batch)

    def change(self, batch: Batch) -> float:
        """Return by how much the score of a batch differs from the baseline's."""
        return batch.score - self.usual.score

    def _widened(self, p: Mapping[Side, float], batch: Batch) -> dict[Side, float]:
        """Return what p-values of sampling alone are with the night factor, by Satterthwaite's degrees of freedom."""
        assert self.usual.noise is not None
        sampling = _run_variance(batch, self.usual) + self.usual.noise**2
        common = self.factor.standard_deviation**2 * (1 / self.num_nights + 1 / self.num_baseline)
        shrink = (sampling / (sampling + common)) ** 0.5
        degrees = self.factor.degrees * ((sampling + common) / common) ** 2
        return {side: float(special.stdtr(degrees, shrink * special.ndtri(p[side]))) for side in SIDES}


def _run_variance(batch: Batch, usual: Batch) -> float:
    """Return the variance of a batch's score by sampling alone, from the baseline."""
    assert usual.noise is not None
    return usual.noise**2 * float(usual.samples.mean() / batch.samples.mean())


def _with(earlier: Sequence[CellNight], tonight: Batch) -> Batch:
    return pooled([*(night.together for night in earlier), tonight])


def _window(reference: Reference, usual: Batch, num_baseline: int, factor: NightFactor) -> _Test | None:
    """Return the test of the window against the baseline without its nights; None where there is not enough."""
    members = reference.segment.members
    inside = [members[n.night] for n in reference.window if n.night in members and not reference.is_opening]
    if not reference.window or num_baseline - len(inside) < SHORTEST_BASELINE:
        return None
    correct, samples = usual.correct, usual.samples
    for batch in inside:
        correct, samples = correct - batch.correct, samples - batch.samples
    rest = Batch(usual.run_id, correct, samples)
    return _Test(rest, num_baseline - len(inside), min(WINDOW, 1 + len(reference.window)), factor)
