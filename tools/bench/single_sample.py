"""The section latency: one sample at a time."""

from __future__ import annotations

from tools.bench.drive import reset_prefix_caches, through_harness
from tools.bench.setting import Bench, say
from tools.bench.table import Table


async def measure(bench: Bench) -> list[Table]:
    """Compare each method with the target alone, on the same problems."""
    problems = bench.problems[: bench.latency_problems]
    table = Table(
        f"Latency: one sample at a time ({len(problems)} problems, {bench.tokens} tokens)",
        ["method", "s per sample", "tok/s", "speed-up", "rate ratio", "chain-length ratio", "accepted steps"],
        notes=[
            "Relative to the target alone: speed-up = seconds ratio = rate ratio / chain-length ratio. "
            "tok/s: tokens of the accepted chain."
        ],
    )
    base: tuple[float, int] | None = None
    for name in ("vanilla", *(m for m in bench.methods if m != "vanilla")):
        if bench.late(f"latency of {name}"):
            continue
        await reset_prefix_caches(bench.engines)
        limits = bench.limits(bench.tokens)
        run = await through_harness(bench.engines, name, bench.method(name), problems, limits, 1)
        seconds, emitted = sum(t.latency_seconds for t in run.traces), run.emitted_tokens
        say(f"latency of {name}: {seconds / len(problems):.2f} s per sample")
        if name == "vanilla":
            base = seconds, emitted
        if base is None:
            continue
        verdicts = [s.verdict.accepted for t in run.traces for s in t.steps if s.verdict is not None]
        table.rows.append(
            [
                "target alone" if name == "vanilla" else name,
                seconds / len(problems),
                emitted / seconds,
                base[0] / seconds,
                (emitted / seconds) / (base[1] / base[0]),
                emitted / base[1],
                f"{sum(verdicts)} of {len(verdicts)}" if verdicts else "",
            ]
        )
        bench.runs["latency"].append(run)
    return [table] if table.rows else []
