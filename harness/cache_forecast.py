"""Forecast of the tokens that the samples in flight will hold in a KV cache.

Samples are at different points of their chains: at any moment they hold about half of what they will hold at their end,
and while some grow, others end and leave. What counts is therefore not the sum of the final lengths but the highest
total over time. It is computed from the distribution of lengths: a sample that has emitted x tokens is still running t
tokens later with probability S(x + t) / S(x), and then holds x + t. Time is counted in tokens, because requests in one
batch grow at about the same speed.

S is estimated from samples that have ended and those still running (a life table: a running sample says only that its
length is more than it has now), mixed with a few imaginary samples, so that it is defined from the beginning.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]

_HISTORY = 256
"""Number of ended samples that the estimate is based on."""
_INTERVALS = 64
"""Resolution of lengths; short ones, where most samples of a skewed distribution end, are resolved best."""
_IMAGINED_SAMPLES = 4.0
_IMAGINED_AT_BUDGET = 0.25
"""Share of the imaginary samples that reach the token budget; the lengths of the others are uniform below it."""


@dataclass(frozen=True)
class Survival:
    """The distribution of lengths as it is estimated."""

    grid: Array
    """Lengths, in tokens."""
    probability: Array
    """Probability that a sample emits more than each length."""
    relative_variance: Array
    """Squared relative standard error of that probability (Greenwood's formula)."""


class Lengths:
    """How many tokens samples emit in all."""

    def __init__(self, token_budget: int) -> None:
        self.grid: Array = max(1, token_budget) * np.linspace(0.0, 1.0, _INTERVALS + 1) ** 2
        """Boundaries of the intervals, in tokens, from 0 to the token budget."""
        self._ended: deque[int] = deque(maxlen=_HISTORY)
        uniform = np.diff(self.grid) / self.grid[-1]
        self._imagined = _IMAGINED_SAMPLES * np.append((1 - _IMAGINED_AT_BUDGET) * uniform, _IMAGINED_AT_BUDGET)

    def add(self, emitted_tokens: int) -> None:
        """Add a sample that has ended."""
        self._ended.append(emitted_tokens)

    def survival(self, running: Array) -> Survival:
        """Estimate the distribution, given also the tokens that each sample in flight has emitted."""
        ended = self._imagined + self._counts(np.array(self._ended, dtype=float))
        still_running = self._counts(running)
        at_risk = np.cumsum((ended + still_running)[::-1])[::-1]
        exposed = at_risk[:-1] - still_running[:-1] / 2
        hazard = ended[:-1] / exposed
        greenwood = np.cumsum(hazard / (exposed * (1 - hazard)))
        return Survival(self.grid, np.concatenate([[1.0], np.cumprod(1 - hazard)]), np.concatenate([[0.0], greenwood]))

    def _counts(self, lengths: Array) -> Array:
        """Return the number of lengths in each interval, and in the last place of those at the budget."""
        places = np.searchsorted(self.grid, lengths, side="right") - 1
        counts: Array = np.bincount(np.clip(places, 0, _INTERVALS), minlength=_INTERVALS + 1).astype(float)
        return counts


@dataclass(frozen=True)
class CacheUse:
    """What one engine's KV cache can hold and what a sample holds in it."""

    capacity_tokens: int
    width: int = 1
    """Number of sequences of a sample that grow at the same time."""
    extra_tokens: float = 0.0
    """Tokens that a sample holds besides its chain: candidates, a verdict's question, unfilled blocks."""


@dataclass(frozen=True)
class Total:
    """What samples will hold, without prompts, by cache and by time from now on (the grid of lengths)."""

    mean: Array
    """In tokens."""
    chance: Array
    """Variance, because each sample is longer or shorter than others."""
    doubt: Array
    """Standard deviation, because the distribution is known from few samples; all samples err in the same direction."""

    def __add__(self, other: Total) -> Total:
        return Total(self.mean + other.mean, self.chance + other.chance, self.doubt + other.doubt)

    def upper(self, deviations: float) -> Array:
        """Return the mean with so many standard deviations on top."""
        total: Array = self.mean + deviations * np.sqrt(self.chance + self.doubt**2)
        return total


@dataclass(frozen=True)
class Later:
    """The samples that will ask for room afterwards."""

    number: int
    concurrency: int
    """Most samples in flight."""
    pace: float
    """Share of the highest rate of starts for which room is kept."""


@dataclass
class Forecast:
    """The samples in flight at one moment, and the total that they will hold in each cache."""

    lengths: Survival
    caches: list[CacheUse]
    total: Total = field(init=False)

    def __post_init__(self) -> None:
        zeros = np.zeros((len(self.caches), len(self.lengths.grid)))
        self.total = Total(zeros, zeros, zeros)

    def add(self, emitted: Array) -> None:
        """Add samples that have emitted so many tokens."""
        self.total += self._of(emitted)

    def has_room(self, emitted_tokens: float, prompts: Array, own_prompt: Array, caution: float, later: Later) -> bool:
        """Return True if one more sample, which has emitted so many tokens, fits into every cache.

        `prompts` are the tokens of all prompts by cache, `own_prompt` those of them that the new sample adds. Two
        totals have to stay within each capacity at all times: that of these samples with `caution` standard deviations
        on top, and that of these samples and those that start later, at the highest rate that the caches can take.
        Without the second, samples that start together and end together would leave no room for others on the way, and
        the cache would be half empty on average.
        """
        total = self.total + self._of(np.array([emitted_tokens]))
        room = np.array([[float(cache.capacity_tokens)] for cache in self.caches]) - prompts[:, None]
        if np.any(total.upper(caution) > room):
            return False
        return not np.any(total.mean + self._started_later(own_prompt, later) > room)

    def _of(self, emitted: Array) -> Total:
        """Return what samples that have emitted so many tokens hold."""
        known, times = self.lengths, self.lengths.grid
        lengths = emitted[:, None] + times[None, :]
        now = np.maximum(np.interp(emitted, times, known.probability), 1e-9)
        running = np.interp(lengths, times, known.probability, right=0.0) / now[:, None]
        running[:, 0] = 1.0
        error = np.interp(lengths, times, known.relative_variance)
        error = np.sqrt(error - np.interp(emitted, times, known.relative_variance)[:, None])
        means, variances, doubts = [], [], []
        for cache in self.caches:
            held = cache.width * lengths + cache.extra_tokens
            means.append((running * held).sum(axis=0))
            variances.append((running * (1 - running) * held**2).sum(axis=0))
            doubts.append((running * np.minimum(error, 1.0) * held).sum(axis=0))
        return Total(np.array(means), np.array(variances), np.array(doubts))

    def _started_later(self, prompt: Array, later: Later) -> Array:
        """Return the expected tokens of samples that start from now on, by cache and time."""
        grid, survival = self.lengths.grid, self.lengths.probability
        widths = np.array([[float(cache.width)] for cache in self.caches])
        extras = np.array([[cache.extra_tokens] for cache in self.caches]) + prompt[:, None]
        by_age = _integrals(grid, (widths * grid + extras) * survival)
        mean_length = _integrals(grid, survival[None, :])[0, -1]
        capacities = np.array([float(cache.capacity_tokens) for cache in self.caches])
        starts_per_token = later.pace * min(later.concurrency / mean_length, float(np.min(capacities / by_age[:, -1])))
        last_start = later.number / starts_per_token
        before_first = np.array([np.interp(grid - last_start, grid, row, left=0.0) for row in by_age])
        started: Array = starts_per_token * (by_age - before_first)
        return started


def _integrals(grid: Array, rows: Array) -> Array:
    """Return the integral of each row of values over the grid, from its beginning to each point."""
    areas = np.diff(grid) * (rows[:, 1:] + rows[:, :-1]) / 2
    sums: Array = np.concatenate([np.zeros((len(rows), 1)), np.cumsum(areas, axis=1)], axis=1)
    return sums
