"""Share of a sample's tokens that an engine found in its prefix cache, from the calls that reached the engine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.engine import Choice, Engine, Generation, Role, Sampling
from harness.engines.calls import EngineWrapper
from harness.trace import Purpose

GOAL = 0.9
"""Goal: minimum share of the reusable tokens that are cached."""
_VERDICT = Sampling(max_tokens=1)


@dataclass(slots=True)
class RecordedCall:
    """One call as it reached an engine, with its outputs."""

    role: Role
    prompt: list[int]
    sampling: Sampling
    outputs: list[tuple[int, ...]]
    """Generated ids of each completion; empty for a verdict."""
    lengths: list[int]
    cached: int
    purpose: Purpose = "verdict"


class RecordingEngine(EngineWrapper):
    """An engine that records its calls."""

    def __init__(self, engine: Engine, role: Role, calls: list[RecordedCall]) -> None:
        super().__init__(engine, role)
        self._calls = calls

    async def generate(self, prompt: Sequence[int], sampling: Sampling) -> Generation:
        """See Engine."""
        ids = list(prompt)
        reply = await self.inner.generate(prompt, sampling)
        lengths = [c.num_tokens for c in reply.completions]
        outputs = [c.token_ids for c in reply.completions]
        self._calls.append(RecordedCall(self._role, ids, sampling, outputs, lengths, reply.cached_tokens))
        return reply

    async def choose(self, prompt: Sequence[int], options: Sequence[int]) -> Choice:
        """See Engine."""
        ids = list(prompt)
        reply = await self.inner.choose(prompt, options)
        self._calls.append(RecordedCall(self._role, ids, _VERDICT, [], [1], reply.cached_tokens))
        return reply

    async def close(self) -> None:
        """Do nothing: the engine keeps running."""


@dataclass
class PromptTokens:
    """Counts of prompt tokens over a group of calls."""

    calls: int = 0
    prompt: int = 0
    cached: int = 0
    reusable: int = 0
    reused: int = 0
    """Reusable tokens that were cached."""

    def add(self, call: RecordedCall, reusable: int) -> None:
        """Add the counts of a call."""
        self.calls += 1
        self.prompt += len(call.prompt)
        self.cached += call.cached
        self.reusable += reusable
        self.reused += min(call.cached, reusable)


def total(samples: Iterable[Sequence[RecordedCall]], block_tokens: int) -> PromptTokens:
    """Return the counts over all calls of these samples."""
    tokens = PromptTokens()
    for sample in samples:
        for call, reusable in zip(sample, reusable_tokens(sample, block_tokens), strict=True):
            tokens.add(call, reusable)
    return tokens


def reusable_tokens(calls: Sequence[RecordedCall], block_tokens: int) -> list[int]:
    """Return for each call of one sample how many prompt tokens its engine had already computed for earlier calls.

    Only whole cache blocks count, and never the prompt's last token.
    """
    seen: dict[Role, list[Sequence[int]]] = defaultdict(list)
    counts = []
    for call in calls:
        num_seen = max((_common(call.prompt, ids) for ids in seen[call.role]), default=0)
        counts.append(min(num_seen, len(call.prompt) - 1) // block_tokens * block_tokens)
        seen[call.role] += [[*call.prompt, *ids[:-1]] for ids in call.outputs] or [call.prompt]
    return counts


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return i
    return min(len(a), len(b))
