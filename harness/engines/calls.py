"""Engine calls: timing, parallel requests, taking turns, and stalls.

Turns: while one engine is working, requests to the other engine wait. SpecReason's paper describes its system this way
(section 4.1), but the published script starts 16 processes that use both servers, so both work at the same time. SCoT's
code runs one problem at a time; SpecCoT's code is not published. By default, both engines here work whenever they have
requests. `--take-turns` makes them alternate, to measure the gain of working at the same time.

Stalls: an engine with unfinished requests may stop working, for instance on a hung GPU. Its processes stay alive, so
the call would never return, and the node would stay allocated. Engines therefore report their work to a `StallClock`
(see `harness.engines.vllm_patches.report_work`).
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
    """Times of one call. An engine may set `queued_seconds` and `first_token_seconds`."""

    def __init__(self, in_flight: int) -> None:
        """Start the clock. `in_flight`: number of running calls, including this one."""
        self.queued_seconds = 0.0
        self.first_token_seconds: float | None = None
        self._in_flight = in_flight
        self._submitted_at, self._begun = time.time(), time.monotonic()
        self._end_seconds = 0.0

    def elapsed(self) -> float:
        return time.monotonic() - self._begun

    def stop(self) -> None:
        self._end_seconds = self.elapsed()

    def timing(self) -> Timing:
        """Return the times of an ended call. If the first token's time is unknown, it is the end."""
        end = self._end_seconds
        first = end if self.first_token_seconds is None else min(self.first_token_seconds, end)
        return Timing(self._submitted_at, min(self.queued_seconds, end), first, end, self._in_flight)


class Calls:
    """The running calls of one engine."""

    def __init__(self) -> None:
        self.in_flight = 0

    @contextlib.asynccontextmanager
    async def clocked(self) -> AsyncIterator[CallClock]:
        """Time one call and count it as running."""
        self.in_flight += 1
        clock = CallClock(self.in_flight)
        try:
            yield clock
        finally:
            self.in_flight -= 1
            clock.stop()


async def gather_or_cancel(requests: Sequence[Awaitable[_T]]) -> list[_T]:
    """Return the results of all requests; if one fails or the caller is cancelled, the others are cancelled."""
    if len(requests) == 1:
        return [await requests[0]]
    tasks = [asyncio.ensure_future(request) for request in requests]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def room_behind(prompt: Sequence[int], context_tokens: int, vocabulary: int | None = None) -> int:
    """Return the number of tokens that may follow a prompt.

    Raises RequestRefused if the prompt is empty, fills the context, or has ids outside the vocabulary.
    """
    room = context_tokens - len(prompt)
    if not prompt or room < 1:
        full = f"a prompt of {len(prompt)} tokens leaves no room in a context of {context_tokens} tokens"
        raise RequestRefused(full if prompt else "the prompt is empty")
    if vocabulary is not None and not all(0 <= i < vocabulary for i in prompt):
        raise RequestRefused(f"the prompt has a token id outside the vocabulary of {vocabulary}")
    return room


def check_options(options: Sequence[int], vocabulary: int | None = None) -> None:
    """Raise RequestRefused if the options of a `choose` request are empty, not distinct, or outside the vocabulary."""
    is_known = vocabulary is None or all(0 <= option < vocabulary for option in options)
    if not options or len(set(options)) != len(options) or not is_known:
        raise RequestRefused(f"options must be distinct tokens of the model: {list(options)}")


def check_continuation(prompt: Sequence[int], continuation: Sequence[int]) -> None:
    """Raise RequestRefused if the prompt or the continuation of a `log_probabilities` request is empty."""
    if not prompt or not continuation:
        raise RequestRefused(
            f"the prompt ({len(prompt)} tokens) and the continuation ({len(continuation)} tokens) must not be empty"
        )


def finite(role: Role, options: Sequence[int], logprobs: Sequence[float]) -> tuple[float, ...]:
    """Return the log-probabilities of a `choose` call, or the outputs of a `rate` call, if all are finite.

    Raises VerdictUnavailable.
    """
    if not all(map(math.isfinite, logprobs)):
        raise VerdictUnavailable(f"the {role} engine returned non-finite values: {tuple(logprobs)} for {list(options)}")
    return tuple(logprobs)


NUM_RANKED = 20
"""Number of most probable tokens in an entropy: the maximum that vLLM returns by default."""


def entropy_bound(logprobs: Iterable[float]) -> float:
    """Return a lower bound on a distribution's entropy (nats) from the log-probabilities of some of its tokens.

    All other tokens count as one token. The bound lacks the entropy among them, weighted by their total probability.
    """
    known = [x for x in logprobs if math.isfinite(x)]
    rest = max(0.0, 1.0 - sum(math.exp(x) for x in known))
    return -sum(math.exp(x) * x for x in known) - (rest * math.log(rest) if rest > 0 else 0.0)


def ranked_entropy(logprobs: Sequence[float], num_ranked: int) -> float:
    """Return the lower bound on an entropy from the most probable tokens (see `entropy_bound`).

    Raises VerdictUnavailable if there are fewer than `num_ranked` log-probabilities, or if any is not finite.
    """
    if len(logprobs) < num_ranked or not all(map(math.isfinite, logprobs)):
        raise VerdictUnavailable(
            f"{len(logprobs)} log-probabilities for a token; an entropy needs {num_ranked} or more, all finite"
        )
    return entropy_bound(logprobs)


Kind = Literal["named", "ranked"]


class Batches:
    """Keeps requests for specific tokens (verdicts) and for the most probable ones (entropies) in separate batches.

    vLLM's V1 runner applies the specific tokens of a batch's verdicts to all requests of the batch, and returns -inf
    for all other tokens. Requests of one kind therefore run together, and those of the other kind wait.
    """

    def __init__(self) -> None:
        self._kind: Kind | None = None
        self._running = 0
        self._free = asyncio.Event()

    @contextlib.asynccontextmanager
    async def of(self, kind: Kind) -> AsyncIterator[None]:
        """Wait until no request of the other kind is running; while the block runs, requests of the other kind wait."""
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
    """Lets the engines of a worker take turns.

    The turn passes when the working engine is done and requests for the other engine wait. New requests for the working
    engine start at once, unless requests for the other engine wait, which would otherwise never get their turn.
    """

    def __init__(self) -> None:
        self._working_role: Role | None = None
        self._num_working = 0
        self._waiting: list[tuple[Role, asyncio.Future[None]]] = []
        """Role and wake-up of each waiting request, in order of arrival."""

    @contextlib.asynccontextmanager
    async def turn(self, role: Role) -> AsyncIterator[float]:
        """Wait for the role's turn and hold it; yield the waiting time in seconds."""
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
    """Forwards every request to an engine. With `turns`, requests first wait for their turn, counted as queueing."""

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
    """Return a worker's engines, wrapped so that only one works at a time."""
    turns = Turns()
    return {role: EngineWrapper(engine, role, turns) for role, engine in engines.items()}


LIMIT = "HARNESS_ENGINE_STALL_SECONDS"
"""Environment variable: seconds without work after which an engine with unfinished requests is terminated; 0: never. It
is not a setting of a run, because results do not depend on it."""
_DEFAULT_LIMIT_SECONDS = 1800.0
"""Far above the longest step: vLLM itself ends an engine whose ranks compute for more than 300 s."""
_MOST_SECONDS_PER_LOOK = 10.0
"""Maximum idle time counted between two checks: a suspended or slow worker process could not observe the engine."""


def limit_seconds() -> float:
    """Return the stall limit from the environment, in seconds; 0: none. Raises ValueError."""
    text = os.environ.get(LIMIT, "").strip()
    try:
        limit = float(text) if text else _DEFAULT_LIMIT_SECONDS
    except ValueError:
        limit = math.nan
    if not 0 <= limit < math.inf:
        raise ValueError(f"{LIMIT}={text}: expected a number of seconds, or 0 to never terminate a stalled engine")
    return limit


class StallClock:
    """Measures how long one engine has been idle with unfinished requests."""

    def __init__(self, limit: float, now: Callable[[], float] = time.monotonic) -> None:
        """`limit`: seconds, 0 for none; `now`: a monotonic clock in seconds."""
        self._limit, self._now = limit, now
        self._looked_at = now()
        self._idle_seconds = 0.0
        self._has_worked = self._was_waiting = False

    def note_work(self) -> None:
        """Note that the engine has worked. Called for every batch, so it does not read the clock."""
        self._has_worked = True

    def stalled(self, num_unfinished: int) -> str | None:
        """Return a message if the limit has passed with unfinished requests; None otherwise.

        Call it about every second. Idle time starts at the first check with an unfinished request or, if later, the
        first check after the last work. An engine without requests is never stalled.
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
