"""Variances that were each estimated from few values, moderated by those of their neighbors.

A cell with four nights of baseline has an estimate of its variance with three degrees of freedom; a dozen cells
together know far better how large such variances are, and how much they differ.

Source: Smyth, Linear Models and Empirical Bayes Methods for Assessing Differential Expression in Microarray
Experiments (Stat. Appl. Genet. Mol. Biol. 3, 2004), sections 3 and 6.2.
"""

from __future__ import annotations

import numpy as np
from scipy import special

from warehouse.statistics.intervals import Floats

FEWEST = 4
"""With fewer variances than this, nothing is known of how they differ, and each stands for itself."""


def moderated(variances: Floats, degrees: Floats) -> tuple[Floats, Floats]:
    """Return variances that are drawn toward their common level, and their degrees of freedom; both (n,).

    variances (n,), degrees (n,): estimates and their degrees of freedom. An estimate of 0 says nothing of the others.
    The prior has at most as many degrees of freedom as all estimates together.
    """
    known = (variances > 0) & (degrees > 0)
    if known.sum() < FEWEST:
        return variances, degrees
    of_known = degrees[known]
    centered = np.log(variances[known]) - special.digamma(of_known / 2) + np.log(of_known / 2)
    spread = float(centered.var(ddof=1) - special.zeta(2, of_known / 2).mean())
    most = float(of_known.sum())
    prior_degrees = min(2 * _inverse_trigamma(spread), most) if spread > 0 else most
    half = prior_degrees / 2
    prior = float(np.exp(centered.mean() + special.digamma(half) - np.log(half)))
    total = prior_degrees + degrees
    return (prior_degrees * prior + degrees * variances) / total, np.minimum(total, most)


def _inverse_trigamma(value: float) -> float:
    """Return x with ψ′(x) = ζ(2, x) = value, by Newton's method on 1/ψ′, which is nearly linear."""
    x = 0.5 + 1 / value
    for _ in range(20):
        trigamma = float(special.zeta(2, x))
        step = trigamma * (1 - trigamma / value) / (-2 * float(special.zeta(3, x)))  # polygamma(2, x), but faster
        x += step
        if abs(step) < 1e-8 * x:
            break
    return x
