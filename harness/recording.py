"""A model as a method sees it: an engine that writes down every request it gets.

The recorder records calls, the method records decisions. A method cannot reach an engine but through here, so none can
forget to count a refused draft or a verdict.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from harness.engine import Choice, Completion, Engine, Role, Sampling, Timing, Tokenizer
from harness.trace import Call, Purpose, Trace


class Model:
    """One engine in its role, recording into one sample's trace."""

    def __init__(self, engine: Engine, role: Role, trace: Trace) -> None:
        self.engine = engine
        self.role: Role = role
        self._trace = trace

    @property
    def tokenizer(self) -> Tokenizer:
        """The engine's tokenizer."""
        return self.engine.tokenizer

    async def generate(
        self, prompt: Sequence[int], sampling: Sampling, *, purpose: Purpose, step: int
    ) -> tuple[Completion, ...]:
        """Engine.generate, recorded."""
        reply = await self.engine.generate(prompt, sampling)
        lengths = [c.num_tokens for c in reply.completions]
        call = self._record(purpose, step, reply.timing, (reply.prompt_tokens, reply.cached_tokens), lengths)
        call.proposed_tokens = _total([c.proposed_tokens for c in reply.completions])
        call.confirmed_tokens = _total([c.confirmed_tokens for c in reply.completions])
        return reply.completions

    async def choose(self, prompt: Sequence[int], options: Sequence[int], *, step: int) -> Choice:
        """Engine.choose, recorded as a verdict of one token."""
        reply = await self.engine.choose(prompt, options)
        self._record("verdict", step, reply.timing, (reply.prompt_tokens, reply.cached_tokens), [1])
        return reply

    async def choose_each(
        self, prompts: Sequence[Sequence[int]], options: Sequence[int], *, step: int
    ) -> tuple[Choice, ...]:
        """Engine.choose of several prompts at once, recorded as one call of as many verdicts: a user waits once."""
        replies = await asyncio.gather(*(self.engine.choose(prompt, options) for prompt in prompts))
        begun = min(reply.timing.submitted_at for reply in replies)
        later = [reply.timing.submitted_at - begun for reply in replies]
        timing = Timing(
            submitted_at=begun,
            queued_seconds=min(reply.timing.queued_seconds for reply in replies),
            first_token_seconds=max(t + r.timing.first_token_seconds for t, r in zip(later, replies, strict=True)),
            end_seconds=max(t + r.timing.end_seconds for t, r in zip(later, replies, strict=True)),
            in_flight=max(reply.timing.in_flight for reply in replies),
        )
        tokens = sum(r.prompt_tokens for r in replies), sum(r.cached_tokens for r in replies)
        self._record("verdict", step, timing, tokens, [1] * len(replies))
        return tuple(replies)

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
            submitted_at=timing.submitted_at,
            queued_seconds=timing.queued_seconds,
            first_token_seconds=timing.first_token_seconds,
            end_seconds=timing.end_seconds,
            in_flight=timing.in_flight,
        )
        self._trace.calls.append(call)
        return call


def _total(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
