"""Metrics over k samples per problem: pass@k and maj@k.

Sources: Chen et al., Evaluating Large Language Models Trained on Code (arXiv 2107.03374), section 2.1, for pass@k; Wang
et al., Self-Consistency (arXiv 2203.11171), for the majority vote.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb

import numpy as np
from numpy.typing import NDArray

from warehouse.statistics.intervals import Counts, Floats


def pass_at_k(correct: Counts, samples: Counts, k: int) -> Floats:
    """Return each problem's unbiased pass@k, 1 − C(n − c, k)/C(n, k); correct, samples and result (n,).

    Raises ValueError if a problem has fewer than k samples.
    """
    if k < 1 or np.any(samples < k):
        raise ValueError(f"pass@{k} requires 1 ≤ k ≤ samples per problem; one problem has {int(samples.min())}")
    outcomes, place = np.unique(np.stack([correct, samples], axis=1), axis=0, return_inverse=True)
    return np.array([1 - comb(n - c, k) / comb(n, k) for c, n in outcomes.tolist()])[place.ravel()]


def maj_at_k(votes: Sequence[int], is_right: Sequence[bool], abstained: int, k: int) -> float:
    """Return the probability that the majority vote of k samples is correct, averaged over all sets of k samples.

    votes: number of samples per distinct answer. is_right: whether that answer is correct. abstained: number of samples
    without an answer; they are drawn but do not vote. A set without votes is not correct. Each of t tied answers counts
    1/t. Raises ValueError if there are fewer than k samples.
    """
    total = sum(votes) + abstained
    if not 1 <= k <= total:
        raise ValueError(f"maj@{k} requires 1 ≤ k ≤ {total} samples")
    if k == total:
        most = max(votes, default=0)
        winners = [right for count, right in zip(votes, is_right, strict=True) if count == most]
        return sum(winners) / len(winners) if winners else 0.0
    chance = 0.0
    for index, (count, right) in enumerate(zip(votes, is_right, strict=True)):
        if right:
            others = [other for place, other in enumerate(votes) if place != index]
            chance += sum(comb(count, lead) * _led(others, abstained, lead, k) for lead in range(1, min(count, k) + 1))
    return chance / comb(total, k)


def _led(others: Sequence[int], abstained: int, lead: int, k: int) -> float:
    """Count the ways to draw the other k − lead samples with no other answer above `lead`, weighted by 1/(1 + ties)."""
    rest = k - lead
    ways: NDArray[np.float64] = np.zeros((rest + 1, len(others) + 1))  # samples drawn × tied answers
    for drawn in range(min(abstained, rest) + 1):
        ways[drawn, 0] = comb(abstained, drawn)
    for count in others:
        extended = np.zeros_like(ways)
        for drawn in range(min(count, lead, rest) + 1):
            shift = int(drawn == lead)
            extended[drawn:, shift:] += comb(count, drawn) * ways[: rest + 1 - drawn, : ways.shape[1] - shift]
        ways = extended
    return float(ways[rest] @ (1 / (1 + np.arange(ways.shape[1]))))
