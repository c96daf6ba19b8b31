"""The check of the prefix cache."""

from __future__ import annotations

from harness.acceptance.outcome import CheckFailed, Goal, Measurement
from harness.acceptance.session import PAIR, Session
from harness.chain import Limits
from harness.checks import prefix_cache
from harness.checks.prefix_cache import RecordedCall, RecordingEngine
from harness.engine import Engine
from harness.methods import build
from harness.sample import run_sample
from harness.trace import Trace

_STEP_TOKENS = 24
_CHAIN_TOKENS = 256


async def check_prefix_cache(session: Session) -> list[Measurement]:
    """Let chains grow step by step, one after the other, and count what the cache held of them."""
    engines = await session.engines(PAIR)
    for engine in engines.values():
        await engine.reset_prefix_cache()
    method = build("specreason", {"step_tokens": _STEP_TOKENS})
    limits = Limits(temperature=0.6, top_p=0.95, token_budget=_CHAIN_TOKENS)
    samples: list[list[RecordedCall]] = []
    for number, problem in enumerate(session.problems[: session.plan.sizes.chains]):
        calls: list[RecordedCall] = []
        recording = {role: RecordingEngine(engine, role, calls) for role, engine in engines.items()}
        trace = Trace(f"chain-{number}", problem.id, number, seed=number)
        await run_sample(problem, method, recording, trace, limits)
        if trace.error is not None:
            raise CheckFailed(trace.error)
        samples.append(calls)
    tokens = prefix_cache.total(samples, _block_tokens(engines["target"]))
    share = tokens.reused / tokens.reusable if tokens.reusable else None
    return [
        Measurement("cached of what could be", share, goal=Goal(">=", prefix_cache.GOAL)),
        Measurement("tokens that could be", tokens.reusable, goal=Goal(">=", 1)),
        Measurement("cached of all prompt tokens", tokens.cached / max(1, tokens.prompt)),
    ]


def _block_tokens(engine: Engine) -> int:
    llm = getattr(getattr(engine, "process", None), "llm", None)
    return int(llm.vllm_config.cache_config.block_size) if llm is not None else 16
