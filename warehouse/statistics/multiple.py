"""Correction for multiple testing. Source: Holm, A Simple Sequentially Rejective Multiple Test Procedure (1979)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the adjusted p-values in input order; rejecting those at most α bounds the family-wise error rate by α."""
    p = np.asarray(p_values, dtype=float)
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1.0, stepped)
    return [float(value) for value in adjusted]
