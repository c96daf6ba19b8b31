"""Admission of samples by room in the KV cache, besides their number.

An engine with more contexts than its KV cache holds evicts and recomputes them, which costs more than waiting. The
tokens that a sample needs are not known when it starts, so they are estimated from the samples that have ended.
"""

from __future__ import annotations

import asyncio
from collections import deque

_HISTORY = 256
"""Number of ended samples that the estimate is based on."""
_FIRST_GUESS = 0.25
"""Share of the token budget that a sample is expected to emit while no sample has ended yet."""


class Admission:
    """Admits samples first come, first served, while they fit."""

    def __init__(self, capacity_tokens: int | None, concurrency: int, token_budget: int) -> None:
        """`capacity_tokens` is the size of the KV cache (None: no limit), `concurrency` the most samples in flight."""
        self._capacity = capacity_tokens
        self._concurrency = concurrency
        self._budget = token_budget
        self._lengths: deque[int] = deque(maxlen=_HISTORY)
        self._held = 0
        self._running = 0
        self._changed = asyncio.Condition()

    @property
    def expected_tokens(self) -> int:
        """Tokens that a sample is likely to emit: the 90th percentile of ended samples, at most the token budget."""
        if not self._lengths:
            return int(self._budget * _FIRST_GUESS)
        ordered = sorted(self._lengths)
        return min(self._budget, ordered[int(0.9 * (len(ordered) - 1))])

    @property
    def running(self) -> int:
        """Number of samples that were admitted and have not ended."""
        return self._running

    async def admit(self, prompt_tokens: int) -> int:
        """Wait for room for one sample and return the tokens that it holds, for `release`.

        A sample that is larger than the whole cache runs alone.
        """
        async with self._changed:
            await self._changed.wait_for(lambda: self._fits(prompt_tokens))
            held = prompt_tokens + self.expected_tokens
            self._held += held
            self._running += 1
            return held

    async def release(self, held: int, emitted_tokens: int | None) -> None:
        """Give a sample's room back. `emitted_tokens` is its length, or None where it did not end by itself."""
        async with self._changed:
            self._held -= held
            self._running -= 1
            if emitted_tokens is not None:
                self._lengths.append(emitted_tokens)
            self._changed.notify_all()

    def _fits(self, prompt_tokens: int) -> bool:
        if self._running >= self._concurrency:
            return False
        if self._capacity is None or self._running == 0:
            return True
        return self._held + prompt_tokens + self.expected_tokens <= self._capacity
