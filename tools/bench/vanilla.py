"""The section vanilla: the target alone, alternately through the harness and on the bare engine."""

from __future__ import annotations

from statistics import median

from tools.bench.drive import at_bare_engines, reset_prefix_caches, through_harness
from tools.bench.setting import Bench, say
from tools.bench.table import Cell, Table

GOAL = 0.95


async def measure(bench: Bench) -> list[Table]:
    """Measure tokens per second on the same prompts, seeds and lengths, alternating between harness and bare engine;
    return a table with the ratio of each pair.
    """
    width = len(bench.problems)
    table = Table(
        f"Vanilla through the harness and at bare vLLM (target, {width} in flight, {bench.tokens} tokens)",
        ["pair", "tokens", "harness tok/s", "bare tok/s", "ratio", "harness: loop busy s", "bare: loop busy s"],
    )
    if bench.late("vanilla"):
        return []
    method, limits = bench.method("vanilla"), bench.limits(bench.tokens)
    await reset_prefix_caches(bench.engines)
    await through_harness(bench.engines, "vanilla", method, bench.problems, limits, width)  # fills the prefix cache
    ratios: list[float] = []
    for pair in range(bench.pairs):
        if ratios and bench.late(f"vanilla, pair {pair + 1}"):
            break
        run = await through_harness(bench.engines, "vanilla", method, bench.problems, limits, width)
        bare = await at_bare_engines(bench.engines, run.calls, width)
        ratios.append(bare.watch.seconds / run.watch.seconds)
        row: list[Cell] = [pair + 1, run.spent_tokens]
        row += [run.spent_tokens / run.watch.seconds, run.spent_tokens / bare.watch.seconds, ratios[-1]]
        table.rows.append([*row, run.watch.busy_seconds, bare.watch.busy_seconds])
        say(f"vanilla, pair {pair + 1}: ratio {ratios[-1]:.3f}")
    table.notes.append(f"Median ratio {median(ratios):.3f}; goal at least {GOAL}.")
    return [table]
