"""`python -m tools.bench.memory N`: measure the process's memory with N samples in flight on scripted engines."""

from __future__ import annotations

import asyncio
import json
import resource
import sys

from harness.chain import Limits
from harness.engine import Role, Sampling
from harness.engines.scripted import ScriptedEngine
from harness.methods import build
from harness.problems.problem import Problem
from harness.sample import run_sample
from harness.trace import Trace

_TOKENS = 4096
_DRAFTS = 5
_STEP_TOKENS = 256
_SECONDS_PER_CALL = 0.01
"""Delay of every call, so all samples start before the first one finishes."""


def _write(prompt: str, sampling: Sampling) -> list[str]:
    return [f"{sampling.seed + i} ".ljust(_STEP_TOKENS - 2, "x") + "\n\n" for i in range(sampling.n)]


def _judge(prompt: str, labels: tuple[str, ...]) -> list[float]:
    return [1.0] + [0.0] * (len(labels) - 1)


async def _run(samples: int) -> int:
    """Run all samples at once; return the largest number of samples in flight."""
    engines: dict[Role, ScriptedEngine] = {
        "draft": ScriptedEngine(_write, _judge, seconds_per_call=_SECONDS_PER_CALL),
        "target": ScriptedEngine(_write, _judge, seconds_per_call=_SECONDS_PER_CALL),
    }
    method = build("speccot", {"drafts": _DRAFTS, "step_tokens": _STEP_TOKENS})
    problem, limits = Problem("bench/0", "bench", "What is 2 + 3?", "5"), Limits(0.6, 0.95, _TOKENS)
    in_flight = most = 0

    async def run_one(i: int) -> None:
        nonlocal in_flight, most
        in_flight += 1
        most = max(most, in_flight)
        await run_sample(problem, method, engines, Trace(f"bench-{i}", problem.id, i, seed=i), limits)
        in_flight -= 1

    await asyncio.gather(*(run_one(i) for i in range(samples)))
    return most


def main(samples: int) -> None:
    """Print one JSON object."""
    before = _peak_bytes()
    most = asyncio.run(_run(samples))
    measured = {"before_bytes": before, "peak_bytes": _peak_bytes(), "most_in_flight": most}
    print(json.dumps({**measured, "tokens": _TOKENS, "drafts": _DRAFTS}))


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main(int(sys.argv[1]))
