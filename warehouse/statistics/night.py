"""Has a measure of a cell changed tonight? Nights vary by sampling and by a night effect that wanders.

The value of a night is the cell's level, a night effect and sampling noise. Sampling variances are given where they are
known, and 0 where they are not. The effect is a stationary AR(1) process over days, whose variance and autocorrelation
are those of the measure, pooled over its cells: fitted to the variogram, half the mean squared difference of nights h
days apart, which needs no level. Tonight is compared with its best linear prediction from the cell's earlier nights.

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
"""Earlier nights below which nothing is said, and how many are used, the newest."""
WINDOW = 3
"""Nights of the second look, tonight included."""
SCREEN = 2.5
"""Standard errors at which tonight is run again."""
AGREES = 1.0
"""Standard errors by which tonight itself must differ where the last nights together do: else it was repaired."""
_AUTOCORRELATIONS = np.linspace(0.0, 0.95, 20)
_DEVIATIONS = np.r_[0.0, np.geomspace(0.2, 2.5, 50)]
"""Candidates for the night effect's standard deviation, relative to the root of the mean squared difference."""
_TINY = 1e-9
_ABSENT = 1e9
"""Variance of a night that is not there, relative to that of tonight."""
_LEAST = 1e-3
"""Share of the night effect in a variance below which that is taken as known."""
_FORGOTTEN = 365
"""Days after which nights are taken as unrelated."""


KNOWN, ESTIMATED = (3.5, 4.0), (4.0, 4.5)
"""Standard errors at which something is found, of tonight and its re-run, and of the mean of the last nights: where
sampling variances are known; and where all variance is that of nights, taken as alike in all cells."""


class Value(NamedTuple):
    """The value of a measure in one night, or its mean over the runs of that night."""

    day: int
    value: float
    variance: float = 0.0
    """Sampling variance of the value."""


@dataclass(frozen=True, slots=True)
class Series:
    """One measure of one cell: tonight, and the nights that it is compared with."""

    earlier: Sequence[Value]
    """Comparable nights, oldest first; the last MOST count."""
    first: Value
    """Tonight's first run."""
    together: Value
    """Tonight's first run and re-runs."""
    window: Sequence[Value] = ()
    """The nights that are looked at together with tonight; they may be among the earlier ones."""
    unit: float = 1.0
    """What night effects of this cell are proportional to."""
    measure: str = ""
    """Its name: night effects are alike in all cells of a measure."""
    floor: float = 0.0
    """Smallest standard deviation of a night effect that is believed."""


class Spread(NamedTuple):
    """How much a measure wanders from night to night, in units of `Series.unit`."""

    deviation: float
    autocorrelation: float
    degrees: float


@dataclass(frozen=True, slots=True)
class Look:
    """What is seen of one cell; differences are tonight less what was predicted."""

    limits: tuple[float, float]
    usual: float
    """Mean over the earlier nights."""
    screened: float
    """Difference of the first run, in standard errors, each as a standard normal value would be."""
    tonight: float
    """The same of first run and re-runs together."""
    window: float
    """The same of the mean over tonight and the nights before it; 0 where there is not enough."""
    window_mean: float
    detectable: float
    """Change that is found tonight with the chance POWER, if the cell is run again."""

    @property
    def is_suspicious(self) -> bool:
        """Whether the cell is to be run again."""
        return abs(self.screened) >= SCREEN

    def side(self, *, is_confirmed: bool) -> int:
        """Return 1 for a rise, −1 for a fall, 0 where nothing is found. is_confirmed: whether there was a re-run."""
        if self.is_suspicious and is_confirmed and abs(self.tonight) >= self.limits[0]:
            return int(np.sign(self.tonight))
        return int(np.sign(self.window)) if self.is_by_window else 0

    @property
    def is_by_window(self) -> bool:
        """Whether the last nights together differ, and tonight points there too."""
        return abs(self.window) >= self.limits[1] and self.tonight * np.sign(self.window) >= AGREES


def looks(cells: Sequence[Series]) -> tuple[dict[str, Spread], list[Look]]:
    """Return how each measure wanders, and what is seen of each cell, which has at least FEWEST earlier nights."""
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
    """Nights of all cells, (cells, nights) each; what is not there has an infinite variance, and the first is."""

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
        """Those of the mean over the nights that are there."""
        return np.asarray(np.isfinite(self.variances) / self.num[:, None])

    @property
    def mean(self) -> Floats:
        return np.asarray((self.weights * self.values).sum(axis=1))


def fitted(past: _Nights, units: Floats) -> Spread:
    """Return the spread of nights by the variogram of all cells, by weighted least squares; units (cells,)."""
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
    """By cell (cells,): the difference from what was predicted, as a standard normal value, its error and degrees."""

    z: Floats
    errors: Floats
    degrees: Floats


def _compared(past: _Nights, nights: _Nights, effects: Floats, autocorrelation: Floats, degrees: Floats) -> _Compared:
    """Compare the mean over nights with its best linear unbiased prediction; effects (cells,): their variances.

    z is Student's t as a standard normal value: the degrees of freedom are those of the share that the night effect,
    whose variance is estimated, has in the variance (Satterthwaite 1946).
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
    level = past.values[:, :1]  # subtracted, so that values far from 0 lose no digits
    predicted = ((solved[:, :, 0] + lacking[:, None] * solved[:, :, 1]) * (past.values - level)).sum(axis=1)
    variance = own + noise - (to_past * solved[:, :, 0]).sum(axis=1) + lacking**2 * of_mean
    errors = np.sqrt(variance)
    t = ((weights * (nights.values - level)).sum(axis=1) - predicted) / errors
    degrees = degrees / np.maximum(effects / (effects + noise), _LEAST) ** 2
    return _Compared(np.sign(t) * -special.ndtri(special.stdtr(degrees, -np.abs(t))), errors, degrees)
