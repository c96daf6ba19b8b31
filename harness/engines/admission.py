"""Admit samples by the room in the KV caches, in addition to a maximum number of samples.

If an engine has more contexts than its KV cache holds, it evicts and recomputes some. A stepwise method reads every
chain again at every step, so even a slightly too small cache misses almost always. Too few concurrent samples leave the
engine idle. A sample is therefore admitted if the highest expected total from then on, with a margin, fits in every
cache.

In a cache, a sample holds its prompt (shared by samples of one problem), its chain, and a step's temporary tokens:
parallel candidates and the verdict's question. Temporary tokens always count, although a sample needs them only for
part of a step: afterwards they stay in the cache, and evict other samples' chains before these are read again.

Samples are at different points of their chains. At any moment they hold about half of their final size, and while some
grow, others end and leave. The forecast therefore uses the maximum total over time instead of the sum of final lengths.
It is computed from the distribution of lengths: a sample with x emitted tokens is still running t tokens later with
probability S(x + t) / S(x), and then holds x + t. Time is counted in tokens, because requests in one batch grow at
about the same speed. S(x), the probability that a sample emits more than x tokens, is estimated from ended and running
samples (a life table: a running sample will be longer than its current length). A few imaginary samples define S before
any sample has ended.

`python -m tools.simulate.cache` compares this policy with the previous one, which reserved the 90th percentile of the
lengths of ended samples; tools/simulate/README.md has the table.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]

_HISTORY = 256
"""Number of recent steps, and of recently ended samples, in averages."""
_INTERVALS = 64
"""Number of length intervals; they are smallest for short lengths, where most samples of a skewed distribution end."""
_IMAGINED_SAMPLES = 4.0
_IMAGINED_AT_BUDGET = 0.25
"""Share of imaginary samples that reach the token budget; the others' lengths are uniform below it."""


class Lengths:
    """Distribution of the samples' emitted tokens."""

    def __init__(self, token_budget: int) -> None:
        self.grid: Array = max(1, token_budget) * np.linspace(0.0, 1.0, _INTERVALS + 1) ** 2
        """Boundaries of the intervals, in tokens, from 0 to the token budget."""
        self._ended: deque[int] = deque(maxlen=_HISTORY)
        uniform = np.diff(self.grid) / self.grid[-1]
        self._imagined = _IMAGINED_SAMPLES * np.append((1 - _IMAGINED_AT_BUDGET) * uniform, _IMAGINED_AT_BUDGET)

    def add(self, emitted_tokens: int) -> None:
        """Add a sample that has ended."""
        self._ended.append(emitted_tokens)

    def survival(self, running: Array) -> tuple[Array, Array]:
        """Estimate the distribution from ended samples and `running`, the emitted tokens of each running one.

        Returns, at each point of the grid, the probability that a sample emits more, and the squared relative standard
        error of that probability (Greenwood's formula).
        """
        ended = self._imagined + self._counts(np.array(self._ended, dtype=float))
        still_running = self._counts(running)
        at_risk = np.cumsum((ended + still_running)[::-1])[::-1]
        exposed = at_risk[:-1] - still_running[:-1] / 2
        hazard = ended[:-1] / exposed
        greenwood = np.cumsum(hazard / (exposed * (1 - hazard)))
        return np.append(1.0, np.cumprod(1 - hazard)), np.append(0.0, greenwood)

    def _counts(self, lengths: Array) -> Array:
        """Return the number of lengths in each interval; the last entry counts those at the budget."""
        places = np.searchsorted(self.grid, lengths, side="right") - 1
        counts: Array = np.bincount(np.clip(places, 0, _INTERVALS), minlength=_INTERVALS + 1).astype(float)
        return counts


@dataclass
class CacheForecast:
    """Forecast of the tokens of all running samples in each cache, without prompts.

    Arrays by cache have a row per cache and a column per future time, counted in tokens on `grid`; arrays independent
    of time have one column.
    """

    grid: Array
    probability: Array
    """Probability that a sample emits more than each length of the grid."""
    relative_variance: Array
    capacity: Array
    width: Array
    """Number of a sample's sequences that grow at the same time."""
    extra: Array
    """Tokens of a sample besides its chain: candidates, a verdict's question, unfilled blocks."""
    mean: Array | float = 0.0
    """Expected total, in tokens."""
    chance: Array | float = 0.0
    """Variance of the total, due to the random lengths of samples."""
    doubt: Array | float = 0.0
    """Standard deviation of the total, due to the estimated distribution, whose error is common to all samples."""

    def with_samples(self, emitted: Array) -> CacheForecast:
        """Return the forecast with further samples, given their emitted tokens."""
        lengths = emitted[:, None] + self.grid[None, :]
        now = np.maximum(np.interp(emitted, self.grid, self.probability), 1e-9)
        running = np.interp(lengths, self.grid, self.probability, right=0.0) / now[:, None]
        running[:, 0] = 1.0
        error = np.interp(lengths, self.grid, self.relative_variance)
        error = np.sqrt(error - np.interp(emitted, self.grid, self.relative_variance)[:, None])
        held = self.width[:, None] * lengths + self.extra[:, None]
        return replace(
            self,
            mean=self.mean + (running * held).sum(axis=1),
            chance=self.chance + (running * (1 - running) * held**2).sum(axis=1),
            doubt=self.doubt + (running * np.minimum(error, 1.0) * held).sum(axis=1),
        )

    def fits(self, prompts: Array, own_prompt: Array, concurrency: int, num_later: int) -> bool:
        """Return whether the samples fit into every cache.

        `prompts`: tokens of all prompts by cache. `own_prompt`: the part added by the latest sample. Two totals must
        stay within each capacity at all times: these samples' expected total plus `_CAUTION` standard deviations, and
        their expected total plus that of `num_later` further samples, which start at `_PACE` times the highest rate
        that `concurrency` and the caches allow. Without the second total, samples that start and end together would
        leave no room for others meanwhile, and the cache would be half empty on average.
        """
        room = self.capacity - prompts
        if np.any(self.mean + _CAUTION * np.sqrt(self.chance + self.doubt**2) > room):
            return False
        return not np.any(self.mean + self._started_later(own_prompt, concurrency, num_later) > room)

    def _started_later(self, prompt: Array, concurrency: int, number: int) -> Array:
        by_age = _integrals(self.grid, (self.width * self.grid + self.extra + prompt) * self.probability)
        mean_length = _integrals(self.grid, self.probability[None, :])[0, -1]
        most_starts = float(np.min(self.capacity[:, 0] / by_age[:, -1]))
        starts_per_token = _PACE * min(concurrency / mean_length, most_starts)
        last_start = number / starts_per_token
        before_first = np.array([np.interp(self.grid - last_start, self.grid, row, left=0.0) for row in by_age])
        started: Array = starts_per_token * (by_age - before_first)
        return started


def _integrals(grid: Array, rows: Array) -> Array:
    areas = np.diff(grid) * (rows[:, 1:] + rows[:, :-1]) / 2
    sums: Array = np.concatenate([np.zeros((len(rows), 1)), np.cumsum(areas, axis=1)], axis=1)
    return sums


BLOCK_TOKENS = 32
"""The maximum block size of a KV cache; each sequence leaves part of its last block unused."""
_CAUTION = 1.5
"""Required margin between the expected total and the capacity, in standard deviations of the total."""
_PACE = 0.7
"""Rate of later starts for which room is reserved, relative to the highest sustainable rate."""
_FORECAST_SECONDS = 0.25
"""Maximum age of a forecast."""
_WAIT_SECONDS = 1.0
"""Maximum time between checks for room if no sample ends."""


@dataclass(frozen=True)
class Cache:
    """One engine's KV cache, with a method's use of it."""

    capacity_tokens: int | None
    """None: no limit."""
    width: int = 1
    """Number of a sample's sequences that grow at the same time; above 1 if a method drafts whole chains."""
    step_tokens: float = 0.0
    """Tokens besides prompt and chain (a step's candidates, a verdict's question), until steps are measured."""


@dataclass(eq=False)
class Admitted:
    """A running sample."""

    problem: str
    prompt_tokens: Mapping[str, int]
    """Prompt length by cache."""
    emitted_tokens: int
    started_with: int
    """Emitted tokens at admission; positive for a resumed sample."""
    admitted_at: float
    updated_at: float


class Admission:
    """Admits samples first come, first served, while they fit."""

    def __init__(
        self,
        caches: Mapping[str, Cache],
        concurrency: int,
        token_budget: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`caches`: all engines' caches by role; `concurrency`: maximum number of running samples."""
        self._caches = {role: cache for role, cache in caches.items() if cache.capacity_tokens is not None}
        self._concurrency = concurrency
        self._budget = token_budget
        self._clock = clock
        self._lengths = Lengths(token_budget)
        self._running: set[Admitted] = set()
        self._of_problem: Counter[str] = Counter()
        self._prompts = dict.fromkeys(self._caches, 0)
        """Total prompt tokens of all running problems, by cache."""
        self._step_tokens: dict[str, deque[float]] = {role: deque(maxlen=_HISTORY) for role in self._caches}
        self._ended: deque[tuple[int, float]] = deque(maxlen=_HISTORY)
        """Tokens and seconds of ended samples."""
        self._forecast: CacheForecast | None = None
        self._forecast_at = 0.0
        self._turn = asyncio.Lock()
        self._released = asyncio.Event()

    @property
    def running(self) -> int:
        """Number of admitted samples that have not ended."""
        return len(self._running)

    async def admit(
        self, problem: str, prompt_tokens: Mapping[str, int], emitted_tokens: int = 0, num_later: int = 1 << 20
    ) -> Admitted:
        """Wait for room for one sample and admit it; pass the result to `grew` and `release`.

        `prompt_tokens`: prompt length by role. `emitted_tokens`: tokens emitted before a resumption. `num_later`:
        number of samples still to be admitted after this one. One sample always runs, even if it is larger than a
        cache.
        """
        async with self._turn:  # locks are first come, first served
            while (sample := self.try_admit(problem, prompt_tokens, emitted_tokens, num_later)) is None:
                await self._wait_a_moment()
            return sample

    async def wait_for_room(self) -> None:
        """Wait until there is room for one more sample of an unknown problem."""
        async with self._turn:
            while not self._fits("", {}, 0, 0):
                await self._wait_a_moment()

    async def _wait_a_moment(self) -> None:
        """Wait until a sample ends, but no longer than `_WAIT_SECONDS`: room may also appear in other ways."""
        self._released.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_WAIT_SECONDS):  # wait_for of Python 3.11 can lose a cancellation
                await self._released.wait()

    def try_admit(
        self, problem: str, prompt_tokens: Mapping[str, int], emitted_tokens: int = 0, num_later: int = 1 << 20
    ) -> Admitted | None:
        """Admit a sample without waiting (see `admit`); return None if it does not fit now."""
        if not self._fits(problem, prompt_tokens, emitted_tokens, num_later):
            return None
        now = self._clock()
        sample = Admitted(problem, prompt_tokens, emitted_tokens, emitted_tokens, now, now)
        self._running.add(sample)
        self._of_problem[problem] += 1
        if self._of_problem[problem] == 1:
            for role in self._prompts:
                self._prompts[role] += prompt_tokens.get(role, 0)
        if self._forecast is not None:
            self._forecast = self._forecast.with_samples(np.array([float(emitted_tokens)]))
        return sample

    def grew(self, sample: Admitted, emitted_tokens: int, step_tokens: Mapping[str, int] | None = None) -> None:
        """Report a step of a sample: its chain's length, and the step's additional tokens by role."""
        sample.emitted_tokens, sample.updated_at = emitted_tokens, self._clock()
        for role, tokens in (step_tokens or {}).items():
            if role in self._step_tokens:
                self._step_tokens[role].append(tokens)

    def release(self, sample: Admitted, emitted_tokens: int | None) -> None:
        """Free a sample's room. `emitted_tokens`: its final length; None if it did not end by itself."""
        self._running.discard(sample)
        self._of_problem[sample.problem] -= 1
        if not self._of_problem[sample.problem]:
            del self._of_problem[sample.problem]
            for role in self._prompts:
                self._prompts[role] -= sample.prompt_tokens.get(role, 0)
        if emitted_tokens is not None:
            self._lengths.add(emitted_tokens)
            self._ended.append((emitted_tokens - sample.started_with, self._clock() - sample.admitted_at))
        self._forecast = None
        self._released.set()

    def _fits(self, problem: str, prompt_tokens: Mapping[str, int], emitted_tokens: int, num_later: int) -> bool:
        if not self._running:
            return True
        if len(self._running) >= self._concurrency:
            return False
        if not self._caches:
            return True
        own = _column([0.0 if problem in self._of_problem else prompt_tokens.get(role, 0) for role in self._caches])
        prompts = _column(self._prompts.values()) + own
        forecast = self._current_forecast().with_samples(np.array([float(emitted_tokens)]))
        return forecast.fits(prompts, own, self._concurrency, num_later)

    def _current_forecast(self) -> CacheForecast:
        now = self._clock()
        if self._forecast is None or now - self._forecast_at > _FORECAST_SECONDS:
            emitted, caches = self._emitted_now(), self._caches.values()
            self._forecast_at = now
            self._forecast = CacheForecast(
                self._lengths.grid,
                *self._lengths.survival(emitted),
                capacity=_column([cache.capacity_tokens or 0 for cache in caches]),
                width=_column([cache.width for cache in caches]),
                extra=_column([self._extra_tokens(role) for role in self._caches]),
            ).with_samples(emitted)
        return self._forecast

    def _extra_tokens(self, role: str) -> float:
        cache, seen = self._caches[role], self._step_tokens[role]
        return (fmean(seen) if seen else cache.step_tokens) + (1 + cache.width) * BLOCK_TOKENS / 2

    def _emitted_now(self) -> Array:
        """Return the lengths of running chains: at the last step, plus an estimate of the tokens since."""
        tokens, seconds = (sum(column) for column in zip(*self._ended, strict=True)) if self._ended else (0, 0.0)
        speed, now = tokens / seconds if seconds > 0 else 0.0, self._clock()
        lengths = [sample.emitted_tokens + speed * (now - sample.updated_at) for sample in self._running]
        emitted: Array = np.minimum(np.array(lengths, dtype=float), self._budget)
        return emitted


def _column(values: Iterable[float]) -> Array:
    return np.array(list(values), dtype=float)[:, None]
