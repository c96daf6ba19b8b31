"""Offline change-point detection, for slow drift that no single night shows.

Source: Killick, Fearnhead and Eckley, Optimal Detection of Changepoints with a Linear Computational Cost (2012),
in the library ruptures; the linear kernel's cost is the sum of squared deviations.
"""

from __future__ import annotations

import numpy as np

from warehouse.statistics.intervals import Floats

SHORTEST = 3
"""Smallest number of values in a segment of constant level."""


def change_points(values: Floats, noise: Floats, penalty: float) -> list[int]:
    """Return the indices at which a new level begins, in order; empty if a single level explains the series.

    values (n,): one per night. noise (n,): their standard errors, which are the unit of deviations. penalty: how much
    an additional level must reduce the sum of squared deviations, in squared standard errors.
    """
    import ruptures  # slow to import, and most commands never look for drift

    if len(values) < 2 * SHORTEST:
        return []
    typical = float(np.sqrt(np.mean(noise**2)))
    if typical == 0:
        return []
    search = ruptures.KernelCPD(kernel="linear", min_size=SHORTEST).fit((values / typical).reshape(-1, 1))
    return [int(index) for index in search.predict(pen=penalty)[:-1]]
