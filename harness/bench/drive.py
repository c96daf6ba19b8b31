"""Samples through the harness, with every request kept; and the same requests again at bare engines."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from harness.bench.busy import Watch
from harness.chain import Limits
from harness.engine import Choice, Engine, Generation, Role, Sampling
from harness.engines.wrapper import EngineWrapper
from harness.methods import Method
from harness.problem import Problem
from harness.sample import run_sample
from harness.trace import Purpose, Trace

_VERDICT = Sampling(max_tokens=1)


class BareEngine(Engine, Protocol):
    """An engine that can also be reached without the harness."""

    async def generate_bare(self, prompt: list[int], sampling: Sampling) -> int:
        """Generate exactly `max_tokens`; returns the cached prompt tokens."""

    async def reset_prefix_cache(self) -> None:
        """Empty the prefix cache."""


Engines = Mapping[Role, BareEngine]


@dataclass(slots=True)
class Asked:
    """One call as it reached an engine, and what was generated."""

    role: Role
    prompt: list[int]
    sampling: Sampling
    outputs: list[tuple[int, ...]]
    """Generated ids of each completion; empty for a verdict."""
    lengths: list[int]
    cached: int
    purpose: Purpose = "verdict"


class Tap(EngineWrapper):
    """An engine that keeps what it is asked."""

    def __init__(self, engine: Engine, role: Role, asked: list[Asked]) -> None:
        super().__init__(engine, role)
        self._asked = asked

    async def generate(self, prompt: Sequence[int], sampling: Sampling) -> Generation:
        """See Engine."""
        ids = list(prompt)
        reply = await self._engine.generate(prompt, sampling)
        lengths = [c.num_tokens for c in reply.completions]
        outputs = [c.token_ids for c in reply.completions]
        self._asked.append(Asked(self._role, ids, sampling, outputs, lengths, reply.cached_tokens))
        return reply

    async def choose(self, prompt: Sequence[int], options: Sequence[int]) -> Choice:
        """See Engine."""
        ids = list(prompt)
        reply = await self._engine.choose(prompt, options)
        self._asked.append(Asked(self._role, ids, _VERDICT, [], [1], reply.cached_tokens))
        return reply

    async def close(self) -> None:
        """Nothing: the engine goes on."""


@dataclass
class Run:
    """Samples that went through the harness."""

    method: str
    traces: list[Trace]
    asked: list[list[Asked]]
    """Per sample, in order."""
    watch: Watch

    @property
    def spent_tokens(self) -> int:
        """Output tokens of both models."""
        return sum(trace.spent_tokens() for trace in self.traces)

    @property
    def emitted_tokens(self) -> int:
        """Tokens of the accepted chains."""
        return sum(trace.emitted_tokens for trace in self.traces)

    @property
    def cached_share(self) -> float:
        """Cached prompt tokens of all prompt tokens; of parallel completions each counts."""
        calls = [(len(call.lengths), call) for sample in self.asked for call in sample]
        return _share(sum(n * c.cached for n, c in calls), sum(n * len(c.prompt) for n, c in calls))


@dataclass
class Replay:
    """The same requests at bare engines."""

    cached_share: float
    watch: Watch


async def through_harness(
    engines: Engines, name: str, method: Method, problems: Sequence[Problem], limits: Limits, in_flight: int
) -> Run:
    """One sample per entry of `problems`, with at most `in_flight` at a time."""
    traces = [Trace(f"bench-{i}", problem.id, i, seed=i) for i, problem in enumerate(problems)]
    asked: list[list[Asked]] = [[] for _ in problems]
    room = asyncio.Semaphore(in_flight)

    async def one(problem: Problem, trace: Trace, calls: list[Asked]) -> None:
        taps = {role: Tap(engine, role, calls) for role, engine in engines.items()}
        async with room:
            await run_sample(problem, method, taps, trace, limits)

    with Watch() as watch:
        await asyncio.gather(*(one(*sample) for sample in zip(problems, traces, asked, strict=True)))
    for trace, calls in zip(traces, asked, strict=True):
        if trace.error is not None:
            raise RuntimeError(f"a sample of the benchmark failed: {trace.error}")
        for call, recorded in zip(calls, trace.calls, strict=True):  # calls of one sample run in turn
            call.purpose = recorded.purpose
    return Run(name, traces, asked, watch)


async def at_bare_engines(engines: Engines, asked: Sequence[Sequence[Asked]], in_flight: int) -> Replay:
    """The same prompts, seeds, lengths, widths and order within a sample; no chain, no record, no decisions."""
    requests = [
        [
            (engines[call.role], [(call.prompt, _exactly(call, i, length)) for i, length in enumerate(call.lengths)])
            for call in sample
        ]
        for sample in asked
    ]
    room = asyncio.Semaphore(in_flight)
    cached = 0

    async def one(calls: list[tuple[BareEngine, list[tuple[list[int], Sampling]]]]) -> None:
        nonlocal cached
        async with room:
            for engine, wanted in calls:
                found = await asyncio.gather(*(engine.generate_bare(*request) for request in wanted))
                cached += sum(found)

    with Watch() as watch:
        await asyncio.gather(*(one(calls) for calls in requests))
    prompts = sum(len(prompt) for calls in requests for _, wanted in calls for prompt, _ in wanted)
    return Replay(_share(cached, prompts), watch)


async def reset_prefix_caches(engines: Engines) -> None:
    """Empty the prefix caches of both engines."""
    for engine in engines.values():
        await engine.reset_prefix_cache()


def _exactly(call: Asked, index: int, length: int) -> Sampling:
    return replace(call.sampling, max_tokens=length, seed=call.sampling.seed + index, stop=(), n=1)


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
