"""A model as methods use it: an engine whose requests are all recorded.

Models record calls, methods record decisions. A method can only reach an engine through a Model, so every rejected
draft, verdict, and discarded early request is counted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field

from harness.engine import (
    Choice,
    Completion,
    Engine,
    EngineError,
    Generation,
    Likelihood,
    Rating,
    Role,
    Sampling,
    Timing,
    Tokenizer,
)
from harness.engines.calls import gather_or_cancel
from harness.trace import Call, Purpose, Trace


@dataclass(slots=True)
class _EarlyRequest:
    """A request that was sent early and may not be needed."""

    prompt: list[int]
    sampling: Sampling
    step: int
    task: asyncio.Task[Generation] = field(init=False)
    reply: Generation | None = None
    discarded: bool = False


class Model:
    """One engine in one role, which records its calls in one sample's trace."""

    def __init__(self, engine: Engine, role: Role, trace: Trace) -> None:
        self.engine = engine
        self.tokenizer: Tokenizer = engine.tokenizer
        self.role: Role = role
        self._trace = trace
        self._ahead: _EarlyRequest | None = None
        self._discarded: list[_EarlyRequest] = []

    async def generate(
        self, prompt: Sequence[int], sampling: Sampling, *, purpose: Purpose, step: int
    ) -> tuple[Completion, ...]:
        """Call Engine.generate and record the call. If `begin` already sent the same request, use its reply."""
        ahead = self._ahead
        if ahead is None or (ahead.prompt, ahead.sampling) != (list(prompt), sampling):
            self.discard()
            reply = await self.engine.generate(prompt, sampling)
            self._record_generation(purpose, step, reply)
            return reply.completions
        self._ahead, needed_at = None, time.monotonic()
        reply = await ahead.task
        call = self._record_generation(purpose, step, reply)
        call.overlapped_seconds = max(0.0, call.end_seconds - (time.monotonic() - needed_at))
        return reply.completions

    async def generate_each(
        self, requests: Sequence[tuple[Sequence[int], Sampling]], *, purpose: Purpose, step: int
    ) -> list[Completion]:
        """Call Engine.generate for several prompts in parallel, recorded as one call, because a user waits only once.

        Every request is for one completion. If one fails, the others are cancelled.
        """
        self.discard()
        replies = await gather_or_cancel([self.engine.generate(*request) for request in requests])
        completions = tuple(completion for reply in replies for completion in reply.completions)
        tokens = sum(reply.prompt_tokens for reply in replies), sum(reply.cached_tokens for reply in replies)
        timing = _together([reply.timing for reply in replies])
        self._record_generation(purpose, step, Generation(completions, *tokens, timing))
        return list(completions)

    async def log_probabilities(
        self, prompts: Sequence[Sequence[int]], continuations: Sequence[Sequence[int]], *, step: int
    ) -> tuple[Likelihood, ...]:
        """Call Engine.log_probabilities for all pairs in parallel; record one verdict, one output token per pair."""
        pairs = zip(prompts, continuations, strict=True)
        replies = await gather_or_cancel([self.engine.log_probabilities(*pair) for pair in pairs])
        self._record_verdicts(step, replies)
        return tuple(replies)

    async def rate_each(self, prompts: Sequence[Sequence[int]], *, step: int) -> tuple[Rating, ...]:
        """Call Engine.rate for each prompt in parallel; record one verdict without output tokens."""
        replies = await gather_or_cancel([self.engine.rate(prompt) for prompt in prompts])
        self._record_verdicts(step, replies, 0)
        return tuple(replies)

    def begin(self, prompt: Sequence[int], sampling: Sampling, *, step: int) -> None:
        """Send the request that the next `generate` will probably make. A second `begin` discards the first request."""
        self.discard()
        self._ahead = ahead = _EarlyRequest(list(prompt), sampling, step)
        ahead.task = asyncio.create_task(self._generate_ahead(ahead), name=f"step {step} ahead of its turn")

    def discard(self) -> None:
        """Discard the request sent by `begin`. It runs to its end, so that its tokens can be counted."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.discarded = True
            self._discarded.append(ahead)
            self._record_discarded(ahead)

    async def finish_discarded(self) -> None:
        """Wait for the discarded requests. Their engine errors are ignored: the engine's next request raises them."""
        self.discard()
        for ahead in self._discarded:
            with suppress(EngineError):
                await ahead.task

    async def cancel(self) -> None:
        """Cancel the requests that are still running, because the sample has failed."""
        self.discard()
        tasks = [ahead.task for ahead in self._discarded]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def choose_each(
        self, prompts: Sequence[Sequence[int]], options: Sequence[int], *, step: int
    ) -> tuple[Choice, ...]:
        """Call Engine.choose for several prompts in parallel, recorded as one call, because a user waits only once."""
        replies = await gather_or_cancel([self.engine.choose(prompt, options) for prompt in prompts])
        self._record_verdicts(step, replies)
        return tuple(replies)

    async def _generate_ahead(self, ahead: _EarlyRequest) -> Generation:
        ahead.reply = await self.engine.generate(ahead.prompt, ahead.sampling)
        self._record_discarded(ahead)
        return ahead.reply

    def _record_discarded(self, ahead: _EarlyRequest) -> None:
        """Record a request once it is both discarded and finished."""
        if ahead.discarded and ahead.reply is not None:
            call = self._record_generation("lookahead", ahead.step, ahead.reply)
            call.overlapped_seconds = call.end_seconds

    def _record_generation(self, purpose: Purpose, step: int, reply: Generation) -> Call:
        lengths = [c.num_tokens for c in reply.completions]
        call = self._record(purpose, step, reply.timing, (reply.prompt_tokens, reply.cached_tokens), lengths)
        call.proposed_tokens = _total([c.proposed_tokens for c in reply.completions])
        call.accepted_tokens = _total([c.accepted_tokens for c in reply.completions])
        return call

    def _record_verdicts(self, step: int, replies: Sequence[Choice | Likelihood | Rating], written: int = 1) -> None:
        tokens = sum(r.prompt_tokens for r in replies), sum(r.cached_tokens for r in replies)
        self._record("verdict", step, _together([r.timing for r in replies]), tokens, [written] * len(replies))

    def _record(self, purpose: Purpose, step: int, timing: Timing, prompt: tuple[int, int], lengths: list[int]) -> Call:
        call = Call(
            purpose=purpose,
            model=self.role,
            step=step,
            n=len(lengths),
            prompt_tokens=prompt[0],
            cached_tokens=prompt[1],
            output_tokens=sum(lengths),
            longest_output_tokens=max(lengths),
            **asdict(timing),
        )
        self._trace.calls.append(call)
        return call


@asynccontextmanager
async def recording_models(
    engines: Mapping[Role, Engine], roles: Sequence[Role], trace: Trace
) -> AsyncIterator[dict[Role, Model]]:
    """Yield the models of one sample, by role.

    On exit, discarded requests are awaited, or cancelled if the sample has failed.
    """
    models = {role: Model(engines[role], role, trace) for role in roles}
    try:
        yield models
        for model in models.values():
            await model.finish_discarded()
    finally:
        for model in models.values():
            await model.cancel()


def _together(timings: Sequence[Timing]) -> Timing:
    """Return the combined timing of parallel requests, from the first submission to the last end."""
    submitted_at = min(timing.submitted_at for timing in timings)
    delays = [timing.submitted_at - submitted_at for timing in timings]
    return Timing(
        submitted_at=submitted_at,
        queued_seconds=min(timing.queued_seconds for timing in timings),
        first_token_seconds=max(t + timing.first_token_seconds for t, timing in zip(delays, timings, strict=True)),
        end_seconds=max(t + timing.end_seconds for t, timing in zip(delays, timings, strict=True)),
        in_flight=max(timing.in_flight for timing in timings),
    )


def _total(counts: Sequence[int | None]) -> int | None:
    counted = [count for count in counts if count is not None]
    return sum(counted) if counted else None
