"""Run samples through the harness, record every request, and replay the requests on bare engines."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from harness.chain import Limits
from harness.engine import Engine, Role, Sampling
from harness.methods import Method
from harness.problems.problem import Problem
from harness.sample import run_sample
from harness.trace import Trace
from tools.bench.busy import Watch
from tools.bench.prefix_cache import RecordedCall, RecordingEngine


class BareEngine(Engine, Protocol):
    """An engine that can also be reached without the harness."""

    async def generate_bare(self, prompt: list[int], sampling: Sampling) -> int:
        """Generate exactly `max_tokens` tokens; return the number of cached prompt tokens."""


Engines = Mapping[Role, BareEngine]


@dataclass
class Run:
    """Samples that ran through the harness."""

    method: str
    traces: list[Trace]
    calls: list[list[RecordedCall]]
    """The calls of each sample, in order."""
    watch: Watch

    @property
    def spent_tokens(self) -> int:
        """Number of output tokens of both models."""
        return sum(trace.spent_tokens() for trace in self.traces)

    @property
    def emitted_tokens(self) -> int:
        """Number of tokens of the accepted chains."""
        return sum(trace.emitted_tokens for trace in self.traces)

    @property
    def cached_share(self) -> float:
        """Cached prompt tokens as a share of all prompt tokens; a call's prompt counts once per completion."""
        calls = [(len(call.lengths), call) for sample in self.calls for call in sample]
        return _share(sum(n * c.cached for n, c in calls), sum(n * len(c.prompt) for n, c in calls))


@dataclass
class Replay:
    """Result of replaying requests on bare engines."""

    cached_share: float
    watch: Watch


async def through_harness(
    engines: Engines, name: str, method: Method, problems: Sequence[Problem], limits: Limits, in_flight: int
) -> Run:
    """Run one sample per entry of `problems`, with at most `in_flight` at a time."""
    traces = [Trace(f"bench-{i}", problem.id, i, seed=i) for i, problem in enumerate(problems)]
    calls_by_sample: list[list[RecordedCall]] = [[] for _ in problems]
    semaphore = asyncio.Semaphore(in_flight)

    async def run_recorded(problem: Problem, trace: Trace, calls: list[RecordedCall]) -> None:
        recording = {role: RecordingEngine(engine, role, calls) for role, engine in engines.items()}
        async with semaphore:
            await run_sample(problem, method, recording, trace, limits)

    with Watch() as watch:
        await asyncio.gather(*(run_recorded(*sample) for sample in zip(problems, traces, calls_by_sample, strict=True)))
    for trace, calls in zip(traces, calls_by_sample, strict=True):
        if trace.error is not None:
            raise RuntimeError(f"a sample of the benchmark failed: {trace.error}")
        for call, recorded in zip(calls, trace.calls, strict=True):  # the calls of one sample run one after another
            call.purpose = recorded.purpose
    return Run(name, traces, calls_by_sample, watch)


async def at_bare_engines(engines: Engines, calls: Sequence[Sequence[RecordedCall]], in_flight: int) -> Replay:
    """Replay the same prompts, seeds, lengths, completions and order within a sample, without the harness."""
    requests = [
        [
            (engines[call.role], [(call.prompt, _exactly(call, i, length)) for i, length in enumerate(call.lengths)])
            for call in sample
        ]
        for sample in calls
    ]
    semaphore = asyncio.Semaphore(in_flight)
    cached_tokens = 0

    async def replay(sample: list[tuple[BareEngine, list[tuple[list[int], Sampling]]]]) -> None:
        nonlocal cached_tokens
        async with semaphore:
            for engine, completions in sample:
                cached = await asyncio.gather(*(engine.generate_bare(*request) for request in completions))
                cached_tokens += sum(cached)

    with Watch() as watch:
        await asyncio.gather(*(replay(sample) for sample in requests))
    prompt_tokens = sum(len(prompt) for sample in requests for _, batch in sample for prompt, _ in batch)
    return Replay(_share(cached_tokens, prompt_tokens), watch)


async def reset_prefix_caches(engines: Engines) -> None:
    """Empty the prefix caches of both engines."""
    for engine in engines.values():
        await engine.reset_prefix_cache()


def _exactly(call: RecordedCall, index: int, length: int) -> Sampling:
    return replace(call.sampling, max_tokens=length, seed=call.sampling.seed + index, stop=(), n=1)


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
