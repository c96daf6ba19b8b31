"""What all cells of a night have in common, from the changes of each cell since the night before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from warehouse.nightly.cells import CellNight
from warehouse.nightly.metrics import METRICS
from warehouse.nightly.past import ACCURACY
from warehouse.statistics.night_changes import NightFactor, night_factor

_FEWEST_CELLS = 4
"""With fewer cells what one of them does cannot be told from what they have in common: a fault of a single cell that
comes and goes would be allowed for, and pass."""


@dataclass
class NightEffects:
    """Changes from one night to the next, by quantity: their weighted mean over cells, and its noise."""

    _steps: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    _fewest: dict[str, int] = field(default_factory=dict)
    """Fewest cells that any change of a metric is the mean of."""

    def keep(self, pairs: Sequence[tuple[CellNight, CellNight]]) -> None:
        """Add the cells that ran in two successive nights under the same conditions, both times completely."""
        weighted = [
            (now.first.score - before.first.score, now.first.noise**2 + before.first.noise**2)
            for before, now in pairs
            if now.first.noise and before.first.noise
        ]
        if len(weighted) >= _FEWEST_CELLS:
            steps, variances = np.array(weighted).T
            total = float((1 / variances).sum())
            self._steps.setdefault(ACCURACY, []).append((float((steps / variances).sum()) / total, 1 / total))
        for metric in METRICS:
            name = metric.name
            changes = [
                now.first.measures[name] - before.first.measures[name]
                for before, now in pairs
                if name in now.first.measures and name in before.first.measures
            ]
            if len(changes) >= _FEWEST_CELLS:
                noise = float(np.var(changes, ddof=1)) / len(changes)
                self._steps.setdefault(name, []).append((float(np.mean(changes)), noise))
                self._fewest[name] = min(len(changes), self._fewest.get(name, len(changes)))

    def factors(self) -> dict[str, NightFactor]:
        """Return the night factor by quantity, where nights have something in common."""
        found = {}
        for name, steps in self._steps.items():
            degrees = self._fewest[name] - 1.0 if name in self._fewest else None
            changes, variances = np.array(steps).T
            found[name] = night_factor(changes, variances, degrees)
        return {name: factor for name, factor in found.items() if factor.standard_deviation > 0}
