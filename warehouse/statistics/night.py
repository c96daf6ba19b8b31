"""Detect changes of a measure between nights, given sampling noise and night-to-night variation.

A cell is a setting that runs every night. Its value is a level plus a night effect plus sampling noise (of variance 0
if unknown). The night effect is a stationary AR(1) process over days. Its variance and autocorrelation are pooled over
the cells of a measure and fitted to the variogram (half the mean squared difference between nights h days apart), which
does not require the level. Tonight's value is compared with its best linear prediction from the cell's earlier nights.

Sources: Cressie, Fitting Variogram Models by Weighted Least Squares (Math. Geology 17, 1985); Cressie, Statistics for
Spatial Data (1993), section 3.2, for the prediction (ordinary kriging).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import special

from warehouse.statistics.intervals import Counts, Floats
from warehouse.statistics.planning import POWER

FEWEST, MOST = 7, 14
"""Minimum and maximum number of earlier nights to use. The newest are used."""
WINDOW = 3
"""Number of nights in the window test, including tonight."""
SCREEN = 2.5
"""The cell is rerun if tonight's first run differs by at least this many standard errors."""
AGREES = 1.0
"""Standard errors by which tonight must also differ, in the same direction, for a difference of the window to count.
Otherwise the fault is assumed to be repaired.
"""
_AUTOCORRELATIONS = np.linspace(0.0, 0.95, 20)
_DEVIATIONS = np.r_[0.0, np.geomspace(0.2, 2.5, 50)]
"""Candidate standard deviations of the night effect, relative to the root mean squared difference."""
_TINY = 1e-9
_ABSENT = 1e9
"""Variance assigned to a missing night, as a multiple of the variance of tonight's value."""
_LEAST = 1e-3
"""If the night effect's share of a variance is below this, the variance is treated as known."""
_FORGOTTEN = 365
"""Maximum age in days of nights treated as correlated."""


KNOWN, ESTIMATED = (3.5, 4.0), (4.0, 4.5)
"""Thresholds in standard errors: for tonight with its rerun, and for the window mean. KNOWN: sampling variances are
known. ESTIMATED: they are not, so all variance is between nights and assumed to be equal in all cells.
"""


class Value(NamedTuple):
    """A measure's value on one night, averaged over that night's runs."""

    day: int
    value: float
    variance: float = 0.0
    """Sampling variance of the value."""


@dataclass(frozen=True, slots=True)
class Series:
    """One measure of one cell: tonight's values and the nights to compare with."""

    earlier: Sequence[Value]
    """Comparable nights, oldest first. Only the last MOST are used."""
    first: Value
    """Tonight's first run."""
    together: Value
    """Mean of tonight's first run and its reruns."""
    window: Sequence[Value] = ()
    """Nights averaged with tonight in the window test. They may also be in `earlier`."""
    unit: float = 1.0
    """Scale of the cell's night effects; `Spread.deviation` is relative to it."""
    measure: str = ""
    """Measure name. All cells of a measure share the same relative night effects."""
    floor: float = 0.0
    """Minimum standard deviation of a night effect."""


class Spread(NamedTuple):
    """Night-to-night variation of a measure, in units of `Series.unit`."""

    deviation: float
    autocorrelation: float
    degrees: float


@dataclass(frozen=True, slots=True)
class Look:
    """Test results of one cell. Differences are tonight's value minus the prediction."""

    limits: tuple[float, float]
    """KNOWN or ESTIMATED."""
    usual: float
    """Mean over the earlier nights."""
    screened: float
    """Difference of the first run, as a standard normal value."""
    tonight: float
    """Difference of the first run and its reruns, as a standard normal value."""
    window: float
    """Difference of the window mean, as a standard normal value; 0 if there are too few nights."""
    window_mean: float
    detectable: float
    """Change detectable tonight with probability POWER if the cell is rerun."""

    @property
    def is_suspicious(self) -> bool:
        """Whether the cell should be rerun."""
        return abs(self.screened) >= SCREEN

    def side(self, *, is_confirmed: bool) -> int:
        """Return 1 for a rise, −1 for a fall and 0 for no change. is_confirmed: the cell was rerun."""
        if self.is_suspicious and is_confirmed and abs(self.tonight) >= self.limits[0]:
            return int(np.sign(self.tonight))
        return int(np.sign(self.window)) if self.is_by_window else 0

    @property
    def is_by_window(self) -> bool:
        """Whether the window differs, and tonight differs by at least AGREES in the same direction."""
        return abs(self.window) >= self.limits[1] and self.tonight * np.sign(self.window) >= AGREES


def looks(cells: Sequence[Series]) -> tuple[dict[str, Spread], list[Look]]:
    """Return each measure's night-to-night variation and each cell's results; cells need FEWEST earlier nights."""
    if not cells:
        return {}, []
    past = _Nights.of([cell.earlier[-MOST:] for cell in cells])
    window = _Nights.of([[cell.together, *cell.window] for cell in cells])
    units, floors = np.array([(cell.unit, max(cell.floor, _TINY)) for cell in cells]).T
    rows = {name: [i for i, cell in enumerate(cells) if cell.measure == name] for name in {c.measure for c in cells}}
    spreads = {name: fitted(past.rows(of), units[of]) for name, of in rows.items()}
    deviation, *wander = np.array([spreads[cell.measure] for cell in cells]).T
    effects = np.maximum(deviation * units, floors) ** 2
    first = tonight = _compared(past, window.columns(1), effects, *wander)
    if any(cell.together is not cell.first for cell in cells):
        first = _compared(past, _Nights.of([[cell.first] for cell in cells]), effects, *wander)
    in_window = (past.days[:, :, None] == window.days[:, None, :]).any(axis=2)
    rest = past._replace(variances=np.where(in_window, np.inf, past.variances))
    last = np.where((rest.num >= FEWEST) & (window.num > 1), _compared(rest, window, effects, *wander).z, 0.0)
    unknown = {cell.measure for cell in cells if not cell.first.variance}
    limits = [ESTIMATED if cell.measure in unknown else KNOWN for cell in cells]
    limit = -special.stdtrit(tonight.degrees, special.ndtr(-np.array(limits)[:, 0]))
    columns = past.mean, first.z, tonight.z, last, window.mean, tonight.errors * (limit + special.ndtri(POWER))
    seen = zip(np.stack(columns, axis=1).tolist(), limits, strict=True)
    return spreads, [Look(limit, *numbers) for numbers, limit in seen]


class _Nights(NamedTuple):
    """Nights of all cells; arrays (cells, nights), padded at the ends of rows with nights of infinite variance."""

    days: Counts
    values: Floats
    variances: Floats

    @classmethod
    def of(cls, rows: Sequence[Sequence[Value]]) -> _Nights:
        width = max(map(len, rows))
        absent = [[(0, row[0].value, np.inf)] * (width - len(row)) for row in rows]
        table = np.array([[*row, *more] for row, more in zip(rows, absent, strict=True)], dtype=float)
        return cls(table[:, :, 0].astype(np.int64), table[:, :, 1], table[:, :, 2])

    def rows(self, places: list[int]) -> _Nights:
        return _Nights(self.days[places], self.values[places], self.variances[places])

    def columns(self, number: int) -> _Nights:
        return _Nights(self.days[:, :number], self.values[:, :number], self.variances[:, :number])

    @property
    def num(self) -> Counts:
        return np.asarray(np.isfinite(self.variances).sum(axis=1))

    @property
    def weights(self) -> Floats:
        """Weights of the mean over present nights."""
        return np.asarray(np.isfinite(self.variances) / self.num[:, None])

    @property
    def mean(self) -> Floats:
        return np.asarray((self.weights * self.values).sum(axis=1))


def fitted(past: _Nights, units: Floats) -> Spread:
    """Return the night-to-night variation: weighted least squares on the variogram of all cells; units (cells,)."""
    i, j = np.triu_indices(past.days.shape[1], 1)
    noises = (past.variances[:, i] + past.variances[:, j]) / 2
    there = np.isfinite(noises)
    scales = there / units[:, None] ** 2
    halves = (past.values[:, j] - past.values[:, i]) ** 2 / 2 * scales
    lags = np.clip(past.days[:, j] - past.days[:, i], 0, 2 * MOST).ravel()
    sums = [np.bincount(lags, what.ravel()) for what in (there, halves, np.where(there, noises, 0.0) * scales)]
    known = np.flatnonzero(sums[0])
    numbers, seen, noise = (what[known] for what in sums)
    size = float(seen.sum() / numbers.sum()) ** 0.5
    degrees = float(np.isfinite(past.variances).sum() - len(units))
    if size == 0:
        return Spread(0.0, 0.0, degrees)
    model = noise / numbers + (size * _DEVIATIONS[:, None, None]) ** 2 * (1 - _AUTOCORRELATIONS[:, None] ** known)
    misfit = (numbers * (seen / numbers / np.maximum(model, 1e-12) - 1) ** 2).sum(axis=2)
    deviation, rho = np.unravel_index(np.argmin(misfit), misfit.shape)
    autocorrelation = float(_AUTOCORRELATIONS[rho])
    return Spread(
        size * float(_DEVIATIONS[deviation]),
        autocorrelation,
        max(1.0, degrees * (1 - autocorrelation) / (1 + autocorrelation)),
    )


class _Compared(NamedTuple):
    """Difference from the prediction per cell (cells,): standard normal value, error and degrees of freedom."""

    z: Floats
    errors: Floats
    degrees: Floats


def _compared(past: _Nights, nights: _Nights, effects: Floats, autocorrelation: Floats, degrees: Floats) -> _Compared:
    """Compare the mean over nights with its best linear unbiased prediction; effects (cells,): night-effect variances.

    z is Student's t converted to a standard normal value. Its degrees of freedom are divided by the square of the night
    effects' share of the variance, because only the night effects are estimated (Satterthwaite 1946).
    """
    days = np.concatenate([past.days, nights.days], axis=1)
    lags = np.minimum(np.abs(days[:, :, None] - days[:, None, :]), _FORGOTTEN)
    powers = autocorrelation[:, None] ** np.arange(lags.max() + 1)
    shared = effects[:, None, None] * powers[np.arange(len(powers))[:, None, None], lags]
    n, weights = past.days.shape[1], nights.weights
    noise = (weights**2 * np.where(weights > 0, nights.variances, 0.0)).sum(axis=1)
    matrix = shared[:, :n, :n]
    diagonal = np.arange(n)
    matrix[:, diagonal, diagonal] += np.minimum(past.variances, _ABSENT * (effects + noise)[:, None])
    to_nights = (shared[:, :, n:] @ weights[:, :, None])[:, :, 0]
    to_past, own = to_nights[:, :n], (to_nights[:, n:] * weights).sum(axis=1)
    solved = np.linalg.solve(matrix, np.stack([to_past, np.ones_like(to_past)], axis=2))
    of_mean = solved[:, :, 1].sum(axis=1)
    lacking = (1 - solved[:, :, 0].sum(axis=1)) / of_mean
    level = past.values[:, :1]  # subtracted so large values keep their digits
    predicted = ((solved[:, :, 0] + lacking[:, None] * solved[:, :, 1]) * (past.values - level)).sum(axis=1)
    variance = own + noise - (to_past * solved[:, :, 0]).sum(axis=1) + lacking**2 * of_mean
    errors = np.sqrt(variance)
    t = ((weights * (nights.values - level)).sum(axis=1) - predicted) / errors
    degrees = degrees / np.maximum(effects / (effects + noise), _LEAST) ** 2
    return _Compared(np.sign(t) * -special.ndtri(special.stdtr(degrees, -np.abs(t))), errors, degrees)
