"""Throughput with many concurrent samples, through the harness and on bare engines."""

from __future__ import annotations

from tools.bench.busy import WAITING
from tools.bench.drive import Replay, Run, at_bare_engines, reset_prefix_caches, through_harness
from tools.bench.setting import Bench, say
from tools.bench.table import Table

GOAL = 0.85


async def measure(bench: Bench) -> list[Table]:
    """Return tables of both models' generated tokens per second at each concurrency: of runs through the harness, and
    of replays of their requests on bare engines.
    """
    ratios = Table(
        f"Throughput: harness against bare engines ({bench.flight_tokens} tokens a sample, steps of at most "
        f"{bench.step_tokens}, {bench.drafts} drafts)",
        ["method", "in flight", "tokens", "harness tok/s", "bare tok/s", "ratio", "cached", "cached, bare"],
        notes=[
            f"Goal: ratio at least {GOAL}. tokens: all output tokens of both models. bare: the same prompts, seeds, "
            "lengths, widths and order within a sample, straight to both engines. cached: share of prompt tokens."
        ],
    )
    where = Table(
        "Throughput: where the time of the two runs goes, in seconds",
        [
            "method",
            "in flight",
            "harness",
            "bare",
            "waiting for engines",
            "waiting, bare",
            "loop busy",
            "loop busy, bare",
            "vLLM's front-end",
            "harness code",
            "most of it in",
        ],
        notes=[
            "waiting: this process has nothing to do while the engines are busy; waiting beyond that of the bare "
            "engines is the engines' own time (steps beyond a stop string, log-probabilities). busy: processor time "
            "of the event loop's thread. The last three columns are sampled from the loop's stack every 5 ms in the "
            "harness run."
        ],
    )
    methods = Table(
        "Throughput: methods at a full batch",
        ["method", "in flight", "samples/s", "emitted tok/s", "spent tok/s", "emitted tok/s over the target alone"],
    )
    for width in bench.in_flight:
        alone = 0.0
        for name in ("vanilla", *(m for m in bench.methods if m != "vanilla")):
            part = f"{name} with {width} in flight"
            if bench.late(part):
                continue
            await reset_prefix_caches(bench.engines)
            limits = bench.limits(bench.flight_tokens)
            run = await through_harness(bench.engines, name, bench.method(name), bench.wave(width), limits, width)
            seconds, emitted = run.watch.seconds, run.emitted_tokens / run.watch.seconds
            say(f"{part}: {run.spent_tokens} tokens in {seconds:.1f} s")
            if name == "vanilla":
                alone = emitted
            relative = emitted / alone if alone else None
            methods.rows.append([name, width, width / seconds, emitted, run.spent_tokens / seconds, relative])
            bench.runs["throughput"].append(run)
            if name == "vanilla":
                continue
            await reset_prefix_caches(bench.engines)
            bare = await at_bare_engines(bench.engines, run.calls, width)
            say(f"{part}: bare engines {bare.watch.seconds:.1f} s, ratio {bare.watch.seconds / seconds:.3f}")
            _add(ratios, where, width, run, bare)
    return [table for table in (ratios, where, methods) if table.rows]


def _add(ratios: Table, where: Table, width: int, run: Run, bare: Replay) -> None:
    seconds, tokens = run.watch.seconds, run.spent_tokens
    rates = (tokens / seconds, tokens / bare.watch.seconds)
    ratios.rows.append([run.method, width, tokens, *rates, rates[0] / rates[1], run.cached_share, bare.cached_share])
    own = {p: share * seconds for p, share in run.watch.shares.items() if p.startswith("harness/")}
    top = ", ".join(f"{p.removeprefix('harness/')} {s:.2g}" for p, s in list(own.items())[:3])
    where.rows.append(
        [
            run.method,
            width,
            seconds,
            bare.watch.seconds,
            run.watch.share(WAITING) * seconds,
            bare.watch.share(WAITING) * bare.watch.seconds,
            run.watch.busy_seconds,
            bare.watch.busy_seconds,
            run.watch.share("vllm") * seconds,
            run.watch.share("harness") * seconds,
            top,
        ]
    )
