"""What stands around the calls of an engine: their times, several requests as one, turns, and when none is answered.

Turns: while one engine is working, requests to the other one wait. SpecReason's paper describes its system so (section
4.1). Its published script starts 16 processes against both servers, so there both work at once; SCoT's program runs one
problem at a time; SpecCoT's is not published. By default both engines here work whenever any sample has a request for
them. `--take-turns` turns that off, so that its gain can be measured.

Stalls: an engine with unfinished requests may have stopped working, as with a hung card. Its processes are alive, so
nothing else notices it: the call would never return, and its node stay taken. What counts as work is the engine's to
say (see `harness.engines.vllm_plugin.report_work`).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypeVar

from harness.cli.messages import counted
from harness.engine import (
    Choice,
    Engine,
    Generation,
    Likelihood,
    Rating,
    RequestRefused,
    Role,
    Sampling,
    Timing,
    Tokenizer,
    VerdictUnavailable,
)

_T = TypeVar("_T")
_Reply = TypeVar("_Reply", Generation, Choice, Likelihood, Rating)


class CallClock:
    """Times of one call. An engine that knows when its work began and gave the first token sets those."""

    def __init__(self, in_flight: int) -> None:
        """Start the clock. `in_flight` is the number of calls under way, this one included."""
        self.queued_seconds = 0.0
        self.first_token_seconds: float | None = None
        self._in_flight = in_flight
        self._submitted_at, self._begun = time.time(), time.monotonic()
        self._end_seconds = 0.0

    def elapsed(self) -> float:
        """Return the seconds since the call began."""
        return time.monotonic() - self._begun

    def stop(self) -> None:
        """Stop the clock: the call has ended."""
        self._end_seconds = self.elapsed()

    def timing(self) -> Timing:
        """Return the times of a call that has ended; without the first token's, that is the end's."""
        end = self._end_seconds
        first = end if self.first_token_seconds is None else min(self.first_token_seconds, end)
        return Timing(self._submitted_at, min(self.queued_seconds, end), first, end, self._in_flight)


class Calls:
    """The calls under way at one engine."""

    def __init__(self) -> None:
        self.in_flight = 0

    @contextlib.asynccontextmanager
    async def clocked(self) -> AsyncIterator[CallClock]:
        """Time one call and count it among those in flight."""
        self.in_flight += 1
        clock = CallClock(self.in_flight)
        try:
            yield clock
        finally:
            self.in_flight -= 1
            clock.stop()


async def gather_or_cancel(requests: Sequence[Awaitable[_T]]) -> list[_T]:
    """Return all results. When one request fails or the caller is cancelled, the other requests are cancelled."""
    if len(requests) == 1:
        return [await requests[0]]
    tasks = [asyncio.ensure_future(request) for request in requests]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def room_behind(prompt: Sequence[int], context_tokens: int, vocabulary: int | None = None) -> int:
    """Return how many tokens may follow a prompt.

    Raises RequestRefused where it is empty or fills the context, or has ids outside of a vocabulary.
    """
    room = context_tokens - len(prompt)
    if not prompt or room < 1:
        raise RequestRefused(f"a prompt of {len(prompt)} tokens in a context of {context_tokens}")
    if vocabulary is not None and not all(0 <= i < vocabulary for i in prompt):
        raise RequestRefused(f"a token id outside the vocabulary of {vocabulary}")
    return room


def check_options(options: Sequence[int], vocabulary: int | None = None) -> None:
    """Raise RequestRefused where the options of a `choose` are none, not distinct, or outside of a vocabulary."""
    is_known = vocabulary is None or all(0 <= option < vocabulary for option in options)
    if not options or len(set(options)) != len(options) or not is_known:
        raise RequestRefused(f"options must be distinct tokens of the model: {list(options)}")


def check_continuation(prompt: Sequence[int], continuation: Sequence[int]) -> None:
    """Raise RequestRefused where a part of a `log_probabilities` is empty."""
    if not prompt or not continuation:
        raise RequestRefused(f"a continuation of {len(continuation)} tokens behind a prompt of {len(prompt)}")


def finite(role: Role, options: Sequence[int], logprobs: Sequence[float]) -> tuple[float, ...]:
    """Return the log-probabilities of the options of a `choose`, or of a `rate` the outputs by class.

    Raises VerdictUnavailable.
    """
    if not all(map(math.isfinite, logprobs)):
        raise VerdictUnavailable(f"the {role} engine gave {tuple(logprobs)} for {list(options)}")
    return tuple(logprobs)


NUM_RANKED = 20
"""Most probable tokens that an entropy is computed from: the most that vLLM gives without a setting of its own."""


def entropy_bound(logprobs: Iterable[float]) -> float:
    """Return a lower bound on a distribution's entropy (nats) from the log-probabilities of some of its tokens.

    All other tokens count as one. What is missing is the entropy among those, times their probability together.
    """
    known = [x for x in logprobs if math.isfinite(x)]
    rest = max(0.0, 1.0 - sum(math.exp(x) for x in known))
    return -sum(math.exp(x) * x for x in known) - (rest * math.log(rest) if rest > 0 else 0.0)


def ranked_entropy(logprobs: Sequence[float], num_ranked: int) -> float:
    """Return the bound from the `num_ranked` most probable tokens. Raises VerdictUnavailable where some are missing."""
    if len(logprobs) < num_ranked or not all(map(math.isfinite, logprobs)):
        raise VerdictUnavailable(f"{len(logprobs)} log-probabilities of a token instead of {num_ranked}")
    return entropy_bound(logprobs)


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


class Turns:
    """Keeps track of whose turn it is.

    The turn passes when the working engine is done and requests wait for the other one. A request to the working engine
    joins in, unless requests wait for the other engine, which would otherwise never get its turn.
    """

    def __init__(self) -> None:
        self._working_role: Role | None = None
        self._num_working = 0
        self._waiting: list[tuple[Role, asyncio.Future[None]]] = []
        """Role and wake-up of each waiting request, in the order of arrival."""

    @contextlib.asynccontextmanager
    async def turn(self, role: Role) -> AsyncIterator[float]:
        """Work in the role's turn; yields the seconds spent waiting for it."""
        requested_at = time.monotonic()
        wake_up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((role, wake_up))
        self._pass_on()
        try:
            await wake_up
            yield time.monotonic() - requested_at
        finally:
            self._num_working -= not wake_up.cancelled()  # cancelled: its turn had not come
            self._pass_on()

    def _pass_on(self) -> None:
        self._waiting = [(role, wake_up) for role, wake_up in self._waiting if not wake_up.done()]
        others = [role for role, _ in self._waiting if role != self._working_role]
        if not self._waiting or (self._num_working and others):
            return
        self._working_role = following = others[0] if others else self._waiting[0][0]
        for role, wake_up in self._waiting:
            if role == following:
                self._num_working += 1
                wake_up.set_result(None)


class EngineWrapper:
    """Passes every request on to the inner engine, in its turn where there are some: the wait counts as queueing."""

    def __init__(self, engine: Engine, role: Role, turns: Turns | None = None) -> None:
        self.inner = engine
        self._role: Role = role
        self._turns = turns

    @property
    def tokenizer(self) -> Tokenizer:
        return self.inner.tokenizer

    @property
    def context_tokens(self) -> int:
        return self.inner.context_tokens

    @property
    def kv_tokens(self) -> int | None:
        return self.inner.kv_tokens

    @property
    def restarts(self) -> int:
        return self.inner.restarts

    @property
    def has_head(self) -> bool:
        return self.inner.has_head

    async def generate(self, prompt: Sequence[int], sampling: Sampling) -> Generation:
        return await self._in_turn(lambda: self.inner.generate(prompt, sampling))

    async def choose(self, prompt: Sequence[int], options: Sequence[int]) -> Choice:
        return await self._in_turn(lambda: self.inner.choose(prompt, options))

    async def log_probabilities(self, prompt: Sequence[int], continuation: Sequence[int]) -> Likelihood:
        return await self._in_turn(lambda: self.inner.log_probabilities(prompt, continuation))

    async def rate(self, prompt: Sequence[int]) -> Rating:
        return await self._in_turn(lambda: self.inner.rate(prompt))

    async def reset_prefix_cache(self) -> bool:
        return await self.inner.reset_prefix_cache()

    async def close(self) -> None:
        await self.inner.close()

    async def _in_turn(self, call: Callable[[], Awaitable[_Reply]]) -> _Reply:
        if self._turns is None:
            return await call()
        async with self._turns.turn(self._role) as waited:
            reply = await call()
        own = reply.timing
        queued, first, end = own.queued_seconds + waited, own.first_token_seconds + waited, own.end_seconds + waited
        return replace(reply, timing=Timing(own.submitted_at - waited, queued, first, end, own.in_flight))


def taking_turns(engines: Mapping[Role, Engine]) -> dict[Role, Engine]:
    """Return the engines of one worker such that never two of them work at the same time."""
    turns = Turns()
    return {role: EngineWrapper(engine, role, turns) for role, engine in engines.items()}


LIMIT = "HARNESS_ENGINE_STALL_SECONDS"
"""Environment variable: seconds without any work after which an engine is ended; 0 for never. No result depends on it,
so it is no setting of a run."""
_DEFAULT_LIMIT_SECONDS = 1800.0
"""Far above the longest step: vLLM itself ends an engine whose ranks compute longer than 300 s on one."""
_MOST_SECONDS_PER_LOOK = 10.0
"""What one look adds at most. Where this process did not run itself, suspended with its job or short of a processor, it
has not seen whether the engine worked."""


def limit_seconds() -> float:
    """Return the limit that the environment sets. Raises ValueError."""
    text = os.environ.get(LIMIT, "").strip()
    try:
        limit = float(text) if text else _DEFAULT_LIMIT_SECONDS
    except ValueError:
        limit = math.nan
    if not 0 <= limit < math.inf:
        raise ValueError(f"{LIMIT}={text}: expected a number of seconds, or 0 to never end an engine that stalls")
    return limit


class StallClock:
    """How long one engine has done nothing although requests were unfinished."""

    def __init__(self, limit: float, now: Callable[[], float] = time.monotonic) -> None:
        """`limit`: seconds, 0 for none; `now`: a clock in seconds that is never set back."""
        self._limit, self._now = limit, now
        self._looked_at = now()
        self._idle_seconds = 0.0
        self._has_worked = self._was_waiting = False

    def note_work(self) -> None:
        """Take note that the engine has done something. It is called for every batch, so it reads no clock."""
        self._has_worked = True

    def stalled(self, num_unfinished: int) -> str | None:
        """Return in words that the limit has passed with so many requests unfinished; None where it has not.

        Call it every second or so. The time counts from the look that first sees an unfinished request, or that follows
        the last work. An engine without requests is not stalled, however long it waits for some.
        """
        now = self._now()
        elapsed, self._looked_at = now - self._looked_at, now
        if self._has_worked or not num_unfinished:
            self._idle_seconds = 0.0
        elif self._was_waiting:
            self._idle_seconds += min(elapsed, _MOST_SECONDS_PER_LOOK)
        self._has_worked, self._was_waiting = False, num_unfinished > 0
        if not self._limit or self._idle_seconds < self._limit:
            return None
        return f"no output for {self._limit:,.10g} s with {counted(num_unfinished, 'request')} unfinished"
