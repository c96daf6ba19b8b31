"""What a vLLM reply says about the distribution of each token, and which requests must not meet in one batch."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, Literal

from harness.engine import EngineDied, VerdictUnavailable

NUM_RANKED = 20
"""Most probable tokens that an entropy is computed from: the most that vLLM gives without a setting of its own."""


def entropy_bound(logprobs: Iterable[float]) -> float:
    """Return a lower bound on a distribution's entropy (nats) from the log-probabilities of some of its tokens.

    All other tokens count as one. What is missing is the entropy among those, times their probability together.
    """
    known = [x for x in logprobs if math.isfinite(x)]
    rest = max(0.0, 1.0 - sum(math.exp(x) for x in known))
    return -sum(math.exp(x) * x for x in known) - (rest * math.log(rest) if rest > 0 else 0.0)


def token_logprobs(output: Any) -> tuple[float, ...]:
    """Return the log-probability of each token of vLLM's CompletionOutput."""
    return tuple(ranked[token].logprob for token, ranked in zip(output.token_ids, output.logprobs, strict=True))


def entropies(output: Any, num_ranked: int) -> tuple[float, ...]:
    """Return a lower bound on the entropy at each token of vLLM's CompletionOutput.

    Raises VerdictUnavailable where a position lacks some of the `num_ranked` most probable tokens.
    """
    bounds = []
    for ranked in output.logprobs:
        logprobs = [entry.logprob for entry in ranked.values()]
        if len(logprobs) < num_ranked or not all(map(math.isfinite, logprobs)):
            raise VerdictUnavailable(f"{len(logprobs)} log-probabilities of a token instead of {num_ranked}")
        bounds.append(entropy_bound(logprobs))
    return tuple(bounds)


def given_logprobs(prompt_logprobs: Sequence[Any] | None, ids: Sequence[int], start: int) -> tuple[float, ...]:
    """Return the log-probabilities of the ids of a prompt from `start` on, out of vLLM's `prompt_logprobs`.

    Raises EngineDied where the engine does not give them: it gives none of any text.
    """
    if prompt_logprobs is None or len(prompt_logprobs) != len(ids):
        raise EngineDied("this engine does not give the log-probabilities of a prompt")
    ranked = zip(ids[start:], prompt_logprobs[start:], strict=True)
    return tuple(float(entries[token].logprob) for token, entries in ranked)


Kind = Literal["named", "ranked"]


class Batches:
    """Keeps requests for named tokens (verdicts) and for the most probable ones (entropies) out of one batch.

    vLLM's V1 runner gives all requests of a batch the named tokens of its verdicts, and -inf for the rest. Requests of
    one kind run together, and those of the other kind wait. Neither kind waits where only one is used.
    """

    def __init__(self) -> None:
        self._kind: Kind | None = None
        self._running = 0
        self._free = asyncio.Event()

    @contextlib.asynccontextmanager
    async def of(self, kind: Kind) -> AsyncIterator[None]:
        """Wait until no request of the other kind runs, and run one of this kind."""
        while self._kind not in (None, kind):
            await self._free.wait()
        self._kind, self._running = kind, self._running + 1
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                self._kind = None
                self._free.set()
                self._free = asyncio.Event()
