"""A plan in words, the same for doctor, a dry run and the table of `python -m harness.sizing`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.plural import counted
from harness.sizing.engine_plan import Demand, EnginePlan, Plan
from harness.sizing.memory_model import GIB
from harness.sizing.refusal import describe_cards, next_larger


def engine_line(engine: EnginePlan) -> str:
    """Return the choice for one engine: weights, width, share, and what its cache holds."""
    return (
        f"{engine.model}: tensor parallel {engine.width}, {engine.memory.weights / GIB:.1f} GiB of weights a GPU, "
        f"memory share {engine.share:.4f}, KV cache of about {engine.kv_tokens:,} tokens at "
        f"{engine.memory.kv_per_token / 1024:g} KiB, "
        f"{counted(engine.num_samples, 'sample')} of at most {engine.sample_tokens:,} tokens"
    )


def room_line(plan: Plan, concurrency: int, demands: Sequence[Demand]) -> tuple[bool, str]:
    """Return whether all samples in flight fit at their greatest length, and a line that says how many do.

    Fewer fit still run: the worker admits as many as there is room for, and most samples stay below the token budget.
    """
    held = f"{counted(plan.num_samples, 'sample')} at the full token budget at once, {concurrency} in flight"
    where = describe_cards(plan.cards)
    if plan.num_samples >= concurrency:
        return True, f"{held}, on {where}"
    larger = next_larger(plan.cards, demands, more_than=plan.num_samples)
    return False, f"{held}, on {where}" + (f"; {larger}" if larger else "")


def plan_lines(plan: Plan, concurrency: int, demands: Sequence[Demand]) -> Iterator[str]:
    """Yield the lines that a dry run prints."""
    for engine in plan.engines.values():
        yield f"{engine.name} {engine_line(engine)}"
    yield room_line(plan, concurrency, demands)[1]
