"""Checks of the prefix cache and of the throughput around bare vLLM, with the means of `harness.bench`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.acceptance.outcome import Goal, Measurement
from harness.acceptance.session import CANDIDATES, PAIR, REAL, Session
from harness.bench import cache, flight
from harness.bench.bare_vllm import BareVLLM
from harness.bench.drive import Engines, Replay, Run, at_bare_engines, reset_prefix_caches, through_harness
from harness.bench.setting import Bench
from harness.engine import Engine, Role

_STEP_TOKENS = 24
_CHAIN_TOKENS = 256
_BUSY_GOAL = 0.7
_ROUNDS = 2


async def check_prefix_cache(session: Session) -> list[Measurement]:
    """Let chains grow step by step, one after the other, and count what the cache held of them."""
    engines = await session.engines(PAIR)
    bench = _bench(session, engines)
    await reset_prefix_caches(bench.engines)
    problems = bench.wave(session.plan.sizes.chains)
    method, limits = bench.method("specreason"), bench.limits(_CHAIN_TOKENS)
    run = await through_harness(bench.engines, "specreason", method, problems, limits, 1)
    tokens = cache.total([run], bench.block_tokens)
    share = tokens.reused / tokens.reusable if tokens.reusable else None
    return [
        Measurement("cached of what could be", share, goal=Goal(">=", cache.GOAL)),
        Measurement("tokens that could be", tokens.reusable, goal=Goal(">=", 1)),
        Measurement("cached of all prompt tokens", run.cached_share),
    ]


async def check_throughput(session: Session, width: int) -> list[Measurement]:
    """Run samples through the harness, and send bare vLLM the same requests."""
    # On a GPU the bundled pair answers faster than the worker asks, so that only the worker would be measured.
    has_real_sizes = session.plan.device == "gpu" and session.plan.is_bundled
    engines = await session.engines(REAL if has_real_sizes else PAIR)
    bench = _bench(session, engines)
    limits = bench.limits(session.plan.sizes.flight_tokens)
    runs, replays = [], []
    for _ in range(_ROUNDS):
        await reset_prefix_caches(bench.engines)
        method, problems = bench.method("speccot"), bench.wave(width)
        runs.append(await through_harness(bench.engines, "speccot", method, problems, limits, width))
        await reset_prefix_caches(bench.engines)
        replays.append(await at_bare_engines(bench.engines, runs[-1].calls, width))
    return rates(runs, replays)


def rates(runs: Sequence[Run], replays: Sequence[Replay]) -> list[Measurement]:
    """Return what the fastest run and the fastest replay say: other work on the machine only slows them down."""
    run = min(runs, key=lambda run: run.watch.seconds)
    bare = min(replays, key=lambda replay: replay.watch.seconds)
    return [
        Measurement("harness ÷ bare", bare.watch.seconds / run.watch.seconds, goal=Goal(">=", flight.GOAL)),
        Measurement("loop busy", run.watch.busy_seconds / run.watch.seconds, goal=Goal("<", _BUSY_GOAL)),
        Measurement("loop busy, bare", bare.watch.busy_seconds / bare.watch.seconds),
        Measurement("tokens per second", run.spent_tokens / run.watch.seconds),
        Measurement("steps per second", sum(len(trace.steps) for trace in run.traces) / run.watch.seconds),
    ]


def _bench(session: Session, engines: Mapping[Role, Engine]) -> Bench:
    bare: Engines = {role: BareVLLM(engine, role) for role, engine in engines.items()}
    target = engines["target"]
    return Bench(
        engines=bare,
        problems=session.problems,
        tokens=_CHAIN_TOKENS,
        pairs=1,
        methods=["speccot"],
        in_flight=[],
        flight_tokens=session.plan.sizes.flight_tokens,
        step_tokens=_STEP_TOKENS,
        drafts=CANDIDATES,
        latency_problems=0,
        block_tokens=_block_tokens(target),
    )


def _block_tokens(engine: Engine) -> int:
    llm = getattr(getattr(engine, "process", None), "llm", None)
    return int(llm.vllm_config.cache_config.block_size) if llm is not None else 16
